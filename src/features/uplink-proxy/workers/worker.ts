/**
 * The body of a further thread of the proxy: listens at the same addresses as the first one and serves the clients that the kernel assigns
 * to it. It is a separate entry point in the bundle (`uplink-worker.mjs`).
 */
import { type MessagePort, parentPort, workerData } from "node:worker_threads";
import { systemClock } from "#base/clock";
import { assertNever, describeError } from "#base/errors";
import type { Readiness } from "#base/health";
import { nullLogger } from "#base/log";
import type { Settings, Snapshot } from "#base/uplink-model";
import { closeReactor, tcpStreams } from "#kernel/reactor";
import { Engine } from "../engine/index.ts";
import { TunnelLimiter } from "../front/index.ts";
import { ListenerSet } from "../listen/index.ts";
import type { Page } from "../proxy/index.ts";
import { decode } from "./codec.ts";
import type { FromWorker, ToWorker, WorkerInit } from "./messages.ts";
import { Outbox } from "./outbox.ts";

/** Interval at which bytes are reported, in milliseconds. */
const TICK_MS = 1000;

/** One further thread. */
class WorkerProxy {
  readonly #port: MessagePort;
  readonly #outbox: Outbox;
  readonly #engine: Engine;
  readonly #pages = new Map<number, (body: string) => void>();
  readonly #listeners: ListenerSet;
  readonly #timer: NodeJS.Timeout;
  #settings: Settings;
  #snapshot: Snapshot;
  #nextPage = 0;

  constructor(port: MessagePort, init: WorkerInit) {
    this.#port = port;
    this.#settings = decode<Settings>(init.settings);
    this.#snapshot = decode<Snapshot>(init.snapshot);
    this.#outbox = new Outbox((notes) => this.#post({ kind: "notes", notes }), init.logLevels);
    const snapshot = (): Snapshot => this.#snapshot;
    this.#engine = new Engine({
      clock: systemClock,
      log: this.#outbox.log,
      settings: () => this.#settings,
      snapshots: {
        get current() {
          return snapshot();
        },
        refresh: () => this.#post({ kind: "refresh" }),
      },
      evidence: this.#outbox.evidence,
      record: this.#outbox.record,
      limiter: new TunnelLimiter(() => this.#settings.limits, { memory: init.limiter }),
      tokens: () => undefined,
      secureContext: () => undefined,
      healthz: () => this.#page("healthz"),
      readyz: async ({ isVerbose }) =>
        JSON.parse(await this.#page(isVerbose ? "readyz?verbose" : "readyz")) as Readiness,
      metrics: () => this.#page("metrics"),
      streams: tcpStreams(init.streams),
      mark: init.mark,
      hostsPath: init.hostsPath,
      onBug: (error) => this.#bug(error),
    });
    this.#engine.penalties.onEvent = (event) => this.#post({ kind: "penalty", event });
    this.#timer = setInterval(() => this.#engine.flush(), TICK_MS);
    this.#listeners = new ListenerSet(
      {
        log: nullLogger, // The first thread logs for the same addresses.
        clock: systemClock,
        streams: tcpStreams(init.streams),
        onClient: (fd, remote, listener) => this.#engine.accept(fd, remote, listener),
        onBound: () => this.#post({ kind: "bound", names: this.#listeners.bound.map(({ name }) => name) }),
        spawn: (run) => void run().catch((error: unknown) => this.#bug(error)),
      },
      { backlog: () => this.#settings.limits.backlog, isShared: () => true },
    );
    port.on("message", (message: ToWorker) => this.#take(message));
    this.#listeners.sync(sharedListeners(this.#settings));
  }

  #take(message: ToWorker): void {
    switch (message.kind) {
      case "settings":
        this.#settings = decode<Settings>(message.settings);
        this.#engine.settingsChanged();
        this.#listeners.sync(sharedListeners(this.#settings));
        break;
      case "snapshot":
        this.#snapshot = decode<Snapshot>(message.snapshot);
        this.#engine.snapshotChanged();
        break;
      case "penalty":
        this.#engine.penalties.apply(message.event);
        break;
      case "page":
        this.#pages.get(message.id)?.(message.body);
        this.#pages.delete(message.id);
        break;
      case "drain":
        this.#listeners.stop();
        this.#engine.beginDrain();
        break;
      case "close":
        this.#close();
        break;
      default:
        assertNever(message);
    }
  }

  #page(page: Page): Promise<string> {
    const id = this.#nextPage;
    this.#nextPage += 1;
    return new Promise((resolve) => {
      this.#pages.set(id, resolve);
      this.#post({ kind: "page", id, page });
    });
  }

  /** Closes everything that keeps the thread alive. */
  #close(): void {
    this.#listeners.stop();
    clearInterval(this.#timer);
    this.#engine.close("drain");
    setImmediate(() => {
      this.#engine.flush();
      this.#outbox.flush();
      closeReactor();
      this.#port.close();
    });
  }

  #bug(error: unknown): void {
    const stack = error instanceof Error ? (error.stack ?? "") : "";
    this.#post({ kind: "bug", text: `${describeError(error)}\n${stack}` });
  }

  #post(message: FromWorker): void {
    this.#port.postMessage(message);
  }
}

/**
 * The listeners that several threads share. Those for pods and of transparent mode are not shared, because they have few clients, and pods'
 * listeners need secrets.
 */
function sharedListeners({ listeners }: Settings): Settings["listeners"] {
  return listeners.filter(({ role }) => role === "host");
}

if (parentPort !== null) new WorkerProxy(parentPort, workerData as WorkerInit);
