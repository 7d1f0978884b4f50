// The extension from end to end: find the server, start it, keep the status item, or offer to install.

import * as vscode from 'vscode';
import { Client } from './client';
import { registerCommands } from './commands';
import { install } from './install';
import { findServer } from './python';
import { Reports } from './report';
import { StatusItem } from './status';

/** A cursor that has not moved for so long rests. */
const REST_MS = 300;

let extension: Extension | undefined;

export function activate(context: vscode.ExtensionContext): void {
	extension = new Extension(context);
	void extension.start(); // not waited for: the editor is never held up
}

export async function deactivate(): Promise<void> {
	await extension?.stop();
	extension = undefined;
}

class Extension {
	private readonly log: vscode.LogOutputChannel;
	private readonly status = new StatusItem();
	private readonly environment: string;
	private client: Client | undefined;
	private rest: NodeJS.Timeout | undefined;
	/** Starts and stops happen one after the other. */
	private queue: Promise<void> = Promise.resolve();

	constructor(context: vscode.ExtensionContext) {
		this.log = vscode.window.createOutputChannel('dlsp', { log: true });
		this.environment = vscode.Uri.joinPath(context.globalStorageUri, 'environment').fsPath;
		const reports = new Reports();
		context.subscriptions.push(
			reports,
			this.log,
			this.status,
			...registerCommands({
				status: this.status,
				log: this.log,
				reports,
				client: () => this.running(),
				install: () => this.install(),
				restart: () => this.restart(),
			}),
			vscode.window.onDidChangeTextEditorSelection(({ textEditor }) => {
				clearTimeout(this.rest);
				this.rest = setTimeout(() => void this.client?.rests(textEditor), REST_MS);
			}),
			vscode.workspace.onDidChangeConfiguration((event) => {
				if (event.affectsConfiguration('dlsp.python')) {
					void this.restartServer();
				}
			}),
		);
	}

	start(): Promise<void> {
		return this.inTurn(async () => {
			const server = await findServer(this.environment, this.log);
			await vscode.commands.executeCommand('setContext', 'dlsp.running', !!server);
			if (!server) {
				this.status.show({ state: 'error', message: 'the server is not installed' });
				void this.offer();
				return;
			}
			this.client = new Client(server, this.log, (status) => this.status.show(status));
			try {
				await this.client.start();
			} catch (error) {
				this.log.error(String(error));
				this.status.show({ state: 'error', message: `the server did not start: ${String(error)}` });
			}
		});
	}

	stop(): Promise<void> {
		return this.inTurn(async () => {
			const client = this.client;
			this.client = undefined;
			await client?.dispose();
		});
	}

	private async running(): Promise<Client | undefined> {
		await this.queue;
		if (!this.client) {
			void this.offer();
		}
		return this.client;
	}

	private async offer(): Promise<void> {
		const message = 'dlsp needs its server, which runs in a Python environment of its own. Install it?';
		const choice = await vscode.window.showInformationMessage(message, 'Install', 'Choose Python');
		if (choice === 'Install') {
			await this.install();
		} else if (choice) {
			await vscode.commands.executeCommand('workbench.action.openSettings', 'dlsp.python');
		}
	}

	private async install(): Promise<void> {
		await this.stop(); // a running server keeps its files open
		this.status.show({ state: 'starting', message: 'installing the server' });
		await install(this.environment, this.log);
		await this.start();
	}

	private async restart(): Promise<void> {
		await this.client?.ask('dlsp/restart', {});
		await this.restartServer();
	}

	private async restartServer(): Promise<void> {
		await this.stop();
		await this.start();
	}

	private inTurn(step: () => Promise<void>): Promise<void> {
		this.queue = this.queue.then(step, step);
		return this.queue;
	}
}
