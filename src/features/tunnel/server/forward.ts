import type { Clock } from "#base/clock";
import { GrpcCode } from "#wire/grpc";
import type { TunnelId } from "#wire/konnectivity";
import { type DialFailure, DialledConnection, type DialObserver } from "../dial/dialled-connection.ts";
import type { LocalEnd } from "../ends/local-end.ts";
import type { Backend, Backends } from "./backends.ts";
import type { ServerMetrics } from "./metrics.ts";

/** A dial whose answer never comes frees its entry after so long even where no timeout is set, milliseconds. */
const DIAL_CEILING_MS = 60_000;

/** A name of 253 bytes, brackets, a port, and some air. */
const MAX_ADDRESS_LENGTH = 512;

/** A frontend's wish for a connection. */
export interface ForwardRequest {
  readonly protocol: string;
  readonly address: string;
  readonly random: TunnelId;
  readonly local: LocalEnd;
  readonly localHalfClose: boolean;
}

/** Why a frontend gets no connection. */
export type ForwardFailure =
  | DialFailure
  /** No agent is connected that may be used. */
  | { readonly kind: "no-agent" }
  /** A dial of that id is pending already. */
  | { readonly kind: "duplicate" }
  /** Too many dials or connections, or too much is buffered. */
  | { readonly kind: "limit" }
  /** The server does not know the protocol. */
  | { readonly kind: "protocol" }
  /** The address is longer than any host and port. */
  | { readonly kind: "address" };

export interface ForwardOptions {
  /** 0: none but the ceiling of 60 s. */
  readonly backendDialTimeoutMs: number;
  readonly halfCloseTimeoutMs: number;
}

export interface ForwardObserver {
  onOpen(connectID: TunnelId): void;
  onFailed(failure: ForwardFailure): void;
  onClosed(): void;
}

/** Connects frontends with agents: picks a backend, dials over it, counts what came of it (spec tunnel 5.1, 7). */
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

  /** From now on every dial fails as if there were no agent. */
  stop(): void {
    this.#accepting = false;
  }

  /** Starts a dial. `undefined`: the observer has been told why not. */
  dial(request: ForwardRequest, observer: ForwardObserver): DialledConnection | undefined {
    if (request.protocol !== "tcp") return this.#fail(observer, { kind: "protocol" });
    if (request.address.length > MAX_ADDRESS_LENGTH) return this.#fail(observer, { kind: "address" });
    // A stream that died this moment is not yet taken off: one more candidate gets a chance.
    const tried = new Set<Backend>();
    for (let attempt = 0; attempt < 2 && this.#accepting; attempt += 1) {
      const backend = this.#backends.pick(request.address, tried);
      if (backend === undefined) break;
      const outcome = this.#dialOver(backend, request, observer);
      if (outcome instanceof DialledConnection) return outcome;
      if (outcome !== "closed") return this.#fail(observer, { kind: outcome });
      tried.add(backend);
    }
    this.#metrics.dialFailed("no_agent");
    return this.#fail(observer, { kind: "no-agent" });
  }

  #fail(observer: ForwardObserver, failure: ForwardFailure): undefined {
    observer.onFailed(failure);
    observer.onClosed();
    return undefined;
  }

  #dialOver(
    backend: Backend,
    request: ForwardRequest,
    observer: ForwardObserver,
  ): DialledConnection | "duplicate" | "limit" | "closed" {
    const { protocol, address, random, local, localHalfClose } = request;
    const dial = DialledConnection.dial(
      backend.mux,
      { protocol, address, random },
      {
        local,
        localHalfClose,
        observer: this.#counted(observer, backend),
        clock: this.#clock,
        dialTimeoutMs: this.#options.backendDialTimeoutMs || DIAL_CEILING_MS,
        halfCloseTimeoutMs: this.#options.halfCloseTimeoutMs,
      },
    );
    if (dial instanceof DialledConnection) this.#metrics.pendingDials(1);
    return dial;
  }

  /** Gauges and counters follow the connection's life, whatever way it ends. */
  #counted(observer: ForwardObserver, backend: Backend): DialObserver {
    const started = this.#clock.monotonic();
    const sentBefore = backend.mux.bytesSent;
    let opened: number | undefined;
    let failed = false;
    const answered = (): void => this.#metrics.pendingDials(-1);
    return {
      onOpen: (connectID) => {
        answered();
        opened = this.#clock.monotonic();
        this.#metrics.dialLatency((opened - started) / 1000);
        this.#metrics.established(1);
        observer.onOpen(connectID);
      },
      onFailed: (failure) => {
        failed = true;
        answered();
        this.#metrics.dialFailed(REASONS[failure.kind]);
        if (failure.kind === "timeout") retireIfStuck(backend, sentBefore);
        observer.onFailed(failure);
      },
      onClosed: () => {
        if (opened !== undefined) {
          this.#metrics.established(-1);
          this.#metrics.connectionDuration((this.#clock.monotonic() - opened) / 1000);
        } else if (!failed) {
          answered();
          this.#metrics.dialFailed("frontend_close");
        }
        observer.onClosed();
      },
    };
  }
}

/**
 * A stream that has taken no byte since a dial was given to it, though some wait, is of no use to anybody: it ends, and the
 * agent comes back on a new one (spec tunnel 5.4).
 */
function retireIfStuck(backend: Backend, sentBefore: number): void {
  const { mux } = backend;
  if (mux.isClosed || mux.queuedBytes === 0 || mux.bytesSent > sentBefore) return;
  backend.isDraining = true;
  mux.destroy({ code: GrpcCode.unavailable, message: "the agent takes no packets" });
}

const REASONS = {
  refused: "error_response",
  aborted: "backend_close",
  "link-lost": "backend_close",
  timeout: "backend_dial_timeout",
} as const;
