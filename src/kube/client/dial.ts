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
  /** Index of the target of the first try. Default 0. */
  readonly first?: number | undefined;
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

/** A connection, the index of its target, and the number of tries that had begun when it was made. */
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

/** The tries of one call; at most {@link TRY_MS} / half of {@link DIAL_EVERY_MS} of them concurrently. */
class Dial {
  readonly #options: DialOptions;
  readonly #clock: Clock;
  readonly #open = new Set<Socket>();
  readonly #outcome = Promise.withResolvers<Dialled>();
  readonly #onAbort = (): void => this.#fail(this.#options.signal.reason);
  #cancelNext: () => void = () => undefined;
  #tries = 0;
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

  #try(): void {
    const { targets, first = 0, random = Math.random, open = connect } = this.#options;
    const target = (first + this.#tries) % targets.length;
    const { host, port } = targets[target] ?? { host: "", port: 0 };
    this.#tries += 1;
    this.#cancelNext();
    this.#cancelNext = this.#clock.after(DIAL_EVERY_MS * (1 - 0.5 * random()), () => this.#try());
    const socket = open({ host, port });
    this.#open.add(socket);
    const cancelLimit = this.#clock.after(TRY_MS, () =>
      socket.destroy(Object.assign(new Error(`connect ETIMEDOUT ${host}:${port}`), { code: "ETIMEDOUT" })),
    );
    socket.once("close", cancelLimit);
    socket.once("error", (error) => {
      this.#open.delete(socket);
      if (this.#isOver) return;
      if (this.#tries < targets.length) this.#try();
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
