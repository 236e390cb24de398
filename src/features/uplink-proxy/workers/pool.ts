import { Worker } from "node:worker_threads";
import { Deferred } from "#base/async";
import { assertNever } from "#base/errors";
import type { Settings, Snapshot } from "#base/uplink-model";
import type { Threads, ThreadsDeps, ThreadsOptions } from "../proxy/index.ts";
import type { PenaltyEvent } from "../select/index.ts";
import { encode } from "./codec.ts";
import type { FromWorker, Note, ToWorker, WorkerInit } from "./messages.ts";
import { repeatEvidence } from "./outbox.ts";

/** The time for which the end of a thread is waited for, in milliseconds. */
const EXIT_MS = 2000;

const LEVELS = ["debug", "info", "warn", "error"] as const;

interface Thread {
  readonly worker: Worker;
  readonly exited: Deferred;
  bound: readonly string[];
}

/** {@link Threads} as worker threads of Node.js. The creator closes it. */
export class WorkerPool implements Threads {
  readonly #deps: ThreadsDeps;
  readonly #threads: Thread[] = [];
  #isClosing = false;

  constructor(deps: ThreadsDeps, options: ThreadsOptions) {
    this.#deps = deps;
    const init: WorkerInit = {
      settings: encode(options.settings),
      snapshot: encode(deps.snapshots.current),
      limiter: options.limiter,
      mark: options.mark,
      hostsPath: options.hostsPath,
      streams: options.streams,
      logLevels: LEVELS.filter((level) => deps.log.isEnabled(level)),
    };
    for (let at = 0; at < options.threads; at += 1) this.#start(init);
  }

  get size(): number {
    return this.#threads.length;
  }

  /** True once every thread listens at the listener of that name. */
  isBound(name: string): boolean {
    return this.#threads.every(({ bound }) => bound.includes(name));
  }

  setSnapshot(snapshot: Snapshot): void {
    this.#toAll({ kind: "snapshot", snapshot: encode(snapshot) });
  }

  setSettings(settings: Settings): void {
    this.#toAll({ kind: "settings", settings: encode(settings) });
  }

  /** Passes a penalty of the first thread to all other threads. */
  sendPenalty(event: PenaltyEvent): void {
    this.#toAll({ kind: "penalty", event });
  }

  /** Tells all threads to refuse new requests from now on. */
  drain(): void {
    this.#toAll({ kind: "drain" });
  }

  /** Ends tunnels and threads. Resolves when all have ended, or after two seconds: the process then ends with them. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#toAll({ kind: "close" });
    await Promise.all(this.#threads.map((thread) => ended(thread)));
    this.#threads.length = 0;
  }

  #start(init: WorkerInit): void {
    const thread: Thread = { worker: new Worker(workerUrl(), { workerData: init }), exited: new Deferred(), bound: [] };
    this.#threads.push(thread);
    const { worker } = thread;
    worker.on("message", (message: FromWorker) => this.#take(thread, message));
    worker.on("error", (error) => this.#deps.onBug(error));
    worker.on("exit", (code) => {
      thread.exited.resolve();
      if (!this.#isClosing) this.#deps.onBug(new Error(`a worker thread of the proxy has ended with code ${code}`));
    });
  }

  #take(thread: Thread, message: FromWorker): void {
    const { page, onBug, onPenalty, snapshots } = this.#deps;
    switch (message.kind) {
      case "notes":
        for (const note of JSON.parse(message.notes) as Note[]) this.#note(note);
        break;
      case "penalty":
        onPenalty(message.event);
        for (const other of this.#threads) {
          if (other !== thread) post(other, { kind: "penalty", event: message.event });
        }
        break;
      case "page":
        page(message.page).then((body) => post(thread, { kind: "page", id: message.id, body }), onBug);
        break;
      case "refresh":
        snapshots.refresh();
        break;
      case "bound":
        thread.bound = message.names;
        break;
      case "bug":
        onBug(new Error(`a worker thread of the proxy has failed because of a bug: ${message.text}`));
        break;
      default:
        assertNever(message);
    }
  }

  #note(note: Note): void {
    const { record, evidence, log } = this.#deps;
    switch (note.kind) {
      case "stats":
        record(note.event);
        break;
      case "evidence":
        repeatEvidence(evidence, note.call);
        break;
      case "log":
        log[note.level](note.message, note.fields);
        break;
      default:
        assertNever(note);
    }
  }

  #toAll(message: ToWorker): void {
    for (const thread of this.#threads) post(thread, message);
  }
}

function post({ worker }: Thread, message: ToWorker): void {
  worker.postMessage(message);
}

async function ended({ worker, exited }: Thread): Promise<void> {
  // The thread is not terminated by force: the process ends soon, which closes its descriptors.
  const timer = setTimeout(() => {
    worker.unref();
    exited.resolve();
  }, EXIT_MS);
  await exited.promise;
  clearTimeout(timer);
}

/** Run from sources, the worker is the file beside this file; in the bundle it is a separate entry point. */
function workerUrl(): URL {
  return new URL(import.meta.url.endsWith(".ts") ? "./worker.ts" : "./uplink-worker.mjs", import.meta.url);
}
