import type { Clock } from "#base/clock";
import { GrpcCode } from "#wire/grpc";
import type { TunnelId } from "#wire/konnectivity";
import { type DialFailure, DialledConnection, type DialObserver } from "../dial/dialled-connection.ts";
import type { LocalSide } from "../local/local-side.ts";
import type { Backend, Backends } from "./backends.ts";
import type { ServerMetrics } from "./metrics.ts";

/** The dial timeout if none is set, in milliseconds. */
const DIAL_CEILING_MS = 60_000;

/** Maximum length of an address: more than a name of 253 bytes, brackets and a port need. */
const MAX_ADDRESS_LENGTH = 512;

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

export interface ForwardObserver {
  onOpen(connectID: TunnelId): void;
  onFailed(failure: ForwardFailure): void;
  onClosed(): void;
}

/** The dial of a frontend and then its connection, as the frontend uses it. */
export type ForwardedDial = Pick<DialledConnection, "close" | "localGone" | "localEof" | "send" | "state">;

/** Maximum of agents that a dial is sent to. The dial is sent to the next agent after the link of the one before was lost. */
const MAX_ATTEMPTS = 3;

/** Connects frontends with agents: chooses a backend, dials over it, counts the outcome (docs/spec/tunnel.md#5.1, #7). */
export class Forwarder {
  readonly #backends: Backends;
  readonly #clock: Clock;
  readonly #metrics: ServerMetrics;
  readonly #options: ForwardOptions;
  #accepting = true;

  constructor(
    deps: { readonly backends: Backends; readonly clock: Clock; readonly metrics: ServerMetrics },
    options: ForwardOptions,
  ) {
    this.#backends = deps.backends;
    this.#clock = deps.clock;
    this.#metrics = deps.metrics;
    this.#options = options;
  }

  /** From now on every dial fails with `no-agent`. */
  stop(): void {
    this.#accepting = false;
  }

  /** Starts a dial. Returns `undefined` if the dial has failed; the observer was then notified. */
  dial(request: ForwardRequest, observer: ForwardObserver): ForwardedDial | undefined {
    const refuse = (kind: "protocol" | "address"): undefined => {
      observer.onFailed({ kind });
      observer.onClosed();
    };
    if (request.protocol !== "tcp") return refuse("protocol");
    if (request.address.length > MAX_ADDRESS_LENGTH) return refuse("address");
    const attempts = new DialAttempts(request, observer, {
      ...{ backends: this.#backends, clock: this.#clock, metrics: this.#metrics, options: this.#options },
      isAccepting: () => this.#accepting,
    });
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

/**
 * One dial of a frontend, over one agent after the other: a link that is lost before its answer has carried no byte of the connection, so
 * that the dial can be sent to another agent. Updates gauges and counters, however the connection ends.
 */
class DialAttempts implements ForwardedDial {
  readonly #request: ForwardRequest;
  readonly #observer: ForwardObserver;
  readonly #deps: DialAttemptsDeps;
  readonly #started: number;
  readonly #tried = new Set<Backend>();
  #current: DialledConnection | undefined;

  constructor(request: ForwardRequest, observer: ForwardObserver, deps: DialAttemptsDeps) {
    this.#request = request;
    this.#observer = observer;
    this.#deps = deps;
    this.#started = deps.clock.monotonic();
  }

  get state(): DialledConnection["state"] {
    return this.#current?.state ?? "closed";
  }

  close(): void {
    this.#current?.close();
  }

  localGone(): void {
    this.#current?.localGone();
  }

  localEof(): void {
    this.#current?.localEof();
  }

  send(pieces: readonly Uint8Array[]): void {
    this.#current?.send(pieces);
  }

  /** Starts dialling. Returns false if the dial has failed; the observer was then notified. */
  start(): boolean {
    const outcome = this.#next();
    if (outcome === "dialing") return true;
    if (outcome === "no-agent") this.#deps.metrics.dialFailed("no_agent");
    this.#observer.onFailed({ kind: outcome });
    this.#observer.onClosed();
    return false;
  }

  /** Dials over one more agent. If that agent's stream has just ended but is still among the backends, the next agent is tried. */
  #next(): "dialing" | "no-agent" | "duplicate" | "limit" {
    const { backends, isAccepting } = this.#deps;
    while (this.#tried.size < MAX_ATTEMPTS && isAccepting()) {
      const backend = backends.pick(this.#request.address, this.#tried);
      if (backend === undefined) break;
      this.#tried.add(backend);
      const outcome = this.#dialOver(backend);
      if (outcome !== "closed") return outcome;
    }
    return "no-agent";
  }

  #dialOver(backend: Backend): "dialing" | "duplicate" | "limit" | "closed" {
    const { protocol, address, random, local, localHalfClose } = this.#request;
    const { clock, metrics, options } = this.#deps;
    const leftMs = (options.backendDialTimeoutMs || DIAL_CEILING_MS) - (clock.monotonic() - this.#started);
    const dial = DialledConnection.dial(
      backend.mux,
      { protocol, address, random },
      {
        local,
        localHalfClose,
        observer: this.#counted(backend),
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

  #counted(backend: Backend): DialObserver {
    const { clock, metrics } = this.#deps;
    const sentBefore = backend.mux.bytesSent;
    let opened: number | undefined;
    let outcome: "none" | "failed" | "moved" = "none";
    const answered = (): void => metrics.pendingDials(-1);
    return {
      onOpen: (connectID) => {
        answered();
        opened = clock.monotonic();
        metrics.dialLatency((opened - this.#started) / 1000);
        metrics.established(1);
        this.#observer.onOpen(connectID);
      },
      onFailed: (failure) => {
        answered();
        if (failure.kind === "link-lost" && this.#next() === "dialing") {
          outcome = "moved";
          return;
        }
        outcome = "failed";
        metrics.dialFailed(REASONS[failure.kind]);
        if (failure.kind === "timeout") retireIfStuck(backend, sentBefore);
        this.#observer.onFailed(failure);
      },
      onClosed: () => {
        if (outcome === "moved") return;
        if (opened !== undefined) {
          metrics.established(-1);
          metrics.connectionDuration((clock.monotonic() - opened) / 1000);
        } else if (outcome === "none") {
          answered();
          metrics.dialFailed("frontend_close");
        }
        this.#observer.onClosed();
      },
    };
  }
}

/**
 * Ends a stream that has taken no byte since a dial was sent on it, though bytes wait. The agent connects again
 * (docs/spec/tunnel.md#5.4).
 */
function retireIfStuck(backend: Backend, sentBefore: number): void {
  const { mux } = backend;
  if (mux.isClosed || mux.queuedBytes === 0 || mux.bytesSent > sentBefore) return;
  backend.isDraining = true;
  mux.destroy({ code: GrpcCode.unavailable, message: "the agent accepts no packets" });
}

const REASONS = {
  refused: "error_response",
  aborted: "backend_close",
  "link-lost": "backend_close",
  timeout: "backend_dial_timeout",
} as const;
