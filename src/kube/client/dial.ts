import { connect, type Socket } from "node:net";
import type { Clock } from "#base/clock";

/** While earlier tries have no answer or were refused, the next try begins after at most this time, in milliseconds. */
export const DIAL_EVERY_MS = 1000;
/** The timeout of one try, in milliseconds: on a usable path an answer takes less time. */
const TRY_MS = 3000;

/** With `patient`, a try has succeeded if its connection was not closed during this time, in milliseconds. */
const SETTLED_MS = 50;

/** The target and the options of a dial. */
export interface DialOptions {
  readonly host: string;
  readonly port: number;
  /**
   * If true, the dial continues after a refusal, until the signal aborts. A connection that is closed at once, as by a load balancer
   * without a backend, is a refusal too. Default: the dial rejects when a try fails while no other try is running.
   */
  readonly isPatient?: boolean;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  readonly random?: (() => number) | undefined;
  /** Opens one socket, which then connects. Default: TCP. */
  readonly open?: ((at: { readonly host: string; readonly port: number }) => Socket) | undefined;
}

/** A connection, and the number of tries that had begun when it was made. */
export interface Dialled {
  readonly socket: Socket;
  readonly tries: number;
}

/**
 * Connects with one try in each second, half of it random, so that a server that starts again is reached within a second: the kernel would
 * retry only after 1, 2, 4, 8 and more seconds. Tries overlap, so that a slow path can still connect; the first connection is used. Rejects
 * with the last try's error, or the signal's reason.
 */
export function dial(options: DialOptions): Promise<Dialled> {
  return new Dial(options).done;
}

/** The tries of one call; at most {@link TRY_MS} / half of {@link DIAL_EVERY_MS} of them concurrently. */
class Dial {
  readonly #options: DialOptions;
  readonly #clock: Clock;
  readonly #open = new Set<Socket>();
  readonly #outcome = Promise.withResolvers<Dialled>();
  readonly #onAbort = (): void => this.#fail(this.#options.signal.reason);
  #cancelNext: () => void = () => undefined;
  #tries = 0;

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

  #try(): void {
    const { host, port, random = Math.random, open = connect } = this.#options;
    this.#tries += 1;
    this.#cancelNext = this.#clock.after(DIAL_EVERY_MS * (1 - 0.5 * random()), () => this.#try());
    const socket = open({ host, port });
    this.#open.add(socket);
    const cancelLimit = this.#clock.after(TRY_MS, () =>
      socket.destroy(Object.assign(new Error(`connect ETIMEDOUT ${host}:${port}`), { code: "ETIMEDOUT" })),
    );
    socket.once("close", cancelLimit);
    socket.once("error", (error) => {
      this.#open.delete(socket);
      // While other tries are open, one of them may still connect.
      if (this.#options.isPatient !== true && this.#open.size === 0) this.#fail(error);
    });
    socket.once("connect", () => {
      cancelLimit();
      if (this.#options.isPatient !== true) {
        this.#succeed(socket);
        return;
      }
      const cancelSettling = this.#clock.after(SETTLED_MS, () => this.#succeed(socket));
      socket.once("close", () => {
        cancelSettling();
        this.#open.delete(socket);
      });
    });
  }

  #succeed(socket: Socket): void {
    this.#open.delete(socket);
    this.#end();
    this.#outcome.resolve({ socket, tries: this.#tries });
  }

  #fail(error: unknown): void {
    this.#end();
    this.#outcome.reject(error);
  }

  #end(): void {
    this.#cancelNext();
    this.#options.signal.removeEventListener("abort", this.#onAbort);
    for (const socket of this.#open) socket.destroy();
    this.#open.clear();
  }
}
