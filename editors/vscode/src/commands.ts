// What the menu and the command palette offer, over the server's own questions.

import * as vscode from 'vscode';
import { Client } from './client';
import { Model, Pause, Scope } from './protocol';
import { Reports } from './report';
import { StatusItem } from './status';

export interface Surroundings {
	readonly status: StatusItem;
	readonly log: vscode.LogOutputChannel;
	readonly reports: Reports;
	/** The running client; undefined, after offering to install, where there is none. */
	client(): Promise<Client | undefined>;
	install(): Promise<void>;
	restart(): Promise<void>;
}

export function registerCommands(around: Surroundings): vscode.Disposable[] {
	const paused = new Set<string>();
	const commands: Record<string, () => unknown> = {
		menu: () => menu(around),
		install: () => around.install(),
		pauseDocument: () => pause(around, 'document', paused),
		pauseLanguage: () => pause(around, 'language', paused),
		pauseAll: () => pause(around, 'all', paused),
		pickModel: () => pickModel(around),
		stats: () => report(around, 'stats', {}),
		why: () => report(around, 'why', document()),
		replay: () => replay(around),
		showLog: () => around.log.show(),
		restart: () => around.restart(),
	};
	return Object.entries(commands).map(([name, run]) => vscode.commands.registerCommand(`dlsp.${name}`, run));
}

async function menu({ status }: Surroundings): Promise<void> {
	const language = vscode.window.activeTextEditor?.document.languageId;
	const entries = [
		{ label: '$(debug-pause) Pause or resume in this file', command: 'dlsp.pauseDocument' },
		{ label: `$(debug-pause) Pause or resume for ${language ?? 'this language'}`, command: 'dlsp.pauseLanguage' },
		{ label: '$(debug-pause) Pause or resume everywhere', command: 'dlsp.pauseAll' },
		{ label: '$(package) Pick model', command: 'dlsp.pickModel' },
		{ label: '$(graph) Statistics', command: 'dlsp.stats' },
		{ label: '$(question) Why this suggestion, or none', command: 'dlsp.why' },
		{ label: '$(output) Log', command: 'dlsp.showLog' },
		{ label: '$(debug-restart) Restart', command: 'dlsp.restart' },
	];
	const title = `dlsp: ${status.status?.message || status.status?.state || ''}`;
	const choice = await vscode.window.showQuickPick(entries, { title, placeHolder: 'What to do' });
	if (choice) {
		await vscode.commands.executeCommand(choice.command);
	}
}

function document(): { textDocument: { uri: string } } {
	return { textDocument: { uri: vscode.window.activeTextEditor?.document.uri.toString() ?? '' } };
}

async function pause(around: Surroundings, scope: Scope, paused: Set<string>): Promise<void> {
	const editor = vscode.window.activeTextEditor;
	if (!editor && scope !== 'all') {
		void vscode.window.showInformationMessage('dlsp: open a file first');
		return;
	}
	const uri = editor?.document.uri.toString();
	const key = { all: 'all', language: editor?.document.languageId ?? '', document: uri ?? '' }[scope];
	const wanted: Pause = { scope, paused: !paused.has(key), ...(uri ? { uri } : {}) };
	const answer = await (await around.client())?.ask<{ paused: boolean }>('dlsp/pause', wanted);
	if (!answer) {
		return;
	}
	if (answer.paused) {
		paused.add(key);
		await vscode.commands.executeCommand('editor.action.inlineSuggest.hide');
	} else {
		paused.delete(key);
	}
	const where = { all: 'everywhere', language: `for ${key}`, document: 'in this file' }[scope];
	vscode.window.setStatusBarMessage(`dlsp ${answer.paused ? 'paused' : 'resumed'} ${where}`, 5000);
}

async function pickModel(around: Surroundings): Promise<void> {
	const models = await (await around.client())?.ask<Model[]>('dlsp/models', {});
	if (!models) {
		return;
	}
	const entries = models.map((model) => ({
		label: `${model.current ? '$(check) ' : ''}${model.name}`,
		description: `${model.sizeMb} MB, ${model.licence}, ${model.onDisk ? 'on disk' : 'to be fetched'}`,
		detail: model.description,
		name: model.name,
	}));
	const choice = await vscode.window.showQuickPick(entries, { title: 'Model of dlsp', matchOnDescription: true });
	if (choice) {
		const settings = vscode.workspace.getConfiguration('dlsp');
		await settings.update('model', choice.name, vscode.ConfigurationTarget.Global);
	}
}

async function report(around: Surroundings, name: 'stats' | 'why', params: object): Promise<void> {
	const client = await around.client();
	const answer = await client?.ask<{ words?: string[] } | null>(`dlsp/${name}`, params);
	if (answer !== undefined) {
		await around.reports.show(name, answer);
	}
}

async function replay(around: Surroundings): Promise<void> {
	const answer = await (await around.client())?.ask<{ path: string } | null>('dlsp/replay', document());
	if (answer) {
		await vscode.window.showTextDocument(vscode.Uri.file(answer.path));
	}
}
