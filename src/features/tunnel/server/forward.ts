import type { Clock } from "#base/clock";
import type { TunnelId } from "#wire/konnectivity";
import type { DialFailure, DialledConnection } from "../dial/dialled-connection.ts";
import type { LocalHandlers, LocalSide } from "../local/local-side.ts";
import { MAX_ADDRESS_LENGTH } from "../mux/options.ts";
import type { Backend, Backends } from "./backends.ts";
import { DialTry, type TryOwner } from "./dial-try.ts";
import { judgeTry } from "./judge-try.ts";
import type { ServerMetrics } from "./metrics.ts";
import { destinationHost } from "./strategies.ts";

/** The dial timeout if none is set, in milliseconds. */
const DIAL_CEILING_MS = 60_000;

/** A dial of a frontend. */
export interface ForwardRequest {
  readonly protocol: string;
  readonly address: string;
  readonly random: TunnelId;
  readonly local: LocalSide;
  readonly localHalfClose: boolean;
}

/** The reason why the dial of a frontend failed. */
export type ForwardFailure =
  | DialFailure
  /** No strategy has an agent for the destination. */
  | { readonly kind: "no-agent" }
  /** A dial with the same `random` is pending on the agent's stream. */
  | { readonly kind: "duplicate" }
  /** There are too many dials or connections, or too many bytes are buffered. */
  | { readonly kind: "limit" }
  /** The server does not know the protocol. */
  | { readonly kind: "protocol" }
  /** The address is longer than any host and port. */
  | { readonly kind: "address" };

export interface ForwardOptions {
  /** Limit of the time from DIAL_REQ to DIAL_RSP, all attempts together, in milliseconds. 0: 60 s. */
  readonly backendDialTimeoutMs: number;
  readonly halfCloseTimeoutMs: number;
  /** See `DialledConnectionOptions.closeLingerMs`. */
  readonly closeLingerMs?: number | undefined;
}

/** The events of a dial of a frontend, as those of {@link DialObserver}. */
export interface ForwardObserver {
  onConnected(connectID: TunnelId): void;
  onDialFailed(failure: ForwardFailure): void;
  /** Called once, also after a failed dial. */
  onDisconnected(): void;
}

/** The collaborators of a frontend. */
export interface FrontendDeps {
  readonly forwarder: Forwarder;
  readonly metrics: ServerMetrics;
  readonly clock: Clock;
  /** The time for which the last bytes of a frontend that has closed wait for an endpoint that takes none of them, in milliseconds. Default: 10 s. */
  readonly closeLingerMs?: number | undefined;
}

/** The dial of a frontend and then its connection, as the frontend uses it. */
export type ForwardedDial = Pick<DialledConnection, "close" | keyof LocalHandlers>;

/** Maximum of agents that a dial is sent to. */
const MAX_ATTEMPTS = 3;
/** A dial that has had no answer for so long, in milliseconds, is sent to another agent too (docs/spec/tunnel.md#7.6). */
const SECOND_TRY_MS = 2000;

/** Connects frontends with agents: chooses a backend, dials over it, counts the outcome (docs/spec/tunnel.md#5.1, #7). */
export class Forwarder {
  readonly #deps: DialAttemptsDeps;
  #accepting = true;

  constructor(
    deps: { readonly backends: Backends; readonly clock: Clock; readonly metrics: ServerMetrics },
    options: ForwardOptions,
  ) {
    this.#deps = { ...deps, options, isAccepting: () => this.#accepting };
  }

  /** From now on every dial fails with `no-agent`. */
  stop(): void {
    this.#accepting = false;
  }

