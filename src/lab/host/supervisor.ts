import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { Backoff, sleep } from "#base/async";
import { isAbortError } from "#base/errors";
import type { Logger } from "#base/log";
import { inNetNs, type NetNs } from "#kernel/netns";

/** A program that is kept running. */
export interface ChildSpec {
  readonly name: string;
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly netns: NetNs;
  /** File that standard output and error are appended to. */
  readonly log: string;
}

export interface ChildState {
  readonly name: string;
  readonly pid: number;
  readonly restarts: number;
}

/** A child has ended by itself, and is started again. */
export interface ChildEnd {
  readonly name: string;
  /** The number of times that it has ended. */
  readonly times: number;
  /** Its exit code; `null`: a signal has ended it. */
  readonly code: number | null;
  /** The signal. */
  readonly by: string | null;
}

/** The time that a child has to end after SIGTERM, in milliseconds. */
const GRACE_MS = 5000;

/** Keeps children running in their namespaces, as a DaemonSet would: a child that ends is started again. */
export class Supervisor {
  readonly #log: Logger;
  readonly #children = new Map<string, { process: ChildProcess; restarts: number }>();
  readonly #onChange: () => void;
  readonly #onEnd: (end: ChildEnd) => void;

  constructor(deps: {
    readonly log: Logger;
    readonly onChange: () => void;
    readonly onEnd: (end: ChildEnd) => void;
  }) {
    this.#log = deps.log;
    this.#onChange = deps.onChange;
    this.#onEnd = deps.onEnd;
  }

  get children(): readonly ChildState[] {
    return [...this.#children].map(([name, { process, restarts }]) => ({ name, pid: process.pid ?? 0, restarts }));
  }

  /** Starts a child and keeps it running until the signal aborts; then ends the child and waits for its end. */
  async run(spec: ChildSpec, options: { readonly signal: AbortSignal }): Promise<void> {
    const { signal } = options;
    const backoff = new Backoff({ initialMs: 50, maxMs: 2000 });
    for (let restarts = 0; !signal.aborted; restarts += 1) {
      const child = this.#start(spec);
      this.#children.set(spec.name, { process: child, restarts });
      this.#onChange();
      const ended = once(child, "exit");
      const stop = (): void => void child.kill("SIGTERM");
      signal.addEventListener("abort", stop, { once: true });
      const [code, by] = (await this.#outlive(child, ended, signal)) as [number | null, string | null];
      signal.removeEventListener("abort", stop);
      if (signal.aborted) break;
      this.#log.info("a program of the lab has ended and is started again", { program: spec.name, code, by });
      this.#onEnd({ name: spec.name, times: restarts + 1, code, by });
      try {
        await sleep(backoff.next(), { signal });
      } catch (error) {
        if (!isAbortError(error)) throw error;
      }
    }
    this.#children.delete(spec.name);
  }

  /** Waits for the end of a child. Kills it `GRACE_MS` after the signal has aborted. */
  async #outlive(child: ChildProcess, ended: Promise<unknown>, signal: AbortSignal): Promise<unknown> {
    const timers: NodeJS.Timeout[] = [];
    const kill = (): void => {
      timers.push(setTimeout(() => child.kill("SIGKILL"), GRACE_MS));
    };
    if (signal.aborted) kill();
    signal.addEventListener("abort", kill, { once: true });
    try {
      return await ended;
    } finally {
      signal.removeEventListener("abort", kill);
      for (const timer of timers) clearTimeout(timer);
    }
  }

  #start(spec: ChildSpec): ChildProcess {
    const log = openSync(spec.log, "a", 0o600);
    try {
      const [file = "", ...args] = spec.argv;
      // A child made while this thread is in the namespace stays in it.
      return inNetNs(spec.netns, () => spawn(file, args, { env: { ...spec.env }, stdio: ["ignore", log, log] }));
    } finally {
      closeSync(log);
    }
  }
}
