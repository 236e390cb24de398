import { LightAbortSignal, withDeadline } from "#base/async";
import type { IpAddress } from "#base/ip";
import type { Snapshot } from "#base/uplink-model";
import { type DnsAnswer, DnsError } from "../dns/index.ts";
import { classify } from "./classify.ts";
import type { DialRequest, DialResult } from "./dial-request.ts";
import { type AttemptFailure, allFailed, SelectError } from "./errors.ts";
import { type Closable, connectAny, PairError, pairUp } from "./happy-eyeballs.ts";
import { type Candidate, dnsUplink, type Tier } from "./order.ts";
import {
  type Attempt,
  type Bypass,
  LINK_LOST,
  LOST,
  NO_ANSWER,
  type QueuedAttempt,
  type RaceDeps,
  type RaceInput,
  type Resolved,
} from "./race-attempt.ts";

/**
 * The attempts of one request: attempts of one tier run side by side; the next tier starts when the cheaper attempts have failed or their
 * time is over (docs/spec/uplink-proxy.md#6.1.4). The first connection wins; the others are closed. Those that it has overtaken count as
 * failures.
 */
export class DialRace<C extends Closable> {
  readonly #deps: RaceDeps<C>;
  readonly #request: DialRequest;
  readonly #input: RaceInput;
  readonly #queue: readonly QueuedAttempt[];
  /** The attempts in the order of their start: those over cheaper uplinks first. */
  #running: Attempt<C>[] = [];
  /** Trials that go on after their request was served. */
  #detached: readonly Attempt<C>[] = [];
  /** Called when the last of them has ended. */
  #onIdle: (() => void) | undefined;
  readonly #failures: AttemptFailure[] = [];
  readonly #result = Promise.withResolvers<DialResult<C>>();
  #next = 0;
  #isOver = false;
  /** The uplinks that still exist; set after the uplinks have changed. */
  #present: ReadonlySet<string> | undefined;
  #cancelNext: (() => void) | undefined;
  #cancelDeadline: (() => void) | undefined;
  #cancelFinish: (() => void) | undefined;

  constructor(deps: RaceDeps<C>, request: DialRequest, input: RaceInput) {
    this.#deps = deps;
    this.#request = request;
    this.#input = input;
    const queue: QueuedAttempt[] = [];
    for (const tier of input.tiers) for (const candidate of tier.candidates) queue.push({ candidate, tier });
    this.#queue = queue;
  }