  /** Starts a dial. Returns `undefined` if the dial has failed; the observer was then notified. */
  dial(request: ForwardRequest, observer: ForwardObserver): ForwardedDial | undefined {
    const kind = request.protocol === "tcp" ? "address" : "protocol";
    if (kind === "protocol" || request.address.length > MAX_ADDRESS_LENGTH) {
      observer.onDialFailed({ kind });
      observer.onDisconnected();
      return undefined;
    }
    const attempts = new DialAttempts(request, observer, this.#deps);
    return attempts.start() ? attempts : undefined;
  }
}

interface DialAttemptsDeps {
  readonly backends: Backends;
  readonly clock: Clock;
  readonly metrics: ServerMetrics;
  readonly options: ForwardOptions;
  readonly isAccepting: () => boolean;
}

/** The state of a dial until it is open or has failed. */
interface PendingDial {
  readonly request: ForwardRequest;
  /** The agents' streams that it was sent to. */
  readonly tried: Backend[];
  /** Those of them that have not answered, in the order in which it was sent. */
  live: readonly DialTry[];
  /** The error of a second agent, until the first one has had its time. */
  held: DialFailure | undefined;
  /** Ends the wait for the second try; absent once it was made. */
  cancelSecond: (() => void) | undefined;
}

/**
 * One dial of a frontend. After a link that is lost before its answer, which has carried no byte of the connection, it is sent to another agent;
 * and once to another one beside the first that has not answered for a while. Updates gauges and counters, however the connection ends.
 */
class DialAttempts implements ForwardedDial, TryOwner {
  readonly #observer: ForwardObserver;
  readonly #deps: DialAttemptsDeps;
  #pending: PendingDial | undefined;
  #state: "dialing" | "open" | "failed" = "dialing";
  /** When the dial began, and once it is open, when it opened: `Clock.monotonic` milliseconds. */
  #since: number;
  /** The connection; while there are several, the first one. */
  #current: DialledConnection | undefined;

  constructor(request: ForwardRequest, observer: ForwardObserver, deps: DialAttemptsDeps) {
    this.#pending = { request, tried: [], live: [], held: undefined, cancelSecond: undefined };
    this.#observer = observer;
    this.#deps = deps;
    this.#since = deps.clock.monotonic();
  }

  close(): void {
    this.#withdrawOthers();
    this.#current?.close();
  }

  onLocalGone(): void {
    this.#withdrawOthers();
    this.#current?.onLocalGone();
  }

  onLocalEof(): void {
    this.#withdrawOthers();
    this.#current?.onLocalEof();
  }

  onLocalData(pieces: readonly Uint8Array[]): void {
    this.#current?.onLocalData(pieces);
  }

  /** Starts dialling. Returns false if the dial has failed; the observer was then notified. */
  start(): boolean {
    const { clock, metrics } = this.#deps;
    const outcome = this.#next();
    if (outcome === "dialing") {
      metrics.pendingDials(1);
      if (this.#pending !== undefined) {
        this.#pending.cancelSecond = clock.after(SECOND_TRY_MS, () => this.#second(), { unref: true });
      }
      return true;
    }
    if (outcome === "no-agent") metrics.dialFailed("no_agent");
    this.#observer.onDialFailed({ kind: outcome });
    this.#observer.onDisconnected();
    return false;
  }

