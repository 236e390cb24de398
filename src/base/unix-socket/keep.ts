import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import type { HealthPart } from "#base/health";
import type { Logger } from "#base/log";
import { keepListening } from "#base/reconcile";
import { fileIdentity } from "./identity.ts";

/** The time between two checks of the socket's file, in milliseconds. A check takes some 5 µs. */
const CHECK_MS = 500;

export interface KeepSocketOptions {
  readonly path: string;
  /** `ok` while the server listens on the path, `degraded` with the reason while it cannot. */
  readonly health: HealthPart;
  readonly log: Logger;
  readonly clock: Clock;
  /** Receives an error of `serve` that is not an {@link ExpectedError}; the socket is not kept any more then. It should end the program. */
  readonly onBug: (error: unknown) => void;
  /** True: a failure of the first try is reported as a later one would be, and tried again. Default: it rejects. */
  readonly mayStartWithout?: boolean;
}

/**
 * Keeps a server listening on a path until disposed: when the socket's file is removed, or replaced by another file, the server is closed, and
 * `serve` is called again within a second, and then twice a second until it succeeds. `serve` claims the path and listens on it, so a file that
 * another live process put there stays, and is the reason of `degraded`. A server that is closed ends its running calls in its own time;
 * disposing waits for all of them. Rejects as `serve` does.
 */
export async function keepSocket(
  serve: () => Promise<AsyncDisposable>,
  options: KeepSocketOptions,
): Promise<KeptSocket> {
  const kept = new KeptSocket(serve, options);
  try {
    await kept.open();
  } catch (error) {
    if (options.mayStartWithout !== true || !(error instanceof ExpectedError)) throw error;
    options.health.degraded(error);
  }
  kept.start();
  return kept;
}

/** A socket that is kept. */
export class KeptSocket implements AsyncDisposable {
  readonly #serve: () => Promise<AsyncDisposable>;
  readonly #options: KeepSocketOptions;
  readonly #stop = new AbortController();
  /** Servers that lost their file, until their calls have ended. */
  readonly #closing = new Set<Promise<void>>();
  #server: AsyncDisposable | undefined;
  #identity: string | undefined;
  /** True after the file was lost, until the server listens again. */
  #isLost = false;
  #checks: Promise<void> = Promise.resolve();

  constructor(serve: () => Promise<AsyncDisposable>, options: KeepSocketOptions) {
    this.#serve = serve;
    this.#options = options;
  }

  async open(): Promise<void> {
    const { path, health } = this.#options;
    this.#server = await this.#serve();
    this.#identity = fileIdentity(path);
    health.ok(path);
  }

  start(): void {
    this.#checks = this.#check(this.#stop.signal).catch(this.#options.onBug);
  }

  /** Begins to dispose; a failure is reported as a bug. Idempotent. */
  stop(): void {
    this[Symbol.asyncDispose]().catch(this.#options.onBug);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#checks;
    this.#close();
    await Promise.all(this.#closing);
  }

  async #check(signal: AbortSignal): Promise<void> {
    const { health, clock } = this.#options;
    await keepListening({
      ...{ signal, clock, everyMs: CHECK_MS, isListening: () => this.#isListening, listen: () => this.#listen() },
      onFailure: (error) => health.degraded(error),
    });
  }

  /** Listens again. */
  async #listen(): Promise<void> {
    if (this.#server !== undefined) this.#isLost = true;
    this.#close();
    await this.open();
    const { path, log } = this.#options;
    if (this.#isLost) log.warn("listening again: the file of the socket was removed or replaced", { socket: path });
    this.#isLost = false;
  }

  get #isListening(): boolean {
    return (
      this.#server !== undefined && this.#identity !== undefined && fileIdentity(this.#options.path) === this.#identity
    );
  }

  /** Begins to close the server, if there is one. It leaves the path at once. */
  #close(): void {
    const server = this.#server;
    if (server === undefined) return;
    this.#server = undefined;
    const closing = disposed(server)
      .catch(this.#options.onBug)
      .finally(() => this.#closing.delete(closing));
    this.#closing.add(closing);
  }
}

async function disposed(server: AsyncDisposable): Promise<void> {
  await server[Symbol.asyncDispose]();
}