  /** Dials over the uplinks. Rejects with {@link SelectError}, or with the signal's reason. */
  run(): Promise<DialResult<C>> {
    const { signal, deadlineAt } = this.#request;
    const { clock, settings } = this.#deps;
    const leftMs = deadlineAt === undefined ? settings().requestTimeoutMs : deadlineAt - clock.monotonic();
    this.#cancelDeadline = clock.after(Math.max(0, leftMs), () => this.#timeOut());
    signal.addEventListener("abort", this.#onAbort, { once: true });
    if (signal.aborted) this.#onAbort();
    else this.#startNext();
    return this.#result.promise;
  }

  /** Fails attempts over uplinks that have lost their link or were removed. */
  snapshotChanged({ uplinks }: Snapshot): void {
    const isUp = (name: string): boolean => uplinks.some((uplink) => uplink.name === name && uplink.isUp);
    this.#present = new Set(uplinks.map(({ name }) => name));
    for (const { candidate, stop, won } of [...this.#running, ...this.#detached])
      if (won === undefined && candidate.uplink.isUp && !isUp(candidate.uplink.name)) stop.abort(LINK_LOST);
  }

  /** Calls `done` once no attempt is under way any more: at once, or when the trials have ended that go on without their request. */
  whenIdle(done: () => void): void {
    if (this.#detached.length === 0) done();
    else this.#onIdle = done;
  }

  /** Dials addresses of this host or its cluster, without a bound source. No uplink has a part in it. `nameFrom`: see {@link DialResult}. */
  async direct(addresses: readonly IpAddress[], nameFrom?: string): Promise<DialResult<C>> {
    const { destination, snapshot, signal } = this.#request;
    const { clock, connect, hasAddress } = this.#deps;
    try {
      const { connection, pair } = await withDeadline(
        snapshot.dialTimeoutMs,
        (until) => connectAny(pairUp(addresses, undefined), destination.port, { connect, clock, signal: until }),
        { signal, clock },
      );
      return { connection, address: pair.address, nameFrom, failures: this.#failures };
    } catch (error) {
      signal.throwIfAborted();
      const { failure, text } = classify(error instanceof PairError ? error.cause : error, undefined, hasAddress);
      const direct = { uplink: "direct", ifName: "direct", source: "", cost: 0, failure, text };
      throw allFailed(destination.text, [...this.#failures, direct]);
    }
  }

  readonly #onAbort = (): void => this.#end(() => this.#result.reject(this.#request.signal.reason));

  #startNext(): void {
    this.#cancelNext?.();
    const present = this.#present;
    // The address of a removed uplink may meanwhile be routed over another uplink.
    while (present !== undefined && this.#next < this.#queue.length && !present.has(this.#nextName)) this.#next += 1;
    const queued = this.#queue[this.#next];
    if (queued === undefined) {
      if (this.#running.length === 0) this.#allFailed();
      return;
    }
    this.#next += 1;
    const { candidate, tier } = queued;
    const { clock, penalties } = this.#deps;
    const { text: target } = this.#request.destination;
    const { name } = candidate.uplink;
    const trial = penalties.needsTrial(target, name) ? penalties.beginTrial(target, name) : undefined;
    const startedAt = clock.monotonic();
    const attempt: Attempt<C> = {
      candidate,
      tier,
      trial,
      isOvertaken: false,
      startedAt,
      patienceFrom: startedAt,
      stop: new LightAbortSignal(),
      isResolving: false,
      won: undefined,
    };
    this.#running.push(attempt);
    this.#armNext(queued);
    this.#attempt(attempt).then(
      (outcome) => {
        if ("bypass" in outcome) this.#goDirect(attempt, outcome);
        else this.#connected(attempt, outcome);
      },
      (error: unknown) => this.#failed(attempt, error),
    );
  }

  /** Schedules the next attempt beside this one; not with `tierDelayMs: "timeout"`. */
  #armNext(current: QueuedAttempt): void {
    const next = this.#queue[this.#next];
    const { staggerMs, tierDelayMs } = this.#deps.settings();
    if (next === undefined || tierDelayMs === "timeout") return;
    const { clock } = this.#deps;
    if (next.tier === current.tier || current.tier.isProbation) {
      this.#cancelNext = clock.after(staggerMs, () => this.#startNext());
      return;
    }
    this.#awaitTier(current.tier);
  }

  /** Starts the next tier once the patience with all attempts of this one is over. */
  #awaitTier(tier: Tier, options: { readonly isLast?: boolean } = {}): void {
    const { clock, settings } = this.#deps;
    const running = this.#running.filter((attempt) => attempt.tier === tier);
    const leftMs = Math.max(...running.map((attempt) => this.#patienceLeftMs(attempt)));
    if (leftMs > 0) this.#cancelNext = clock.after(leftMs, () => this.#awaitTier(tier));
    // A fallback DNS query may just be running: by default it starts when the patience ends.
    else if (options.isLast !== true && running.some(({ isResolving }) => isResolving))
      this.#cancelNext = clock.after(settings().staggerMs, () => this.#awaitTier(tier, { isLast: true }));
    else this.#startNext();
  }

  /** Zero or less once the attempt has had its time. */
  #patienceLeftMs({ candidate, patienceFrom }: Attempt<C>): number {
    const { clock, patience } = this.#deps;
    return patienceFrom + patience.of(candidate.uplink.name) - clock.monotonic();
  }

  async #attempt(attempt: Attempt<C>): Promise<DialResult<C> | Bypass> {
    const { candidate, stop } = attempt;
    const { snapshot, destination } = this.#request;
    const { clock, connect, patience, segments } = this.#deps;
    const cancelDeadline = clock.after(snapshot.dialTimeoutMs, () =>
      stop.abort(new DOMException(`the dial was not done within ${snapshot.dialTimeoutMs} ms`, "TimeoutError")),
    );
    try {
      const { addresses, judgement, via } = this.#known() ?? (await this.#resolve(attempt));
      if (judgement === "direct") return { bypass: addresses, via };
      const pairs = pairUp(addresses, candidate.sources);
      if (pairs.length === 0)
        throw new DnsError("not-found", "the destination has no address of a family that the uplink has");
      const retryMs = patience.retryMs(candidate.uplink.name);
      const maxSegmentBytes = segments.of(candidate.uplink.name);
      const options = { connect, clock, signal: stop, retryMs, maxSegmentBytes };
      const { connection, pair } = await connectAny(pairs, destination.port, options);
      const { source, address } = pair;
      return { connection, uplink: candidate.uplink, source, address, maxSegmentBytes, failures: this.#failures };
    } finally {
      cancelDeadline();
    }
  }

  /** These addresses were judged before the race. */
  #known(): Resolved | undefined {
    const { known } = this.#input;
    return known.length === 0 ? undefined : { addresses: known, judgement: "uplink" };
  }

  async #resolve(attempt: Attempt<C>): Promise<Resolved> {
    const { destination, judge } = this.#request;
    const uplink = dnsUplink(attempt.candidate);
    const accepts = (addresses: readonly IpAddress[]): boolean => judge(addresses) !== "denied";
    let answer: DnsAnswer | undefined = this.#deps.dns.cached(destination.host, uplink);
    if (answer === undefined || !accepts(answer.addresses)) {
      attempt.isResolving = true;
      const ownMs = this.#deps.patience.dnsMs(uplink.name);
      const options = { others: this.#input.others(), signal: attempt.stop, accepts, ownMs };
      try {
        answer = await this.#deps.dns.resolve(destination.host, uplink, options);
      } catch (error) {
        if (!(error instanceof DnsError) || error.code !== "denied") throw error;
        throw new SelectError("denied", `${destination.text} resolves to a denied address`);
      }
      attempt.isResolving = false;
      // The uplink has answered: from now on its destination has its time.
      if (answer.via === uplink.name && !answer.isStale) attempt.patienceFrom = this.#deps.clock.monotonic();
    }
    const judgement = judge(answer.addresses);
    if (judgement === "denied") throw new SelectError("denied", `${destination.text} resolves to a denied address`);
    return { addresses: answer.addresses, judgement, via: answer.via };
  }

  /** The destination is near: the race is over, and whether it can be reached says nothing of an uplink. */
  #goDirect(attempt: Attempt<C>, { bypass, via }: Bypass): void {
    attempt.trial?.end();
    this.#forget(attempt);
    this.#end(() => this.#result.resolve(this.direct(bypass, via)));
  }

  #connected(attempt: Attempt<C>, won: DialResult<C>): void {
    const { evidence, penalties, clock, patience, rttMs } = this.#deps;
    const { text } = this.#request.destination;
    const { name } = attempt.candidate.uplink;
    const measuredMs = rttMs(won.connection);
    if (measuredMs !== undefined) patience.measured(name, measuredMs);
    // An uplink that is only slow stays behind faster ones of its cost.
    if (!attempt.isOvertaken) penalties.confirm(text, name);
    evidence.dialSucceeded(name, text);
    // If only a byte proves that the uplink works, the trial goes on with the connection.
    if (this.#isOver || !penalties.needsTrial(text, name)) attempt.trial?.end();
    if (this.#isOver) {
      this.#forget(attempt);
      won.connection.destroy();
      return;
    }
    attempt.won = won;
    // A cheaper attempt that connects in the same round of the event loop wins.
    const isCheapest = this.#running[0] === attempt;
    if (isCheapest) this.#finish();
    else this.#cancelFinish ??= clock.after(0, () => this.#finish());
  }

  #finish(): void {
    const winner = this.#running.find(({ won }) => won !== undefined);
    if (winner?.won === undefined) return;
    const { won } = winner;
    for (const other of [...this.#running]) if (other !== winner) this.#lose(other, winner);
    const { trial } = winner;
    this.#end(() => this.#result.resolve(trial === undefined ? won : { ...won, trial }), winner);
  }

  /**
   * An attempt that lost the race counts as failed if it had its time ({@link Patience}), or if an attempt of its tier that began later was faster:
   * the uplink may be dead, or only slow. In the second case the attempt goes on, and its end tells which.
   */
  #lose(attempt: Attempt<C>, winner: Attempt<C>): void {
    if (attempt.won !== undefined) return;
    const { clock, penalties, settings, patience } = this.#deps;
    const { text: target } = this.#request.destination;
    const { name } = attempt.candidate.uplink;
    // A trial continues without its request; its outcome decides about the next penalty.
    if (attempt.trial !== undefined) {
      this.#detach(attempt);
      return;
    }
    const { tierDelayMs } = settings();
    const waitedMs = clock.monotonic() - attempt.startedAt;
    const hadItsTime = tierDelayMs !== "timeout" && this.#patienceLeftMs(attempt) <= 0;
    attempt.isOvertaken = !hadItsTime && attempt.tier === winner.tier && attempt.startedAt < winner.startedAt;
    if (!hadItsTime && !attempt.isOvertaken) return;
    const text = `no answer came within ${Math.round(hadItsTime ? patience.of(name) : waitedMs)} ms`;
    const failure = { ...this.#describe(attempt.candidate, NO_ANSWER), text };
    this.#failures.push(failure);
    if (hadItsTime) {
      penalties.add(target, name);
      this.#reportFailure(failure, waitedMs);
      return;
    }
    penalties.lost(target, name);
    attempt.trial = penalties.beginTrial(target, name);
    if (attempt.trial !== undefined) this.#detach(attempt);
  }

  #reportFailure({ uplink, failure, text }: AttemptFailure, waitedMs: number): void {
    const { destination, clientKind = "host" } = this.#request;
    this.#deps.evidence.dialFailed(uplink, destination.text, failure, text, { clientKind, waitedMs });
  }

  #failed(attempt: Attempt<C>, error: unknown): void {
    const { destination } = this.#request;
    attempt.trial?.end();
    this.#forget(attempt);
    if (attempt.stop.reason === LOST) return;
    // A refusal by policy is not a failure of the uplink: it ends the request, or a trial whose request has ended.
    if (error instanceof SelectError) {
      this.#end(() => this.#result.reject(error));
      return;
    }
    const failure = this.#describe(attempt.candidate, error);
    const { penalties, refresh, clock, failedLate } = this.#deps;
    this.#reportFailure(failure, clock.monotonic() - attempt.startedAt);
    if (failure.failure === "timeout") penalties.add(destination.text, failure.uplink);
    if (failure.failure === "address-gone") refresh();
    if (this.#isOver) {
      if (!attempt.isOvertaken) failedLate(destination.text, failure);
      return;
    }
    this.#failures.push(failure);
    if (this.#running.length > 0) return;
    if (this.#next < this.#queue.length) this.#startNext();
    else this.#allFailed();
  }

  #allFailed(): void {
    this.#end(() => this.#result.reject(allFailed(this.#request.destination.text, this.#failures)));
  }

  get #nextName(): string {
    return this.#queue[this.#next]?.candidate.uplink.name ?? "";
  }

  #forget(attempt: Attempt<C>): void {
    this.#running = this.#running.filter((one) => one !== attempt);
    if (!this.#detached.includes(attempt)) return;
    this.#detached = this.#detached.filter((one) => one !== attempt);
    if (this.#detached.length === 0) this.#onIdle?.();
  }

  /** The attempt goes on without its request. */
  #detach(attempt: Attempt<C>): void {
    this.#running = this.#running.filter((one) => one !== attempt);
    this.#detached = [...this.#detached, attempt];
  }

  #describe({ uplink, sources }: Candidate, error: unknown): AttemptFailure {
    const { hasAddress } = this.#deps;
    const pair = error instanceof PairError ? error.pair : undefined;
    const source = pair?.source ?? sources[0];
    const { failure, text } = classify(pair === undefined ? error : (error as PairError).cause, source, hasAddress);
    const { name, ifName, cost } = uplink;
    return { uplink: name, ifName, cost, source: source?.toString() ?? "", failure, text };
  }

  /** The request's deadline: attempts that still run have failed by timeout. Only those that had their time are evidence. */
  #timeOut(): void {
    // A connected attempt wins without waiting for a cheaper one.
    this.#finish();
    if (this.#isOver) return;
    const { destination } = this.#request;
    for (const attempt of this.#running) {
      const { candidate, startedAt } = attempt;
      const failure = this.#describe(candidate, new DOMException("the request timed out", "TimeoutError"));
      this.#failures.push(failure);
      if (this.#patienceLeftMs(attempt) > 0) continue;
      this.#reportFailure(failure, this.#deps.clock.monotonic() - startedAt);
      this.#deps.penalties.add(destination.text, failure.uplink);
    }
    const { message, failures } = allFailed(destination.text, this.#failures);
    this.#end(() => this.#result.reject(new SelectError("timeout", message, failures)));
  }

  #end(settle: () => void, winner?: Attempt<C>): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#request.signal.removeEventListener("abort", this.#onAbort);
    this.#cancelNext?.();
    this.#cancelDeadline?.();
    this.#cancelFinish?.();
    for (const attempt of this.#running) {
      if (attempt === winner) continue;
      attempt.won?.connection.destroy();
      attempt.trial?.end();
      attempt.stop.abort(LOST);
    }
    settle();
  }
}