  tryOpened(one: DialTry, connectID: TunnelId): void {
    const { clock, metrics } = this.#deps;
    const opened = clock.monotonic();
    metrics.pendingDials(-1);
    metrics.dialLatency((opened - this.#since) / 1000);
    metrics.established(1);
    const live = this.#pending?.live ?? [];
    this.#pending?.cancelSecond?.();
    this.#pending = undefined;
    this.#state = "open";
    this.#since = opened;
    this.#current = one.connection;
    for (const other of live) if (other !== one) other.supersede();
    this.#observer.onConnected(connectID);
  }

  tryFailed(one: DialTry, failure: DialFailure): void {
    const pending = this.#pending;
    const at = pending?.live.indexOf(one) ?? -1;
    if (pending === undefined || at < 0) return;
    pending.live = pending.live.toSpliced(at, 1);
    const verdict = judgeTry(failure.kind, {
      earlierOwes: pending.live.slice(0, at).some(({ isOverdue }) => !isOverdue),
      othersWait: pending.live.length > 0,
      holdsError: pending.held !== undefined,
    });
    if (verdict === "hold") pending.held ??= failure;
    else if (verdict === "move") {
      if (this.#next() !== "dialing") this.#fail(failure);
    } else if (verdict !== "wait") {
      this.#fail(verdict === "fail-held" ? (pending.held ?? failure) : failure);
    }
    if (this.#pending !== undefined) this.#current = pending.live[0]?.connection;
  }

  tryOverdue(one: DialTry): void {
    const { live = [], held } = this.#pending ?? {};
    const earlierOwes = live.slice(0, live.indexOf(one)).some(({ isOverdue }) => !isOverdue);
    const verdict = judgeTry("overdue", { earlierOwes, othersWait: live.length > 1, holdsError: held !== undefined });
    if (verdict === "fail-held" && held !== undefined) this.#fail(held);
  }

  tryClosed(one: DialTry): void {
    if (one.connection !== this.#current) return;
    const { clock, metrics } = this.#deps;
    if (this.#state === "open") {
      metrics.established(-1);
      metrics.connectionDuration((clock.monotonic() - this.#since) / 1000);
    } else if (this.#pending?.live.includes(one) === true) {
      this.#state = "failed";
      this.#pending.cancelSecond?.();
      this.#pending = undefined;
      metrics.pendingDials(-1);
      metrics.dialFailed("frontend_close");
    } else {
      return;
    }
    this.#observer.onDisconnected();
  }

  /** The dial has failed, for all agents. */
  #fail(failure: DialFailure): void {
    const { metrics } = this.#deps;
    const live = this.#pending?.live ?? [];
    this.#pending?.cancelSecond?.();
    this.#pending = undefined;
    this.#state = "failed";
    for (const other of live) {
      if (failure.kind === "timeout") {
        other.timedOut();
        other.withdraw();
      } else {
        other.supersede();
      }
    }
    metrics.pendingDials(-1);
    metrics.dialFailed(REASONS[failure.kind]);
    this.#observer.onDialFailed(failure);
    this.#observer.onDisconnected();
  }

  /** The frontend ends: only the first agent's connection is told so by the caller. */
  #withdrawOthers(): void {
    const pending = this.#pending;
    if (pending === undefined) return;
    const [first, ...others] = pending.live;
    pending.live = first === undefined ? [] : [first];
    for (const other of others) other.withdraw();
  }

  /** Dials over one more agent. If that agent's stream has just ended but is still among the backends, the next agent is tried. */
  #next(): "dialing" | "no-agent" | "duplicate" | "limit" {
    const { backends, isAccepting } = this.#deps;
    const pending = this.#pending;
    while (pending !== undefined && pending.tried.length < MAX_ATTEMPTS && isAccepting()) {
      const backend = backends.pick(pending.request.address, pending.tried);
      if (backend === undefined) break;
      const outcome = this.#dialOver(backend, pending);
      if (outcome !== "closed") return outcome;
    }
    return "no-agent";
  }

  /** Dials over another agent beside the first one. Nothing is lost if that is not possible. */
  #second(): void {
    const { backends, isAccepting } = this.#deps;
    const pending = this.#pending;
    if (pending === undefined) return;
    pending.cancelSecond = undefined;
    if (pending.tried.length >= MAX_ATTEMPTS || !isAccepting()) return;
    const backend = backends.pickSecond(pending.request.address, pending.tried);
    if (backend !== undefined) this.#dialOver(backend, pending);
  }

  #dialOver(backend: Backend, pending: PendingDial): "dialing" | "duplicate" | "limit" | "closed" {
    const { backends, clock, options } = this.#deps;
    const { protocol, address, random, local, localHalfClose } = pending.request;
    pending.tried.push(backend);
    const leftMs = (options.backendDialTimeoutMs || DIAL_CEILING_MS) - (clock.monotonic() - this.#since);
    const one = DialTry.start(backend, this, {
      ...{ backends, clock, local, localHalfClose, host: destinationHost(address) },
      request: { protocol, address, random },
      timeoutMs: Math.max(1, leftMs),
      halfCloseTimeoutMs: options.halfCloseTimeoutMs,
      closeLingerMs: options.closeLingerMs,
    });
    if (!(one instanceof DialTry)) return one;
    pending.live = [...pending.live, one];
    this.#current = pending.live[0]?.connection;
    return "dialing";
  }
}

const REASONS = {
  refused: "error_response",
  aborted: "backend_close",
  "link-lost": "backend_close",
  timeout: "backend_dial_timeout",
} as const;
