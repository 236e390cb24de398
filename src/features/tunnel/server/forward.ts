import type { Clock } from "#base/clock";
import { GrpcCode } from "#wire/grpc";
import type { TunnelId } from "#wire/konnectivity";
import { type DialFailure, DialledConnection, type DialObserver } from "../dial/dialled-connection.ts";
import { DialWait } from "../link/session.ts";
import type { LocalHandlers, LocalSide } from "../local/local-side.ts";
import { MAX_ADDRESS_LENGTH } from "../mux/options.ts";
import type { Backend, Backends } from "./backends.ts";
import type { ServerMetrics } from "./metrics.ts";

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
}

/** The events of a dial of a frontend, as those of {@link DialObserver}. */
export interface ForwardObserver {
  onConnected(connectID: TunnelId): void;
  onDialFailed(failure: ForwardFailure): void;
  /** Called once, also after a failed dial. */
  onDisconnected(): void;
}

/** What a frontend needs. */
export interface FrontendDeps {
  readonly forwarder: Forwarder;
  readonly metrics: ServerMetrics;
  readonly clock: Clock;
}

/** The dial of a frontend and then its connection, as the frontend uses it. */
export type ForwardedDial = Pick<DialledConnection, "close" | keyof LocalHandlers>;

/** Maximum of agents that a dial is sent to. The dial is sent to the next agent after the link of the one before was lost. */
const MAX_ATTEMPTS = 3;

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

/** What a dial needs until it is open, or has failed. */
interface PendingDial {
  readonly request: ForwardRequest;
  readonly tried: Backend[];
  /** What the last agent's stream had sent before the dial, in bytes. */
  sentBefore: number;
  /** The wait for the last agent's answer. */
  wait: DialWait | undefined;
}

/**
 * One dial of a frontend, over one agent after the other: a link that is lost before its answer has carried no byte of the connection, so
 * that the dial can be sent to another agent. Updates gauges and counters, however the connection ends.
 */
class DialAttempts implements ForwardedDial, DialObserver {
  readonly #observer: ForwardObserver;
  readonly #deps: DialAttemptsDeps;
  #pending: PendingDial | undefined;
  /** `moved`: a link was lost, and the dial goes on over another one. */
  #state: "dialing" | "moved" | "open" | "failed" = "dialing";
  /** When the dial began, and once it is open, when it opened: `Clock.monotonic` milliseconds. */
  #since: number;
  #current: DialledConnection | undefined;

  constructor(request: ForwardRequest, observer: ForwardObserver, deps: DialAttemptsDeps) {
    this.#pending = { request, tried: [], sentBefore: 0, wait: undefined };
    this.#observer = observer;
    this.#deps = deps;
    this.#since = deps.clock.monotonic();
  }

  close(): void {
    this.#current?.close();
  }

  onLocalGone(): void {
    this.#current?.onLocalGone();
  }

  onLocalEof(): void {
    this.#current?.onLocalEof();
  }

  onLocalData(pieces: readonly Uint8Array[]): void {
    this.#current?.onLocalData(pieces);
  }

  /** Starts dialling. Returns false if the dial has failed; the observer was then notified. */
  start(): boolean {
    const outcome = this.#next();
    if (outcome === "dialing") return true;
    if (outcome === "no-agent") this.#deps.metrics.dialFailed("no_agent");
    this.#observer.onDialFailed({ kind: outcome });
    this.#observer.onDisconnected();
    return false;
  }

  onOpen(connectID: TunnelId): void {
    const { clock, metrics } = this.#deps;
    const opened = clock.monotonic();
    metrics.pendingDials(-1);
    metrics.dialLatency((opened - this.#since) / 1000);
    metrics.established(1);
    this.#state = "open";
    this.#since = opened;
    this.#pending = undefined;
    this.#observer.onConnected(connectID);
  }

  onFailed(failure: DialFailure): void {
    const { metrics } = this.#deps;
    metrics.pendingDials(-1);
    if (failure.kind === "link-lost" && this.#next() === "dialing") {
      this.#state = "moved";
      return;
    }
    this.#state = "failed";
    metrics.dialFailed(REASONS[failure.kind]);
    if (failure.kind === "timeout") {
      this.#retireIfStuck();
      this.#pending?.wait?.timedOut();
    }
    this.#observer.onDialFailed(failure);
  }

  onClosed(): void {
    const { clock, metrics } = this.#deps;
    if (this.#state === "moved") {
      // The connection over the lost link has ended, and not the one that has replaced it.
      this.#state = "dialing";
      return;
    }
    if (this.#state === "open") {
      metrics.established(-1);
      metrics.connectionDuration((clock.monotonic() - this.#since) / 1000);
    } else if (this.#state === "dialing") {
      metrics.pendingDials(-1);
      metrics.dialFailed("frontend_close");
      // KAS gives up before the time-out of this side.
      this.#pending?.wait?.givenUp();
    }
    this.#observer.onDisconnected();
  }

  /** Dials over one more agent. If that agent's stream has just ended but is still among the backends, the next agent is tried. */
  #next(): "dialing" | "no-agent" | "duplicate" | "limit" {
    const { backends, isAccepting } = this.#deps;
    const pending = this.#pending;
    while (pending !== undefined && pending.tried.length < MAX_ATTEMPTS && isAccepting()) {
      const backend = backends.pick(pending.request.address, pending.tried);
      if (backend === undefined) break;
      pending.tried.push(backend);
      pending.sentBefore = backend.mux.bytesSent;
      pending.wait = new DialWait(backend.pulse, this.#deps.clock);
      const outcome = this.#dialOver(backend, pending.request);
      if (outcome !== "closed") return outcome;
    }
    return "no-agent";
  }

  #dialOver(
    backend: Backend,
    { protocol, address, random, local, localHalfClose }: ForwardRequest,
  ): "dialing" | "duplicate" | "limit" | "closed" {
    const { clock, metrics, options } = this.#deps;
    const leftMs = (options.backendDialTimeoutMs || DIAL_CEILING_MS) - (clock.monotonic() - this.#since);
    const dial = DialledConnection.dial(
      backend.mux,
      { protocol, address, random },
      {
        local,
        localHalfClose,
        observer: this,
        clock,
        dialTimeoutMs: Math.max(1, leftMs),
        halfCloseTimeoutMs: options.halfCloseTimeoutMs,
      },
    );
    if (!(dial instanceof DialledConnection)) return dial;
    this.#current = dial;
    metrics.pendingDials(1);
    return "dialing";
  }

  /**
   * Ends the last agent's stream if it has taken no byte since the dial was sent on it, though bytes wait. The agent connects again
   * (docs/spec/tunnel.md#5.4).
   */
  #retireIfStuck(): void {
    const backend = this.#pending?.tried.at(-1);
    if (backend === undefined) return;
    const { mux } = backend;
    if (mux.isClosed || mux.queuedBytes === 0 || mux.bytesSent > (this.#pending?.sentBefore ?? 0)) return;
    backend.isDraining = true;
    mux.destroy({ code: GrpcCode.unavailable, message: "the agent accepts no packets" });
  }
}

const REASONS = {
  refused: "error_response",
  aborted: "backend_close",
  "link-lost": "backend_close",
  timeout: "backend_dial_timeout",
} as const;
