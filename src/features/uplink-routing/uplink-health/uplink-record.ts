import { type FailureContext, hasError, type UplinkStatus } from "#base/uplink-model";

/**
 * Number of destinations that must fail consecutively in the same way before the uplink counts as failed (docs/spec/uplink-proxy.md#6.4).
 */
export const FAIL_AFTER = 3;
/** The failures of these destinations must be within this time, in milliseconds. */
export const FAILURE_WINDOW_MS = 60_000;
/** Maximum number of failed destinations that are remembered. */
const MAX_DESTINATIONS = 16;
/** Received bytes count as recent for this time, in milliseconds. They are reported once a second. */
const BYTES_FRESH_MS = 2000;
/** How long a failure by traffic lasts without other evidence, in milliseconds; doubles up to the maximum. */
const HOLD_MS = 60_000;
const HOLD_MAX_MS = 600_000;

/** The source of a failure, which decides what ends it. */
export type FailureSource = "reported" | "probe" | "dial" | "blackhole";

/** One moment on two clocks: the wall clock for the flags, and the monotonic clock for durations. */
export interface Timestamps {
  readonly wall: number;
  readonly monotonic: number;
}

/** A destination that did not answer. */
export interface FailedDestination extends FailureContext {
  readonly destination: string;
  readonly text: string;
}

/**
 * The status of one uplink without its local conditions. A state machine without clocks or timers of its own.
 *
 * A failure keeps `lastSucceeded` and has a text; a success keeps `lastFailed` and clears the texts (docs/spec/uplink-proxy.md#2.3). Each
 * new time is at least the one that it is compared with, so that the order of the times stays right when the clock jumps back.
 */
export class UplinkRecord {
  #status: UplinkStatus;
  #source: FailureSource;
  #inRow = { failures: 0, successes: 0 };
  readonly #blackholes = new FailedDestinations();
  readonly #failedDials = new FailedDestinations();
  #holdMs = HOLD_MS;
  #holdUntil: number | undefined;
  #bytesAt = Number.NEGATIVE_INFINITY;

  /** `binding`: a reported status holds until the next report. */
  constructor(status: UplinkStatus, options: { readonly binding: boolean }) {
    this.#status = status;
    this.#source = options.binding ? "reported" : "probe";
  }

  get status(): UplinkStatus {
    return this.#status;
  }

  /** The time at which a failure that was concluded only from traffic ends, by the monotonic clock. */
  get holdUntil(): number | undefined {
    return this.#holdUntil;
  }

  /** The configuration or an agent reports the status. */
  report(status: UplinkStatus, options: { readonly binding: boolean }): void {
    this.#status = status;
    this.#source = options.binding ? "reported" : "probe";
    this.#holdUntil = undefined;
    this.forgetFailures();
    this.#inRow = { failures: 0, successes: 0 };
  }

