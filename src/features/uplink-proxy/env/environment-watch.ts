import type { Clock } from "#base/clock";
import type { IpAddress } from "#base/ip";
import { repeat } from "#base/reconcile";
import { isStale, readSentinel } from "./sentinel.ts";

const LOOK_MS = 15_000;

/** The key `env` of `/healthz` (docs/spec/uplink-proxy.md#10.3). */
export interface EnvironmentState {
  readonly nodeIP: string | null;
  /** True if the runtime's NO_PROXY does not contain the node's address. */
  readonly stale: boolean;
}

/** Checks the runtime's record at intervals. */
export class EnvironmentWatch {
  readonly #path: string;
  readonly #nodeIP: () => IpAddress | undefined;
  #state: EnvironmentState = { nodeIP: null, stale: false };

  constructor(path: string, nodeIP: () => IpAddress | undefined) {
    this.#path = path;
    this.#nodeIP = nodeIP;
  }

  get state(): EnvironmentState {
    return this.#state;
  }

  /** Runs until the signal aborts. */
  async run({ signal, clock }: { readonly signal: AbortSignal; readonly clock: Clock }): Promise<void> {
    await repeat(() => this.#look(), { signal, clock, everyMs: LOOK_MS });
  }

  async #look(): Promise<void> {
    try {
      const [sentinel, nodeIP] = [await readSentinel(this.#path), this.#nodeIP()];
      const stale = sentinel !== undefined && nodeIP !== undefined && isStale(sentinel, nodeIP);
      this.#state = { nodeIP: nodeIP?.toString() ?? null, stale };
    } catch (error) {
      // If the file cannot be read because descriptors or the disk fail, which is reported elsewhere, the last state stays.
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    }
  }
}
