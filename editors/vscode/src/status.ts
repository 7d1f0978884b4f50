// The status item: what the server last said, in one word; a click opens the menu.

import * as vscode from 'vscode';
import { State, Status } from './protocol';

const ICONS: Record<State, string> = {
	starting: 'loading~spin',
	downloading: 'cloud-download',
	ready: 'sparkle',
	busy: 'sync~spin',
	paused: 'debug-pause',
	error: 'warning',
};

export class StatusItem implements vscode.Disposable {
	private readonly item = vscode.window.createStatusBarItem('dlsp.status', vscode.StatusBarAlignment.Right, 100);
	private latest: Status | undefined;

	constructor() {
		this.item.name = 'dlsp';
		this.item.command = 'dlsp.menu';
		this.show({ state: 'starting', message: 'looking for the server' });
		this.item.show();
	}

	get status(): Status | undefined {
		return this.latest;
	}

	show(status: Status): void {
		this.latest = status;
		this.item.text = `$(${ICONS[status.state] ?? 'question'}) ${text(status)}`;
		this.item.tooltip = tooltip(status);
		this.item.accessibilityInformation = { label: `dlsp ${status.state} ${status.message}` };
		this.item.backgroundColor =
			status.state === 'error' ? new vscode.ThemeColor('statusBarItem.warningBackground') : undefined;
		void vscode.commands.executeCommand('setContext', 'dlsp.ready', status.state === 'ready');
	}

	dispose(): void {
		this.item.dispose();
	}
}

function text(status: Status): string {
	if (status.state === 'ready' || status.state === 'busy') {
		return typeof status.lastMs === 'number' ? `dlsp ${Math.round(status.lastMs)} ms` : 'dlsp';
	}
	const far = typeof status.progress === 'number' ? ` ${Math.floor(status.progress * 100)} %` : '';
	return `dlsp ${status.state}${far}`;
}

function tooltip(status: Status): string {
	const model = status.model ? `\nmodel: ${status.model}` : '';
	const last = typeof status.lastMs === 'number' ? `\nlast suggestion: ${Math.round(status.lastMs)} ms` : '';
	return `dlsp: ${status.message || status.state}${model}${last}\nClick for a menu.`;
}