  probeSucceeded(at: Timestamps, options: { readonly recoverAfter: number; readonly provesPayload: boolean }): void {
    this.#inRow = { failures: 0, successes: this.#inRow.successes + 1 };
    // A handshake proves little, because a blackholed path completes handshakes too.
    const proves = this.#source === "probe" || this.#source === "dial" || options.provesPayload;
    const isOver = this.#source !== "reported" && proves && this.#inRow.successes >= options.recoverAfter;
    if (!hasError(this.#status) || isOver) this.#succeed(at);
  }

  /** `intervalMs`: if bytes came within this time, the failed probe is ignored. */
  probeFailed(
    at: Timestamps,
    text: string,
    options: { readonly failAfter: number; readonly intervalMs: number },
  ): void {
    if (at.monotonic - this.#bytesAt <= options.intervalMs) return;
    this.#inRow = { failures: this.#inRow.failures + 1, successes: 0 };
    if (this.#inRow.failures >= options.failAfter) this.#fail(at, "probe", text);
  }

  /** A handshake with a destination, or a refusal: packets pass in both directions. */
  connected(at: Timestamps): void {
    this.#failedDials.clear();
    if (!hasError(this.#status) || this.#source === "probe" || this.#source === "dial") this.#succeed(at);
  }

  /** The first byte of a tunnel: the uplink works. */
  firstByte(at: Timestamps): void {
    this.#bytesAt = at.monotonic;
    this.forgetFailures();
    this.#holdMs = HOLD_MS;
    if (!hasError(this.#status) || this.#source !== "reported") this.#succeed(at);
  }

  /** Further bytes of a tunnel, which may be old. */
  bytesReceived(at: Timestamps): void {
    this.#bytesAt = at.monotonic;
    this.forgetFailures();
    if (!hasError(this.#status) || this.#source === "probe") this.#succeed(at);
  }

  /** A destination could not be reached, or stalled. */
  dialFailed(at: Timestamps, failure: FailedDestination): void {
    this.#noteFailure(at, this.#failedDials, "dial", failure);
  }

  /** A destination's host completed the handshake and acknowledged nothing of the payload. */
  blackholed(at: Timestamps, failure: FailedDestination): void {
    this.#noteFailure(at, this.#blackholes, "blackhole", failure);
  }

  /** Call this when the hold of a failure is over: real requests may try the uplink again, unless probes still fail. */
  release(at: Timestamps): void {
    if (this.#holdUntil === undefined || at.monotonic < this.#holdUntil) return;
    this.#holdUntil = undefined;
    this.forgetFailures();
    if (this.#inRow.failures > 0) {
      this.#source = "probe";
      return;
    }
    const { lastSucceeded, lastError } = this.#status;
    this.#status = {
      ...(lastSucceeded === undefined ? {} : { lastSucceeded }),
      lastError: "",
      lastWarning: `on trial after ${lastError}`,
    };
  }

  /** Ignored while bytes come in over the uplink: the cause is the destination. */
  #noteFailure(
    at: Timestamps,
    destinations: FailedDestinations,
    source: FailureSource,
    failure: FailedDestination,
  ): void {
    if (at.monotonic - this.#bytesAt <= Math.max(failure.waitedMs, BYTES_FRESH_MS)) return;
    if (destinations.add(failure, at.monotonic) >= FAIL_AFTER) this.#failByTraffic(at, source, failure.text);
  }

  #failByTraffic(at: Timestamps, source: FailureSource, text: string): void {
    if (!hasError(this.#status) || this.#holdUntil === undefined) {
      this.#holdUntil = at.monotonic + this.#holdMs;
      this.#holdMs = Math.min(HOLD_MAX_MS, this.#holdMs * 2);
    }
    this.#fail(at, source, text);
  }

  #fail(at: Timestamps, source: FailureSource, text: string): void {
    const { lastSucceeded, lastWarning } = this.#status;
    this.#source = source;
    this.#status = {
      ...(lastSucceeded === undefined ? {} : { lastSucceeded }),
      lastFailed: Math.max(at.wall, (lastSucceeded ?? 0) + 1),
      lastError: text,
      lastWarning,
    };
  }

  #succeed(at: Timestamps): void {
    const { lastFailed, lastSucceeded, lastError, lastWarning } = this.#status;
    this.#holdUntil = undefined;
    if (this.#inRow.failures > 0) this.#inRow = { ...this.#inRow, failures: 0 };
    // With many connections a second, most reports change no field.
    if (lastSucceeded === at.wall && lastError === "" && lastWarning === "" && at.wall >= (lastFailed ?? 0)) return;
    this.#status = {
      ...(lastFailed === undefined ? {} : { lastFailed }),
      lastSucceeded: Math.max(at.wall, lastFailed ?? 0),
      lastError: "",
      lastWarning: "",
    };
  }

  /** Forgets the destinations that have failed until now, because the uplink failed for another reason. */
  forgetFailures(): void {
    this.#failedDials.clear();
    this.#blackholes.clear();
  }
}

/** Destinations that failed recently, each once. All destinations of pods count as one, because a pod can choose destinations that fail. */
class FailedDestinations {
  readonly #byHost = new Map<string, number>();
  #byPodAt = Number.NEGATIVE_INFINITY;

  /** Notes a destination; returns the number of recently failed destinations. */
  add({ destination, clientKind }: FailedDestination, at: number): number {
    if (clientKind === "pod") this.#byPodAt = at;
    else {
      this.#byHost.delete(destination);
      this.#byHost.set(destination, at);
    }
    for (const [key, seen] of this.#byHost) {
      if (at - seen <= FAILURE_WINDOW_MS && this.#byHost.size <= MAX_DESTINATIONS) break;
      this.#byHost.delete(key);
    }
    return this.#byHost.size + (at - this.#byPodAt <= FAILURE_WINDOW_MS ? 1 : 0);
  }

  clear(): void {
    this.#byHost.clear();
    this.#byPodAt = Number.NEGATIVE_INFINITY;
  }
}
