// Answers of the server as documents that can be read and closed, and never ask to be saved.

import * as vscode from 'vscode';

const SCHEME = 'dlsp';

export class Reports implements vscode.Disposable, vscode.TextDocumentContentProvider {
	private readonly contents = new Map<string, string>();
	private readonly changed = new vscode.EventEmitter<vscode.Uri>();
	private readonly registration = vscode.workspace.registerTextDocumentContentProvider(SCHEME, this);
	readonly onDidChange = this.changed.event;

	provideTextDocumentContent(uri: vscode.Uri): string {
		return this.contents.get(uri.path) ?? '';
	}

	/** Shows an answer beside the code: what it means in words, where there are any, then its facts. */
	async show(name: string, answer: { words?: string[] } | null): Promise<void> {
		const { words = [], ...facts } = answer ?? {};
		const uri = vscode.Uri.from({ scheme: SCHEME, path: `dlsp ${name}` });
		this.contents.set(
			uri.path,
			answer ? [...words, ...(words.length ? [''] : []), JSON.stringify(facts, null, 2)].join('\n') : 'Nothing was asked here yet.',
		);
		this.changed.fire(uri);
		await vscode.window.showTextDocument(uri, {
			preview: true,
			preserveFocus: true,
			viewColumn: vscode.ViewColumn.Beside,
		});
	}

	dispose(): void {
		this.registration.dispose();
		this.changed.dispose();
	}
}
