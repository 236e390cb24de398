import { connect, type Socket } from "node:net";
import type { Clock } from "#base/clock";

/** While earlier tries have no answer or were refused, the next try begins after at most this time, in milliseconds. */
export const DIAL_EVERY_MS = 1000;
/** The timeout of one try, in milliseconds: on a usable path an answer takes less time. */
const TRY_MS = 3000;

/** With `patient`, a try has succeeded if its connection was not closed during this time, in milliseconds. */
const SETTLED_MS = 50;

/** An address to which a dial connects. */
export interface DialTarget {
  readonly host: string;
  readonly port: number;
}

/** The targets and the options of a dial. */
export interface DialOptions {
  /** At least one. Each try goes to the next one. */
  readonly targets: readonly DialTarget[];
  /** Further targets, which are tried after those. As there may be many of them, the next one of `targets` is tried beside them, at most each half second. Default: none. */
  readonly beside?: readonly DialTarget[] | undefined;
  /**
   * If true, the dial continues after a refusal, until the signal aborts. A connection that is closed at once, as by a load balancer
   * without a backend, is a refusal too. Default: the dial rejects when a try fails while no other try is running and each target was tried.
   */
  readonly isPatient?: boolean;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  readonly random?: (() => number) | undefined;
  /** Opens one socket, which then connects. Default: TCP. */
  readonly open?: ((at: { readonly host: string; readonly port: number }) => Socket) | undefined;
}

/** A connection, the index of its target among `targets` and then `beside`, and the number of tries that had begun when it was made; tries of `targets` beside others do not count. */
export interface Dialled {
  readonly socket: Socket;
  readonly target: number;
  readonly tries: number;
}

/**
 * Connects with one try in each second, half of it random, so that a server that starts again is reached within a second, and with the next target at once after a
 * refusal: the kernel would retry only after 1, 2, 4, 8 and more seconds. Tries overlap, so that a slow path can still connect; the first connection is used. Rejects
 * with the last try's error, or the signal's reason.
 */
export function dial(options: DialOptions): Promise<Dialled> {
  return new Dial(options).done;
}

/** The tries of one call; at most {@link TRY_MS} / half of {@link DIAL_EVERY_MS} of them concurrently, and as many of `targets` beside others. */
class Dial {
  readonly #options: DialOptions;
  readonly #clock: Clock;
  readonly #open = new Set<Socket>();
  readonly #outcome = Promise.withResolvers<Dialled>();
  readonly #onAbort = (): void => this.#fail(this.#options.signal.reason);
  #cancelNext: () => void = () => undefined;
  #tries = 0;
  /** The next one of `targets` to be tried beside another target, and when one was tried last, in milliseconds of the monotonic clock. */
  #preferred = { next: 0, at: Number.NEGATIVE_INFINITY };
  #isOver = false;

  constructor(options: DialOptions) {
    this.#options = options;
    this.#clock = options.clock;
    if (options.signal.aborted) {
      this.#outcome.reject(options.signal.reason);
      return;
    }
    options.signal.addEventListener("abort", this.#onAbort, { once: true });
    this.#try();
  }

  get done(): Promise<Dialled> {
    return this.#outcome.promise;
  }

  get #count(): number {
    return this.#options.targets.length + (this.#options.beside?.length ?? 0);
  }

  /** Begins the next try, and arms the one after it. */
  #try(): void {
    const { targets, random = Math.random } = this.#options;
    const next = this.#tries % this.#count;
    this.#tries += 1;
    this.#cancelNext();
    this.#cancelNext = this.#clock.after(DIAL_EVERY_MS * (1 - 0.5 * random()), () => this.#try());
    this.#connect(next);
    const now = this.#clock.monotonic();
    if (next < targets.length) this.#preferred = { next: next + 1, at: now };
    else if (now - this.#preferred.at >= DIAL_EVERY_MS / 2) {
      const { next: beside } = this.#preferred;
      this.#preferred = { next: beside + 1, at: now };
      this.#connect(beside % targets.length);
    }
  }

  #connect(target: number): void {
    const { targets, beside = [], open = connect } = this.#options;
    const { host, port } = targets[target] ?? beside[target - targets.length] ?? { host: "", port: 0 };
    const socket = open({ host, port });
    this.#open.add(socket);
    const cancelLimit = this.#clock.after(TRY_MS, () =>
      socket.destroy(Object.assign(new Error(`connect ETIMEDOUT ${host}:${port}`), { code: "ETIMEDOUT" })),
    );
    socket.once("close", cancelLimit);
    socket.once("error", (error) => {
      this.#open.delete(socket);
      if (this.#isOver) return;
      if (this.#tries < this.#count) this.#try();
      // While other tries are open, one of them may still connect.
      else if (this.#options.isPatient !== true && this.#open.size === 0) this.#fail(error);
    });
    socket.once("connect", () => {
      cancelLimit();
      if (this.#options.isPatient !== true) {
        this.#succeed(socket, target);
        return;
      }
      const cancelSettling = this.#clock.after(SETTLED_MS, () => this.#succeed(socket, target));
      socket.once("close", () => {
        cancelSettling();
        this.#open.delete(socket);
      });
    });
  }

  #succeed(socket: Socket, target: number): void {
    this.#open.delete(socket);
    this.#end();
    this.#outcome.resolve({ socket, target, tries: this.#tries });
  }

  #fail(error: unknown): void {
    this.#end();
    this.#outcome.reject(error);
  }

  #end(): void {
    this.#isOver = true;
    this.#cancelNext();
    this.#options.signal.removeEventListener("abort", this.#onAbort);
    for (const socket of this.#open) socket.destroy();
    this.#open.clear();
  }
}
