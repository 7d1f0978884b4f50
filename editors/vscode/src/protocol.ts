// The server's own messages, beside those of LSP.

export type State = 'starting' | 'downloading' | 'ready' | 'busy' | 'paused' | 'error';

/** Notification `dlsp/status`. */
export interface Status {
	readonly state: State;
	readonly message: string;
	readonly model?: string | null;
	/** From 0 to 1. */
	readonly progress?: number | null;
	/** How long the last suggestion took. */
	readonly lastMs?: number | null;
}

/** One of the answer to `dlsp/models`. */
export interface Model {
	readonly name: string;
	readonly description: string;
	readonly licence: string;
	readonly sizeMb: number;
	readonly current: boolean;
	readonly onDisk: boolean;
}

/** Parameters of `dlsp/pause`. */
export interface Pause {
	readonly scope: Scope;
	readonly uri?: string;
	readonly paused: boolean;
}

export type Scope = 'all' | 'language' | 'document';
