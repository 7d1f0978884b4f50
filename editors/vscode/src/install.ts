// Puts the server into an environment of the extension's own, with pip, while a notification tells how
// far it is. Nothing outside that folder is changed.

import { spawn } from 'node:child_process';
import * as vscode from 'vscode';
import { findPython, pythonIn } from './python';

/** Installs or updates; resolves to whether the server is there afterwards. Failures are told. */
export async function install(environment: string, log: vscode.LogOutputChannel): Promise<boolean> {
	const what = vscode.workspace.getConfiguration('dlsp').get<string>('package') || (await choose());
	if (!what) {
		return false;
	}
	const options = { location: vscode.ProgressLocation.Notification, title: 'Installing dlsp', cancellable: true };
	try {
		await vscode.window.withProgress(options, async (progress, cancel) => {
			const python = await findPython();
			if (!python) {
				throw new Error('no Python 3.11 or newer with venv was found; install one, or set dlsp.python');
			}
			const step = (command: string, args: string[]) => execute(command, args, { log, progress, cancel });
			progress.report({ message: 'making an environment' });
			await step(python, ['-m', 'venv', environment]);
			progress.report({ message: 'fetching packages' });
			const pip = ['-m', 'pip', 'install', '--upgrade', '--no-input', '--disable-pip-version-check', '--progress-bar', 'off'];
			await step(pythonIn(environment), [...pip, what]);
		});
		return true;
	} catch (error) {
		if (!(error instanceof vscode.CancellationError)) {
			await tell(error, log);
		}
		return false;
	}
}

// Until dlsp is in the package index its name there is nobody's: it is never fetched by name alone.
async function choose(): Promise<string | undefined> {
	const options = { canSelectFiles: true, canSelectFolders: true, title: 'A checkout or a wheel of dlsp', openLabel: 'Install' };
	return (await vscode.window.showOpenDialog(options))?.[0]?.fsPath;
}

async function tell(error: unknown, log: vscode.LogOutputChannel): Promise<void> {
	const message = error instanceof Error ? error.message : String(error);
	log.error(message);
	const choice = await vscode.window.showErrorMessage(`dlsp was not installed: ${message}`, 'Show Log');
	if (choice) {
		log.show();
	}
}

interface Surroundings {
	readonly log: vscode.LogOutputChannel;
	readonly progress: vscode.Progress<{ message?: string }>;
	readonly cancel: vscode.CancellationToken;
}

function execute(command: string, args: string[], { log, progress, cancel }: Surroundings): Promise<void> {
	return new Promise((resolve, reject) => {
		log.info([command, ...args].join(' '));
		const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
		let last = '';
		const listen = (data: Buffer) => {
			for (const line of data.toString().split(/\r?\n/).filter((line) => line.trim())) {
				log.info(line);
				last = line.trim();
				const word = /^(Collecting|Downloading|Installing|Processing|Building)\s+(\S+)/.exec(last);
				if (word) {
					progress.report({ message: `${word[1]} ${word[2]?.split(/[\\/]/).pop()}`.slice(0, 60) });
				}
			}
		};
		child.stdout.on('data', listen);
		child.stderr.on('data', listen);
		const onCancel = cancel.onCancellationRequested(() => child.kill());
		child.on('error', reject);
		child.on('close', (code) => {
			onCancel.dispose();
			if (cancel.isCancellationRequested) {
				reject(new vscode.CancellationError());
			} else if (code === 0) {
				resolve();
			} else {
				reject(new Error(last || `${command} ended with ${code}`));
			}
		});
	});
}
