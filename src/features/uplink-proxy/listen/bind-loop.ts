import { Backoff, Dirty } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import type { Logger } from "#base/log";
import { TokenBucket } from "#base/rate-limit";
import { keepListening } from "#base/reconcile";
import type { ListenerSettings } from "#base/uplink-model";
import { KernelError } from "#kernel/errors";
import type { TcpStreams } from "#kernel/reactor";
import { type Endpoint, listenTcp } from "#kernel/socket";
import { listenText } from "../stats/index.ts";

/** Pauses after failures in a row (docs/spec/uplink-proxy.md#4). */
const RETRY = { initialMs: 1000, maxMs: 30_000, jitter: 0 };
/** Time between two checks of a listener that is bound, in milliseconds: its end wakes the loop. */
const IDLE_MS = 3_600_000;
/** Maximum rate of log lines about clients that could not be accepted. */
const FAULTS_PER_SECOND = 0.1;
/** Pause before a listener that was bound and ended is bound again, in milliseconds. */
const AGAIN_MS = 5000;

/** Dependencies of a listener. */
export interface BindLoopDeps {
  /** The implementation of accepting clients. */
  readonly streams: Pick<TcpStreams, "listen">;
  readonly log: Logger;
  readonly clock: Clock;
  /** Called for each accepted client, with its connected descriptor, which the callee then owns. */
  readonly onClient: (fd: number, remote: Endpoint, listener: ListenerSettings) => void;
  /** Called when the listener listens. */
  readonly onBound?: () => void;
  /** Makes a listening descriptor if the usual socket is not suitable; throws {@link KernelError} if that fails. */
  readonly openFd?: (listener: ListenerSettings) => number;
}

/** Options of a listener. */
export interface BindLoopOptions {
  readonly backlog: number;
  /** True if several threads accept at the same address. */
  readonly reusePort: boolean;
}

/** A listener that was bound has ended. */
class ListenerEnded extends ExpectedError<"ended"> {
  override readonly name = "ListenerEnded";
}

/**
 * Listens on exactly one address, and tries again without end if that fails: a busy port, or an address that does not exist yet, never ends
 * the program (docs/spec/uplink-proxy.md#4).
 */
export class BindLoop {
  readonly listener: ListenerSettings;
  readonly #deps: BindLoopDeps;
  readonly #options: BindLoopOptions;
  readonly #retry: Dirty;
  readonly #faults: TokenBucket;
  #server: { close(): void } | undefined;
  /** The end of the last listener, until it is logged. */
  #ended: ListenerEnded | undefined;

  constructor(listener: ListenerSettings, deps: BindLoopDeps, options: BindLoopOptions) {
    this.listener = listener;
    this.#deps = deps;
    this.#options = options;
    this.#retry = new Dirty(deps.clock);
    this.#faults = new TokenBucket({ ratePerSecond: FAULTS_PER_SECOND, burst: 1, clock: deps.clock });
  }

  get isBound(): boolean {
    return this.#server !== undefined;
  }

  /** Tries again at once. Call when the address may have been assigned. */
  retryNow(): void {
    if (!this.isBound) this.#retry.mark("address");
  }

  /** Runs until the signal aborts; after that it does not listen any more. Accepted clients stay connected. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    try {
      await keepListening({
        ...{ signal, clock: this.#deps.clock, dirty: this.#retry, everyMs: IDLE_MS },
        backoff: new Backoff(RETRY),
        // The failures of a bind count from the last success on.
        retryAfterMs: (error) => (error instanceof ListenerEnded ? AGAIN_MS : undefined),
        onFailure: (error) => this.#logFailure(error instanceof ListenerEnded ? error.cause : error),
        isListening: () => this.isBound,
        listen: () => this.#listen(),
      });
    } finally {
      this.#close();
    }
  }

  /** Throws {@link KernelError} if the address cannot be bound, and {@link ListenerEnded} once after a listener has ended. */
  #listen(): void {
    const ended = this.#ended;
    this.#ended = undefined;
    if (ended !== undefined) throw ended;
    this.#server = this.#deps.streams.listen(this.#bind(), {
      onClient: (fd, remote) => this.#deps.onClient(fd, remote, this.listener),
      onFault: (error) => this.#logFault(error),
      onError: (error) => this.#onEnd(error),
    });
    this.#logSuccess();
    this.#deps.onBound?.();
  }

  #onEnd(cause: KernelError): void {
    this.#close();
    this.#ended = new ListenerEnded("ended", cause.message, { cause });
    this.#retry.mark("listener ended");
  }

  #close(): void {
    this.#server?.close();
    this.#server = undefined;
  }

  #bind(): number {
    const { address, port } = this.listener;
    const { backlog, reusePort } = this.#options;
    return this.#deps.openFd?.(this.listener) ?? listenTcp(address, port, { backlog, reusePort, noDelay: true });
  }

  #logSuccess(): void {
    const { role, interface: device } = this.listener;
    const where = listenText(this.listener);
    const text = role === "pod" ? `${device ?? "cni0"} listener on ${where}` : `listening on ${where}`;
    this.#deps.log.info(`mgmtproxy: ${text}`);
  }

  #logFault(error: KernelError): void {
    if (this.#faults.tryTake()) this.#deps.log.warn(`mgmtproxy: ${listenText(this.listener)}: ${error.message}`);
  }

  /** The address of a pod listener is normally missing for minutes, which is logged at level debug. */
  #logFailure(error: unknown): void {
    const reason = describeError(error);
    const text = `mgmtproxy: listen ${listenText(this.listener)} failed (will retry): ${reason}`;
    const isAwaited = this.listener.role === "pod" && error instanceof KernelError && error.errno === "EADDRNOTAVAIL";
    if (isAwaited) this.#deps.log.debug(text);
    else this.#deps.log.error(text);
  }
}
