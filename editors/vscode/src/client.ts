// The language client and the server process behind it. vscode-languageclient shows inline completions
// through the editor's own interface; nothing here touches them.

import * as vscode from 'vscode';
import {
	LanguageClient,
	LanguageClientOptions,
	ResponseError,
	RevealOutputChannelOn,
	State,
} from 'vscode-languageclient/node';
import { Status } from './protocol';
import { Server } from './python';

const METHOD_NOT_FOUND = -32601;
// The extension's own settings, of which the server knows nothing.
const OWN = ['python', 'package'];

export class Client implements vscode.Disposable {
	private readonly client: LanguageClient;

	constructor(server: Server, log: vscode.LogOutputChannel, onStatus: (status: Status) => void) {
		const run = { command: server.python, args: ['-P', '-m', 'dlsp', 'lsp'] };
		this.client = new LanguageClient('dlsp', 'dlsp', run, options(log));
		this.client.onNotification('dlsp/status', onStatus);
		this.client.onDidChangeState(({ newState }) => {
			if (newState === State.Stopped) {
				onStatus({ state: 'error', message: 'the server is not running' });
			} else if (newState === State.Starting) {
				onStatus({ state: 'starting', message: 'starting the server' });
			}
		});
	}

	async start(): Promise<void> {
		await this.client.start();
	}

	/** One of the server's own questions; undefined, and a message, when it cannot answer. */
	async ask<T>(method: string, params: object): Promise<T | undefined> {
		try {
			return await this.client.sendRequest<T>(method, params);
		} catch (error) {
			const unknown = error instanceof ResponseError && error.code === METHOD_NOT_FOUND;
			const why = unknown ? `this version of the server does not know ${method}; update it` : String(error);
			void vscode.window.showWarningMessage(`dlsp: ${why}`);
			return undefined;
		}
	}

	/** Tells where the cursor rests, so that the engine can read ahead before anything is typed. */
	async rests(editor: vscode.TextEditor): Promise<void> {
		const uri = this.client.code2ProtocolConverter.asUri(editor.document.uri);
		const position = this.client.code2ProtocolConverter.asPosition(editor.selection.active);
		if (this.client.isRunning()) {
			await this.client.sendNotification('dlsp/cursor', { textDocument: { uri }, position });
		}
	}

	async dispose(): Promise<void> {
		await this.client.dispose();
	}
}

function options(log: vscode.LogOutputChannel): LanguageClientOptions {
	return {
		// Notebook cells are documents of their own scheme; a remote window's files have "file" here too.
		documentSelector: [{ scheme: 'file' }, { scheme: 'untitled' }, { scheme: 'vscode-notebook-cell' }],
		outputChannel: log,
		revealOutputChannelOn: RevealOutputChannelOn.Never,
		middleware: {
			workspace: {
				configuration: async (params, token, next) => {
					const answer = await next(params, token);
					return Array.isArray(answer) ? answer.map((section, index) => given(section, params.items[index]?.scopeUri)) : answer;
				},
			},
		},
	};
}

/** What somebody has set. Defaults are the server's own, which its environment may have changed. */
function given(section: unknown, resource: string | undefined): unknown {
	if (typeof section !== 'object' || section === null || Array.isArray(section)) {
		return section;
	}
	const settings = vscode.workspace.getConfiguration('dlsp', resource ? vscode.Uri.parse(resource) : null);
	const chosen = Object.entries(section).filter(([key]) => {
		const { key: _, defaultValue: __, languageIds: ___, ...set } = settings.inspect(key) ?? { key };
		return !OWN.includes(key) && Object.values(set).some((value) => value !== undefined && value !== '');
	});
	return Object.fromEntries(chosen);
}
