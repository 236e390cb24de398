import { Backoff } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError, type ExpectedError } from "#base/errors";
import type { IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import { Loop, type PassResult } from "#base/reconcile";
import type { ConntrackPort } from "#kernel/conntrack";
import {
  deleteStaleFlows,
  hasNone,
  type IsHolder,
  type KeepsFlows,
  type NodePortHost,
  probeConntrack,
  type UdpFrontEnds,
  UnreadyEndpoints,
  udpFrontEnds,
} from "../conntrack/index.ts";
import { keepRemoved } from "../dataplane/index.ts";
import type { FrontEndKey } from "../plan/index.ts";
import type { TrackedPort } from "../track/index.ts";

/** Pause after the first failure in a row, in milliseconds; it doubles up to {@link MAX_RETRY_MS}. */
const FIRST_RETRY_MS = 1000;
const MAX_RETRY_MS = 60_000;
/** Without a request nothing is done; the wait only needs some limit, in milliseconds. */
const WAIT_MS = 3_600_000;

/** Observes checks of flows; methods must not throw. */
export interface FlowsObserver {
  /** A check has succeeded. `durationMs` is its time. */
  flowsDeleted?(family: IpFamily, flows: number, durationMs: number): void;
  /** A check has failed. It is made again. */
  flowsFailed?(family: IpFamily, error: ExpectedError): void;
}

export interface StaleFlowsDeps extends NodePortHost {
  readonly family: IpFamily;
  readonly conntrack: ConntrackPort;
  /** Service ports as they are wanted now, with their endpoints; `undefined`: of all Services. */
  readonly portsOf: (services: ReadonlySet<string> | undefined) => Iterable<TrackedPort>;
  readonly holds: IsHolder;
  /** True if some Service holds the front end of this id now. */
  readonly isHeld: (frontEnd: string) => boolean;
  readonly observer: FlowsObserver | undefined;
  readonly log: Logger;
  readonly clock: Clock;
}

/**
 * Deletes stale UDP flows of one family (docs/spec/service-proxy.md#2.11), beside the syncs: no change and no repair waits for it, and the table is
 * as it should be also where the kernel has no connection tracking. A check that fails is made again after a pause, which grows.
 */
export class StaleFlows {
  readonly #deps: StaleFlowsDeps;
  readonly #loop: Loop;
  /** Services that wait for a check; `undefined`: all. */
  #waiting: ReadonlySet<string> | undefined = new Set();
  /** Services of the check that is running. */
  #current: ReadonlySet<string> | undefined;
  /** Front ends that were removed, by id, whose flows wait for a check. */
  #waitingGone = new Map<string, FrontEndKey>();
  /** Those of the check that is running. */
  #currentGone: ReadonlyMap<string, FrontEndKey> = new Map();
  readonly #unready: UnreadyEndpoints;
  #isDue = false;
  #isRunning = false;
  /** The front ends of {@link #current}; `undefined`: to be computed. */
  #frontEnds: UdpFrontEnds | undefined;
  /** The last check, or try, has read connection tracking. `undefined`: there was none. */
  #isReadable: boolean | undefined;

  constructor(deps: StaleFlowsDeps) {
    this.#deps = deps;
    this.#unready = new UnreadyEndpoints(deps.clock);
    this.#loop = new Loop({
      everyMs: WAIT_MS,
      startsIdle: true,
      backoff: new Backoff({ initialMs: FIRST_RETRY_MS, maxMs: MAX_RETRY_MS }),
      keepsRetryPause: true,
      onFailure: (error) => this.#failed(error),
      clock: deps.clock,
    });
  }

  /** True while flows wait for a check, and while one is running. */
  get isPending(): boolean {
    return this.#isDue || this.#isRunning;
  }

  /**
   * Requests a check of the flows of these Services, `undefined`: of all, and of the flows of front ends that are `gone`, by id. To be called when
   * the kernel has their endpoints, and has lost these front ends.
   */
  request(services: ReadonlySet<string> | undefined, gone: ReadonlyMap<string, FrontEndKey> = new Map()): void {
    keepRemoved(this.#waitingGone, gone);
    this.#waiting =
      services === undefined || this.#waiting === undefined ? undefined : new Set([...this.#waiting, ...services]);
    this.#isDue = true;
    this.#loop.wake("flows to check");
  }

  /** To be called before the kernel gets other endpoints: flows to them are not stale, also for a check that is running. */
  endpointsChanged(): void {
    this.#frontEnds = undefined;
  }

  /** Checks on request until the signal aborts. Rejects only because of a bug. */
  run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    return this.#loop.run(() => this.#pass(signal), { signal });
  }

  async #pass(signal: AbortSignal): Promise<PassResult> {
    const ended = this.#unready.takeEnded();
    if (ended.size > 0) this.request(ended);
    if (this.#isDue) await this.#checkWaiting(signal);
    return { againMs: Math.min(WAIT_MS, this.#unready.nextMs ?? WAIT_MS) };
  }

  async #checkWaiting(signal: AbortSignal): Promise<void> {
    const { family, observer, log, clock } = this.#deps;
    this.#isDue = false;
    this.#isRunning = true;
    this.#current = this.#waiting;
    this.#waiting = new Set();
    this.#currentGone = this.#waitingGone;
    this.#waitingGone = new Map();
    const startedAt = clock.monotonic();
    const flows = await this.#check(signal).finally(() => this.#ended());
    if (this.#isReadable === false) log.info("connection tracking can be read again", { family });
    this.#isReadable = true;
    observer?.flowsDeleted?.(family, flows, clock.monotonic() - startedAt);
  }

  /** Reports a failed check. The front ends of the check wait for the next one. */
  #failed(error: ExpectedError): void {
    const { family, observer, log } = this.#deps;
    this.request(this.#current, this.#currentGone);
    if (this.#isReadable !== false)
      log.warn("connection tracking cannot be read: stale UDP flows are not deleted; trying again", {
        family,
        error: describeError(error),
      });
    this.#isReadable = false;
    observer?.flowsFailed?.(family, error);
  }

  #ended(): void {
    this.#isRunning = false;
    this.#frontEnds = undefined;
  }

  async #check(signal: AbortSignal): Promise<number> {
    const { conntrack, family, isNodePortAddress, isFormerNodePortAddress } = this.#deps;
    if (!hasNone(this.#view()))
      return await deleteStaleFlows(conntrack, family, () => this.#view(), {
        isNodePortAddress,
        isFormerNodePortAddress,
        signal,
      });
    // Nothing is to be read. Whether it could be is told all the same, before a Service with UDP needs it.
    if (this.#isReadable !== true) await probeConntrack(conntrack, family, { signal });
    return 0;
  }

  /** A front end that a Service has got since it was removed is not gone: its flows are compared with that Service's endpoints. */
  *#gone(): Generator<FrontEndKey> {
    for (const [id, frontEnd] of this.#currentGone) if (!this.#deps.isHeld(id)) yield frontEnd;
  }

  #view(): UdpFrontEnds {
    const { portsOf, holds } = this.#deps;
    if (this.#frontEnds === undefined) {
      this.#unready.settle(this.#current, () => portsOf(this.#current));
      const keeps: KeepsFlows = (port, endpoint) => this.#unready.keeps(port, endpoint);
      this.#frontEnds = udpFrontEnds(portsOf(this.#current), holds, this.#gone(), keeps);
    }
    return this.#frontEnds;
  }
}
