import type { UplinkStatus } from "../model/index.ts";
import { hasError } from "../model/index.ts";

/** Destinations in a row that must fail in the same way before the uplink is blamed (spec uplink-proxy 6.4). */
export const BLAME_AFTER = 3;
/** Within so long, milliseconds. */
export const BLAME_WINDOW_MS = 60_000;
/** Destinations kept for that: more tell nothing new. */
const MAX_DESTINATIONS = 16;
/** How long the blame lasts where nothing shows the contrary; doubles up to the maximum. */
const HOLD_MS = 60_000;
const HOLD_MAX_MS = 600_000;

/** What a failure rests on, which decides what proves it over. */
export type Ground = "told" | "probe" | "dial" | "blackhole";

/** Two times: on the wall clock for flags, and one that never goes back for everything that lasts. */
export interface Moment {
  readonly wall: number;
  readonly monotonic: number;
}

/**
 * What is known of one uplink beyond its local conditions. A state machine without clocks or timers of its own.
 *
 * A failure keeps `lastSucceeded` and has a text; a success keeps `lastFailed` and clears the texts (spec uplink-proxy 2.3). Each
 * new time is at least the one that it is compared with, so that a clock that jumps back turns nothing round.
 */
export class UplinkRecord {
  #status: UplinkStatus;
  #ground: Ground;
  #inRow = { failures: 0, successes: 0 };
  #blackholes = new Map<string, number>();
  #troubles = new Map<string, number>();
  #holdMs = HOLD_MS;
  #holdUntil: number | undefined;
  #bytesAt = Number.NEGATIVE_INFINITY;

  /** `binding`: what somebody else says of failures holds until he says otherwise. */
  constructor(status: UplinkStatus, options: { readonly binding: boolean }) {
    this.#status = status;
    this.#ground = options.binding ? "told" : "probe";
  }

  get status(): UplinkStatus {
    return this.#status;
  }

  /** When a blame that rests on traffic alone ends; on the monotonic clock. */
  get holdUntil(): number | undefined {
    return this.#holdUntil;
  }

  /** Somebody else says how it is: the configuration, or an agent. */
  tell(status: UplinkStatus, options: { readonly binding: boolean }): void {
    this.#status = status;
    this.#ground = options.binding ? "told" : "probe";
    this.#holdUntil = undefined;
    this.forgetSuspicions();
    this.#inRow = { failures: 0, successes: 0 };
  }

  probeSucceeded(at: Moment, options: { readonly recoverAfter: number; readonly provesPayload: boolean }): void {
    this.#inRow = { failures: 0, successes: this.#inRow.successes + 1 };
    // A path that swallows what is sent completes handshakes all the same.
    const proves = this.#ground === "probe" || this.#ground === "dial" || options.provesPayload;
    const isOver = this.#ground !== "told" && proves && this.#inRow.successes >= options.recoverAfter;
    if (!hasError(this.#status) || isOver) this.#succeed(at);
  }

  /** `intervalMs`: bytes that came within it outweigh the probe. */
  probeFailed(at: Moment, text: string, options: { readonly failAfter: number; readonly intervalMs: number }): void {
    if (at.monotonic - this.#bytesAt <= options.intervalMs) return;
    this.#inRow = { failures: this.#inRow.failures + 1, successes: 0 };
    if (this.#inRow.failures >= options.failAfter) this.#fail(at, "probe", text);
  }

  /** A handshake with a destination, or a refusal: the way there and back works. */
  reached(at: Moment): void {
    this.#troubles.clear();
    if (!hasError(this.#status) || this.#ground === "probe" || this.#ground === "dial") this.#succeed(at);
  }

  /** The first bytes of a tunnel: all is well. */
  worked(at: Moment): void {
    this.#bytesAt = at.monotonic;
    this.forgetSuspicions();
    this.#holdMs = HOLD_MS;
    if (!hasError(this.#status) || this.#ground !== "told") this.#succeed(at);
  }

  /** More bytes in a tunnel that may be old. */
  received(at: Moment): void {
    this.#bytesAt = at.monotonic;
    if (!hasError(this.#status) || this.#ground === "probe") this.#succeed(at);
  }

  /** A destination could not be reached, or fell silent. */
  troubled(at: Moment, destination: string, text: string): void {
    if (count(this.#troubles, destination, at.monotonic) >= BLAME_AFTER) this.#blame(at, "dial", text);
  }

  /** A destination took the payload and gave nothing back. */
  swallowed(at: Moment, destination: string, text: string): void {
    if (count(this.#blackholes, destination, at.monotonic) >= BLAME_AFTER) this.#blame(at, "blackhole", text);
  }

  /** The hold is over: real requests may try again. Where probes go on failing there is nothing to try. */
  release(at: Moment): void {
    if (this.#holdUntil === undefined || at.monotonic < this.#holdUntil) return;
    this.#holdUntil = undefined;
    this.forgetSuspicions();
    if (this.#inRow.failures > 0) {
      this.#ground = "probe";
      return;
    }
    const { lastSucceeded, lastError } = this.#status;
    this.#status = {
      ...(lastSucceeded === undefined ? {} : { lastSucceeded }),
      lastError: "",
      lastWarning: `on trial after ${lastError}`,
    };
  }

  #blame(at: Moment, ground: Ground, text: string): void {
    if (!hasError(this.#status) || this.#holdUntil === undefined) {
      this.#holdUntil = at.monotonic + this.#holdMs;
      this.#holdMs = Math.min(HOLD_MAX_MS, this.#holdMs * 2);
    }
    this.#fail(at, ground, text);
  }

  #fail(at: Moment, ground: Ground, text: string): void {
    const { lastSucceeded, lastWarning } = this.#status;
    this.#ground = ground;
    this.#status = {
      ...(lastSucceeded === undefined ? {} : { lastSucceeded }),
      lastFailed: Math.max(at.wall, (lastSucceeded ?? 0) + 1),
      lastError: text,
      lastWarning,
    };
  }

  #succeed(at: Moment): void {
    const { lastFailed, lastSucceeded, lastError, lastWarning } = this.#status;
    this.#holdUntil = undefined;
    if (this.#inRow.failures > 0) this.#inRow = { ...this.#inRow, failures: 0 };
    // With many connections a second, most tell nothing new.
    if (lastSucceeded === at.wall && lastError === "" && lastWarning === "" && at.wall >= (lastFailed ?? 0)) return;
    this.#status = {
      ...(lastFailed === undefined ? {} : { lastFailed }),
      lastSucceeded: Math.max(at.wall, lastFailed ?? 0),
      lastError: "",
      lastWarning: "",
    };
  }

  /** Destinations that failed so far blame nobody: there is another reason. */
  forgetSuspicions(): void {
    this.#troubles.clear();
    this.#blackholes.clear();
  }
}

/** Notes a destination; how many distinct ones there were lately. */
function count(destinations: Map<string, number>, destination: string, at: number): number {
  destinations.delete(destination);
  destinations.set(destination, at);
  for (const [key, seen] of destinations) {
    if (at - seen <= BLAME_WINDOW_MS && destinations.size <= MAX_DESTINATIONS) break;
    destinations.delete(key);
  }
  return destinations.size;
}
