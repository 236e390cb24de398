import type { Clock } from "#base/clock";
import { Loop } from "#base/reconcile";
import type { ProbeSettings, ProbeTarget, Settings, Uplink } from "#base/uplink-model";
import { type ProbeMode, probeMode } from "./eligibility.ts";
import { type ProbeOutcome, type Prober, provesOrigin } from "./prober.ts";

/** Shortest interval of probes on a metered uplink, milliseconds (docs/spec/uplink-proxy.md#3.3). */
const METERED_INTERVAL_MS = 60_000;
/** Share of the interval by which probes are early or late. */
const JITTER = 0.2;
/** Longest wait when no probe is due, in milliseconds; a change ends the wait. */
const IDLE_MS = 3_600_000;

/** The result of one probe. */
export interface ProbeResult {
  readonly uplink: string;
  readonly target: ProbeTarget;
  readonly outcome: ProbeOutcome;
  readonly tookMs: number;
  /** The longest time until the uplink is probed again, in milliseconds. */
  readonly nextInMs: number;
}

/** The uplinks with their status, and the settings in force. */
export interface ProbeView {
  readonly settings: Settings;
  readonly uplinks: readonly Uplink[];
  /** Names of uplinks with a local fault: they are not probed. */
  readonly faulty: ReadonlySet<string>;
}

export interface ProbesDeps {
  readonly prober: Prober;
  readonly clock: Clock;
  /** Uniform in [0, 1). */
  readonly random: () => number;
  /** The present uplinks and settings; `undefined` before they are known. */
  readonly view: () => ProbeView | undefined;
  readonly report: (result: ProbeResult) => void;
}

/** State of an uplink between its probes. */
interface ProbeSchedule {
  startedAt?: number;
  /** Jitter of the next interval; drawn once. */
  jitter: number;
  round: number;
  inFlight?: AbortController;
}

/** Sends the active probes: each uplink has its own schedule, and metered ones are probed rarely. */
export class Probes {
  readonly #deps: ProbesDeps;
  readonly #loop: Loop;
  readonly #schedules = new Map<string, ProbeSchedule>();
  readonly #rounds = new Set<Promise<void>>();

  constructor(deps: ProbesDeps) {
    this.#deps = deps;
    this.#loop = new Loop({ everyMs: IDLE_MS, clock: deps.clock });
  }

  /** Settings or uplinks have changed: checks which probes are due. */
  mark(): void {
    this.#loop.wake("settings or uplinks");
  }

  /** Runs until the signal aborts and the running probes have ended. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    await this.#loop.run(async () => ({ againMs: this.#startDue(signal) }), { signal });
    await Promise.all(this.#rounds);
  }

  /** Starts due probes and aborts unwanted ones; returns the time until the next probe is due, in milliseconds. */
  #startDue(signal: AbortSignal): number {
    const view = this.#deps.view();
    if (view === undefined) return IDLE_MS;
    const { uplinks, settings, faulty } = view;
    const now = this.#deps.clock.monotonic();
    let waitMs = IDLE_MS;
    for (const uplink of uplinks) {
      const isAsked = settings.probe.targets.length > 0 && !faulty.has(uplink.name);
      const mode = isAsked ? probeMode(uplink, uplinks, settings) : "never";
      const schedule = this.#scheduleOf(uplink.name);
      if (mode === "never") schedule.inFlight?.abort();
      if (mode === "never" || schedule.inFlight !== undefined) continue;
      const dueAt = this.#dueAt(schedule, mode, settings.probe);
      if (dueAt <= now) this.#start(uplink, mode, settings.probe, signal);
      else waitMs = Math.min(waitMs, dueAt - now);
    }
    this.#forgetOthers(uplinks);
    return waitMs;
  }

  #scheduleOf(uplink: string): ProbeSchedule {
    const known = this.#schedules.get(uplink);
    if (known !== undefined) return known;
    const schedule: ProbeSchedule = { jitter: 0, round: 0 };
    this.#schedules.set(uplink, schedule);
    return schedule;
  }

  #forgetOthers(uplinks: readonly Uplink[]): void {
    for (const [name, schedule] of this.#schedules) {
      if (uplinks.some((uplink) => uplink.name === name)) continue;
      schedule.inFlight?.abort();
      this.#schedules.delete(name);
    }
  }

  #dueAt({ startedAt, jitter }: ProbeSchedule, mode: ProbeMode, probe: ProbeSettings): number {
    if (startedAt === undefined) return Number.NEGATIVE_INFINITY;
    return startedAt + gapMs(mode, probe, jitter);
  }

  #start(uplink: Uplink, mode: ProbeMode, probe: ProbeSettings, signal: AbortSignal): void {
    const round = this.#round(uplink, mode, probe, signal).finally(() => this.#rounds.delete(round));
    this.#rounds.add(round);
  }

  /**
   * Probes the targets in order until one answers; on a metered uplink it probes only one target. After a foreign answer only an answer
   * that no captive portal gives counts.
   */
  async #round(uplink: Uplink, mode: ProbeMode, probe: ProbeSettings, signal: AbortSignal): Promise<void> {
    const { clock, random, prober, report } = this.#deps;
    const schedule = this.#scheduleOf(uplink.name);
    const inFlight = new AbortController();
    schedule.inFlight = inFlight;
    schedule.startedAt = clock.monotonic();
    schedule.jitter = random() * 2 - 1;
    const targets = mode === "metered" ? oneOf(probe.targets, schedule.round) : probe.targets;
    schedule.round += 1;
    let last: ProbeResult | undefined;
    for (const target of targets) {
      const startedAt = clock.monotonic();
      const both = AbortSignal.any([inFlight.signal, signal]);
      const outcome = await prober.probe(uplink, target, { timeoutMs: probe.timeoutMs, signal: both });
      if (both.aborted) break;
      const result = {
        uplink: uplink.name,
        target,
        outcome,
        tookMs: clock.monotonic() - startedAt,
        nextInMs: gapMs(mode, probe, 1),
      };
      if (outranks(result, last)) last = result;
      if (last?.outcome.kind === "ok") break;
    }
    delete schedule.inFlight;
    if (last !== undefined && !inFlight.signal.aborted && !signal.aborted) report(last);
    this.#loop.wake("probe ended");
  }
}

/** Pure: whether a result says more of the uplink than the one before it in its round. */
function outranks({ target, outcome }: ProbeResult, before: ProbeResult | undefined): boolean {
  if (before === undefined) return true;
  if (outcome.kind === "skipped") return false;
  return before.outcome.kind !== "foreign" || (outcome.kind === "ok" && provesOrigin(target));
}

/** The time between the starts of two probes. `jitter`: -1 to 1. */
function gapMs(mode: ProbeMode, { intervalMs }: ProbeSettings, jitter: number): number {
  const gap = intervalMs * (1 + JITTER * jitter);
  return mode === "metered" ? Math.max(METERED_INTERVAL_MS, gap) : gap;
}

function oneOf(targets: readonly ProbeTarget[], round: number): readonly ProbeTarget[] {
  const target = targets[round % Math.max(1, targets.length)];
  return target === undefined ? [] : [target];
}
