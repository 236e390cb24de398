import type { Clock } from "#base/clock";
import { GrpcCode } from "#wire/grpc";
import type { TunnelId } from "#wire/konnectivity";
import { type DialFailure, DialledConnection, type DialObserver } from "../dial/dialled-connection.ts";
import { DialWait } from "../link/session.ts";
import type { LocalSide } from "../local/local-side.ts";
import type { Backend, Backends } from "./backends.ts";

/** The callbacks by which a dial learns the outcome at one of its agents. */
export interface TryOwner {
  tryOpened(one: DialTry, connectID: TunnelId): void;
  /** The agent will not open the connection. {@link tryClosed} follows. */
  tryFailed(one: DialTry, failure: DialFailure): void;
  /** The answer is late (docs/spec/tunnel.md#7.5). The dial still waits for it. */
  tryOverdue(one: DialTry): void;
  tryClosed(one: DialTry): void;
}

export interface DialTryOptions {
  readonly backends: Backends;
  readonly clock: Clock;
  readonly request: { readonly protocol: string; readonly address: string; readonly random: TunnelId };
  /** The host of the address in canonical form. */
  readonly host: string;
  readonly local: LocalSide;
  readonly localHalfClose: boolean;
  readonly timeoutMs: number;
  readonly halfCloseTimeoutMs: number;
  readonly closeLingerMs: number | undefined;
}

/** The state of a try that waits for its answer. */
interface Waiting {
  readonly backends: Backends;
  readonly backend: Backend;
  readonly wait: DialWait;
  /** The number of bytes that the agent's stream had sent before the dial. */
  readonly sentBefore: number;
  isOverdue: boolean;
  /** Ends the watch for an answer that is late. */
  cancel: () => void;
}

/**
 * A dial at one agent. A dial that another agent has won waits on until its answer is late, so that an agent that answers nothing is known
 * by it; a connection that it opens then is closed at once.
 */
export class DialTry implements DialObserver {
  readonly #owner: TryOwner;
  #waiting: Waiting | undefined;
  #connection: DialledConnection | undefined;
  #isSuperseded = false;

  private constructor(owner: TryOwner, waiting: Waiting) {
    this.#owner = owner;
    this.#waiting = waiting;
  }

  /** Sends the dial. If the agent's link does not take it, returns why, and the owner is not called. */
  static start(backend: Backend, owner: TryOwner, options: DialTryOptions): DialTry | "duplicate" | "limit" | "closed" {
    const { backends, clock, host } = options;
    const waiting: Waiting = {
      ...{ backends, backend, isOverdue: false, cancel: () => undefined },
      wait: new DialWait(backend.pulse, clock),
      sentBefore: backend.mux.bytesSent,
    };
    const one = new DialTry(owner, waiting);
    const connection = DialledConnection.dial(backend.mux, options.request, {
      ...{ observer: one, clock, local: options.local, localHalfClose: options.localHalfClose },
      ...{ dialTimeoutMs: options.timeoutMs, halfCloseTimeoutMs: options.halfCloseTimeoutMs },
      closeLingerMs: options.closeLingerMs,
    });
    if (!(connection instanceof DialledConnection)) return connection;
    // A link may end by the dial itself, when too much waits for it.
    if (connection.state === "closed") return "closed";
    one.#connection = connection;
    const { mark } = backend.health;
    waiting.cancel = clock.after(backend.answerMs, () => one.#overdue(host, mark), { unref: true });
    return one;
  }

  get connection(): DialledConnection | undefined {
    return this.#connection;
  }

  get isOverdue(): boolean {
    return this.#waiting?.isOverdue ?? false;
  }

  onOpen(connectID: TunnelId): void {
    this.#owner.tryOpened(this, connectID);
  }

  onAnswered(): void {
    const { backends, backend } = this.#waiting ?? {};
    this.#settle();
    if (backend !== undefined) backends?.answered(backend);
  }

  onFailed(failure: DialFailure): void {
    if (failure.kind === "timeout") this.timedOut();
    this.#settle();
    this.#owner.tryFailed(this, failure);
  }

  onClosed(): void {
    // KAS gives up before the time-out of this side.
    if (!this.#isSuperseded) this.#waiting?.wait.givenUp();
    this.#settle();
    if (!this.#isSuperseded) this.#owner.tryClosed(this);
  }

  /** The dial is over without this agent's answer, which is waited for no longer. */
  withdraw(): void {
    this.#connection?.onLocalGone();
  }

  /** Another agent has answered first. */
  supersede(): void {
    this.#isSuperseded = true;
    if (this.isOverdue) this.withdraw();
    else this.#connection?.supersede();
  }

  /** Nobody waits for the answer any longer. A peer that has sent nothing since is asked whether it lives, and a stream that has taken no byte since ends: the agent connects again (docs/spec/tunnel.md#5.4). */
  timedOut(): void {
    if (this.#waiting === undefined) return;
    const { backend, wait, sentBefore } = this.#waiting;
    const { mux } = backend;
    this.#settle();
    if (!mux.isClosed && mux.queuedBytes > 0 && mux.bytesSent <= sentBefore) {
      backend.isDraining = true;
      mux.destroy({ code: GrpcCode.unavailable, message: "the agent accepts no packets" });
    }
    wait.timedOut();
  }

  #overdue(host: string, mark: number): void {
    if (this.#waiting === undefined) return;
    const { backends, backend } = this.#waiting;
    this.#waiting.isOverdue = true;
    backends.overdue(backend, host, mark);
    if (!this.#isSuperseded) {
      this.#owner.tryOverdue(this);
      return;
    }
    this.timedOut();
    this.withdraw();
  }

  #settle(): void {
    this.#waiting?.cancel();
    this.#waiting = undefined;
  }
}
