// Finds a Python that can run the server: the user's choice, the extension's own environment, what the
// Python extensions have selected, then the path. Each candidate is tried, none is trusted by its name.

import { execFile } from 'node:child_process';
import * as path from 'node:path';
import { promisify } from 'node:util';
import * as vscode from 'vscode';

const run = promisify(execFile);
const PATIENCE_MS = 20_000;
// -P (new in 3.11): a project must not be able to slip in a module of its own.
const PROBE = 'import sys, importlib.metadata as m; print(sys.version_info >= (3, 11)); print(m.version("dlsp"))';

export interface Server {
	readonly python: string;
	readonly version: string;
}

/** The Python of an environment folder. */
export function pythonIn(environment: string): string {
	return process.platform === 'win32'
		? path.join(environment, 'Scripts', 'python.exe')
		: path.join(environment, 'bin', 'python');
}

/** The first Python in which `dlsp` is installed; `own` is the extension's own environment. */
export async function findServer(own: string, log: vscode.LogOutputChannel): Promise<Server | undefined> {
	const chosen = vscode.workspace.getConfiguration('dlsp').get<string>('python');
	const candidates = chosen ? [chosen] : [pythonIn(own), ...(await selected()), ...onPath()];
	for (const python of new Set(candidates)) {
		const version = await probe(python);
		log.info(`${python}: ${version ? `dlsp ${version}` : 'no dlsp, or no Python 3.11 or newer'}`);
		if (version) {
			return { python, version };
		}
	}
	return undefined;
}

/** A Python that can make an environment; undefined when none is new enough. */
export async function findPython(): Promise<string | undefined> {
	for (const python of new Set([...(await selected()), ...onPath()])) {
		try {
			await run(python, ['-P', '-c', 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'], {
				timeout: PATIENCE_MS,
			});
			return python;
		} catch {
			continue;
		}
	}
	return undefined;
}

async function probe(python: string): Promise<string | undefined> {
	try {
		const { stdout } = await run(python, ['-P', '-c', PROBE], { timeout: PATIENCE_MS });
		const [recent, version] = stdout.split(/\r?\n/);
		return recent === 'True' ? version : undefined;
	} catch {
		return undefined;
	}
}

function onPath(): string[] {
	return process.platform === 'win32' ? ['python', 'py'] : ['python3', 'python', 'python3.13', 'python3.12', 'python3.11'];
}

// The published, stable parts of the two Python extensions' interfaces.
interface PythonEnvironments {
	getEnvironment(scope: vscode.Uri | undefined): Promise<{ execInfo?: { run?: { executable?: string } } } | undefined>;
}
interface PythonExtension {
	environments: { getActiveEnvironmentPath(scope?: vscode.Uri): { path: string } };
}

/** What the Python extensions have selected for the first folder; they are not needed. */
async function selected(): Promise<string[]> {
	const folder = vscode.workspace.workspaceFolders?.[0]?.uri;
	const found = await Promise.all([
		exportsOf<PythonEnvironments>('ms-python.vscode-python-envs').then(async (api) => {
			return (await api?.getEnvironment(folder))?.execInfo?.run?.executable;
		}),
		exportsOf<PythonExtension>('ms-python.python').then((api) => {
			return api?.environments.getActiveEnvironmentPath(folder).path;
		}),
	].map((question) => question.catch(() => undefined)));
	return found.filter((python): python is string => !!python);
}

async function exportsOf<T>(id: string): Promise<T | undefined> {
	return vscode.extensions.getExtension<T>(id)?.activate();
}
