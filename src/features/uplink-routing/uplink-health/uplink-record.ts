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
/** The time for which a failure lasts without new evidence, in milliseconds; doubles up to the maximum for failures by traffic. */
const HOLD_MS = 60_000;
const HOLD_MAX_MS = 600_000;

/** The source of a failure, which decides what ends it. */
export type FailureSource = "reported" | "probe" | "dial" | "blackhole" | "portal";

/**
 * The time for which a reported failure lasts without other evidence. `binding`: until the next report, whatever traffic shows. `followed`: until
 * {@link UplinkRecord.withdraw}, because its reporter still says so. `once`: as long as other failures, unless it is reported again.
 */
export type ReportKind = "binding" | "followed" | "once";

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
  #source: FailureSource = "probe";
  #inRow = { failures: 0, successes: 0 };
  /** Foreign answers to probes in a row. Traffic does not end the row: a captive portal's own bytes are traffic. */
  #foreignInRow = 0;
  readonly #blackholes = new FailedDestinations();
  readonly #failedDials = new FailedDestinations();
  #holdMs = HOLD_MS;
  #holdUntil: number | undefined;
  /** Until then failures by traffic do not lengthen the hold, by the monotonic clock. */
  #trafficCountsUntil = Number.NEGATIVE_INFINITY;
  /** Until then the last failed probe counts, by the monotonic clock. */
  #probeCountsUntil = Number.NEGATIVE_INFINITY;
  /** Another process still reports the failure. */
  #isFollowed = false;
  #bytesAt = Number.NEGATIVE_INFINITY;

  constructor(at: Timestamps, status: UplinkStatus, kind: ReportKind) {
    this.#status = status;
    this.report(at, status, kind);
  }

  get status(): UplinkStatus {
    return this.#status;
  }

  /** The time at which the failure ends without new evidence, by the monotonic clock. `undefined`: there is none, or its reporter ends it. */
  get holdUntil(): number | undefined {
    return this.#holdUntil;
  }

  /** The configuration, an agent or another process reports the status. */
  report(at: Timestamps, status: UplinkStatus, kind: ReportKind): void {
    this.#status = status;
    this.#source = kind === "binding" ? "reported" : status.isPortal === true ? "portal" : "probe";
    this.#isFollowed = kind === "followed" && hasError(status);
    this.#holdUntil = kind === "once" && hasError(status) ? at.monotonic + HOLD_MS : undefined;
    this.#trafficCountsUntil = Number.NEGATIVE_INFINITY;
    this.forgetFailures();
    this.#inRow = { failures: 0, successes: 0 };
    this.#foreignInRow = 0;
  }

  /** The reporter of a `followed` failure is gone: the failure ends, unless this process has found one too. */
  withdraw(): void {
    if (!this.#isFollowed) return;
    this.#isFollowed = false;
    if (this.#holdUntil === undefined) this.#tryAgain();
  }

  /** `provesPayload`: more than a handshake. `provesOrigin`: the answer was the expected one, which no captive portal gives. */
  probeSucceeded(
    at: Timestamps,
    options: { readonly recoverAfter: number; readonly provesPayload: boolean; readonly provesOrigin: boolean },
  ): void {
    if (options.provesOrigin) this.#foreignInRow = 0;
    if (this.#isBehindPortal && !options.provesOrigin) return;
    this.#inRow = { failures: 0, successes: this.#inRow.successes + 1 };
    // A handshake proves little, because a blackholed path completes handshakes too.
    const proves = this.#source === "probe" || this.#source === "dial" || options.provesPayload;
    const isOver = this.#source !== "reported" && proves && this.#inRow.successes >= options.recoverAfter;
    if (!hasError(this.#status) || isOver) this.#succeed(at);
  }

  /**
   * `intervalMs`: if bytes came within this time, the failed probe is ignored. `nextInMs`: the longest time until the next probe; a failure
   * lasts for two such times at least, so that it does not end between rare probes.
   */
  probeFailed(
    at: Timestamps,
    text: string,
    options: { readonly failAfter: number; readonly intervalMs: number; readonly nextInMs: number },
  ): void {
    if (this.#isBehindPortal || at.monotonic - this.#bytesAt <= options.intervalMs) return;
    this.#inRow = { failures: this.#inRow.failures + 1, successes: 0 };
    this.#probeCountsUntil = at.monotonic + Math.max(HOLD_MS, 2 * options.nextInMs);
    if (this.#inRow.failures >= options.failAfter) this.#fail(at, "probe", text);
    if (hasError(this.#status) && this.#source === "probe" && !this.#isFollowed)
      this.#holdUntil = Math.max(this.#holdUntil ?? 0, this.#probeCountsUntil);
  }

  /**
   * A probe got an answer that is not the expected one: somebody answers in place of the destination, such as a captive portal. It outranks
   * traffic, which such a portal carries too, and only the expected answer ends the failure. The options are those of {@link probeFailed}.
   */
  foreignAnswer(
    at: Timestamps,
    text: string,
    options: { readonly failAfter: number; readonly nextInMs: number },
  ): void {
    if (this.#isBinding) return;
    this.#foreignInRow += 1;
    this.#inRow = { failures: this.#inRow.failures + 1, successes: 0 };
    this.#probeCountsUntil = at.monotonic + Math.max(HOLD_MS, 2 * options.nextInMs);
    if (this.#foreignInRow < options.failAfter) return;
    this.#fail(at, "portal", text);
    this.#holdUntil = Math.max(this.#holdUntil ?? 0, this.#probeCountsUntil);
  }

  /** An agent's binding report of a failure: only its next report ends it. */
  get #isBinding(): boolean {
    return hasError(this.#status) && this.#source === "reported";
  }

  get #isBehindPortal(): boolean {
    return hasError(this.#status) && this.#source === "portal";
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
    if (!this.#isBinding && !this.#isBehindPortal) this.#succeed(at);
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

  /** Call this when the hold of a failure is over: real requests may try the uplink again, unless probes or another process still say no. */
  release(at: Timestamps): void {
    if (this.#holdUntil === undefined || at.monotonic < this.#holdUntil) return;
    this.forgetFailures();
    const isProbed = this.#inRow.failures > 0 && at.monotonic < this.#probeCountsUntil;
    this.#holdUntil = isProbed ? this.#probeCountsUntil : undefined;
    if (!isProbed && !this.#isFollowed) this.#tryAgain();
    else if (!this.#isBehindPortal) this.#source = "probe";
  }

  /** Without evidence: the next real request decides. Probes of before are not in a row with those to come. */
  #tryAgain(): void {
    this.#inRow = { failures: 0, successes: 0 };
    this.#foreignInRow = 0;
    const { lastSucceeded, lastError } = this.#status;
    this.#status = {
      ...(lastSucceeded === undefined ? {} : { lastSucceeded }),
      lastError: "",
      lastWarning: `on trial after ${lastError}`,
    };
  }

  /**
   * Ignored while bytes come in over the uplink: the cause is the destination. Ignored after an agent's binding report of a failure: only
   * its next report ends that, and it must not become a failure that ends sooner.
   */
  #noteFailure(
    at: Timestamps,
    destinations: FailedDestinations,
    source: FailureSource,
    failure: FailedDestination,
  ): void {
    if (this.#isBinding || this.#isBehindPortal) return;
    if (at.monotonic - this.#bytesAt <= Math.max(failure.waitedMs, BYTES_FRESH_MS)) return;
    if (destinations.add(failure, at.monotonic) >= FAIL_AFTER) this.#failByTraffic(at, source, failure.text);
  }

  #failByTraffic(at: Timestamps, source: FailureSource, text: string): void {
    if (at.monotonic >= this.#trafficCountsUntil) {
      this.#trafficCountsUntil = at.monotonic + this.#holdMs;
      this.#holdUntil = Math.max(this.#holdUntil ?? 0, this.#trafficCountsUntil);
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
      ...(source === "portal" ? { isPortal: true } : {}),
    };
  }

  #succeed(at: Timestamps): void {
    const { lastFailed, lastSucceeded, lastError, lastWarning } = this.#status;
    this.#holdUntil = undefined;
    this.#trafficCountsUntil = Number.NEGATIVE_INFINITY;
    this.#isFollowed = false;
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
