import { Backoff } from "#base/async";
import type { Clock } from "#base/clock";
import { type ApiFailure, isAway, KubeError, type PortState } from "#kube/client";
import { attempt } from "./attempt.ts";
import type { InformerApi } from "./informer-options.ts";

/** The maximum pause between tries to reach a server whose port is open, in milliseconds. */
const AWAY_MAX_MS = 5_000;
/** The maximum pause between watches if the server ends each soon after it has opened it, in milliseconds. */
const CUT_MAX_MS = 5_000;
/**
 * The maximum random delay of informers, and nodes, that noticed at the same moment that the server is reachable again, in milliseconds.
 */
const RETURN_SPREAD_MS = 250;
/** The time, in milliseconds, during which a server that has just started may refuse requests, until it has read its objects and roles. */
const STARTING_MS = 30_000;
/** The maximum pause between tries at a server that has just started, in milliseconds. */
const STARTING_MAX_MS = 1_000;
/** The maximum random delay of clients with the same Retry-After, in milliseconds. */
const RETRY_SPREAD_MS = 1_000;

/** The pauses of an informer after failures, by what they say of the server (docs/design/kube.md). */
export class RecoveryPace {
  readonly #api: Pick<InformerApi, "whenOpen">;
  readonly #clock: Clock;
  readonly #random: () => number;
  /** The back-off after error answers of the server. */
  readonly #refused: Backoff;
  /** The back-off while the server cannot be reached. */
  readonly #away: Backoff;
  /** The back-off for a server that opens watches and soon ends them. */
  readonly #cut: Backoff;
  #returnedAt = Number.NEGATIVE_INFINITY;
  /** The number of consecutive error answers of the server. */
  refusals = 0;

  constructor(
    api: Pick<InformerApi, "whenOpen">,
    options: {
      readonly clock: Clock;
      readonly random: () => number;
      readonly backoff: { readonly initialMs: number; readonly maxMs: number } | undefined;
    },
  ) {
    this.#api = api;
    this.#clock = options.clock;
    this.#random = options.random;
    const pace = { initialMs: 250, maxMs: 30_000, ...options.backoff, random: this.#random };
    this.#refused = new Backoff(pace);
    this.#away = new Backoff({ ...pace, maxMs: Math.min(pace.maxMs, AWAY_MAX_MS) });
    this.#cut = new Backoff({ ...pace, maxMs: Math.min(pace.maxMs, CUT_MAX_MS) });
  }

  /** The server has answered without an error. */
  answered(): void {
    this.#away.reset();
  }

  /** The server has accepted a watch: earlier refusals do not count. */
  accepted(): void {
    this.#refused.reset();
  }

  /** A watch has had an event, or was open for long. */
  succeeded(): void {
    this.#refused.reset();
    this.#cut.reset();
    this.refusals = 0;
  }

  /**
   * Resolves to the pause after a failure, in milliseconds. While the server cannot be reached it first waits for its port. `isOpened`: the server had accepted the
   * watch that failed.
   */
  async after(error: ApiFailure, isOpened: boolean, signal: AbortSignal): Promise<number> {
    return isAway(error) ? await this.#reach(error, signal) : this.#refusal(error, isOpened);
  }

  /** Waits until the server's port is open; resolves to the further wait in milliseconds. */
  async #reach(error: KubeError, signal: AbortSignal): Promise<number> {
    // If a gateway answered instead of the server, the port is open: a probe says nothing about the server.
    if (error.httpStatus === undefined && (await this.#whenOpen(signal)) === "returned") {
      this.#away.reset();
      this.#refused.reset();
      this.#returnedAt = this.#clock.monotonic();
      return RETURN_SPREAD_MS * this.#random();
    }
    return this.#away.next();
  }

  async #whenOpen(signal: AbortSignal): Promise<PortState> {
    const { whenOpen } = this.#api;
    if (whenOpen === undefined) return "open";
    const { value, failure } = await attempt(() => whenOpen.call(this.#api, { signal }));
    // The client was closed, so further calls fail at once; they must not follow each other without a pause.
    return failure === undefined ? value : "open";
  }

  #refusal(error: ApiFailure, isOpened: boolean): number {
    this.refusals += 1;
    this.#away.reset();
    const isStarting = this.#clock.monotonic() - this.#returnedAt < STARTING_MS;
    const backoff = isOpened ? this.#cut : this.#refused;
    const waitMs = Math.min(backoff.next(), isStarting ? STARTING_MAX_MS : Number.POSITIVE_INFINITY);
    const retryAfterMs = error instanceof KubeError ? (error.retryAfterMs ?? 0) : 0;
    return Math.max(waitMs, retryAfterMs + Math.min(retryAfterMs, RETRY_SPREAD_MS) * this.#random());
  }
}
