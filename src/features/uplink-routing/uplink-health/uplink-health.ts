import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import {
  type DialFailure,
  type Evidence,
  type FailureContext,
  hasError,
  type Settings,
  type Uplink,
  type UplinkStatus,
} from "#base/uplink-model";
import { describeTarget, openProber, type Prober, provesOrigin, provesPayload } from "./prober.ts";
import { type ProbeResult, Probes, type ProbeView } from "./probes.ts";
import { type ReportKind, type Timestamps, UplinkRecord } from "./uplink-record.ts";

/** Reachability of an uplink, for a snapshot. */
export interface UplinkHealthState {
  readonly status: UplinkStatus;
  readonly lastProbe?: string;
}

/** An uplink with its local fault. */
export interface ObservedUplink {
  readonly uplink: Uplink;
  /** The local reason why the uplink cannot work. */
  readonly fault?: string | undefined;
}

export interface UplinkHealthDeps {
  readonly prober?: Prober;
  readonly log: Logger;
  readonly clock: Clock;
  /** Uniform in [0, 1). */
  readonly random?: () => number;
  /** Called after a change of {@link UplinkHealth.stateOf}. */
  readonly changed: () => void;
}

interface Entry {
  readonly record: UplinkRecord;
  /** The last status of the settings; a change is reported to the record. */
  reported: string;
  /** The mode of the settings is `external`. */
  isExternal: boolean;
  uplink: Uplink;
  fault: { readonly text: string; readonly since: number } | undefined;
  lastProbe?: string;
  shown: string;
  cancelRelease: (() => void) | undefined;
}

/** Decides which uplinks have failed (docs/spec/uplink-proxy.md#3.3): judged by traffic, local conditions and probes. */
export class UplinkHealth implements Evidence {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #changed: () => void;
  readonly #entries = new Map<string, Entry>();
  readonly #probes: Probes;
  #settings: Settings | undefined;

  constructor(deps: UplinkHealthDeps) {
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#changed = deps.changed;
    this.#probes = new Probes({
      prober: deps.prober ?? openProber(),
      clock: this.#clock,
      random: deps.random ?? Math.random,
      view: () => this.#view(),
      report: (result) => this.#probed(result),
    });
  }

  /** Sends probes until the signal aborts. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    await this.#probes.run({ signal });
    for (const { cancelRelease } of this.#entries.values()) cancelRelease?.();
  }

  /** Sets the present uplinks: adds new ones, drops removed ones, and applies local faults at once. */
  observe(settings: Settings, observed: readonly ObservedUplink[]): void {
    this.#settings = settings;
    for (const { uplink, fault } of observed) this.#take(uplink, fault, settings);
    for (const [name, entry] of this.#entries) {
      if (observed.some(({ uplink }) => uplink.name === name)) continue;
      entry.cancelRelease?.();
      this.#entries.delete(name);
    }
    this.#probes.mark();
  }

  /** `undefined` for an uplink that was not observed. */
  stateOf(uplink: string): UplinkHealthState | undefined {
    const entry = this.#entries.get(uplink);
    if (entry === undefined) return undefined;
    return { status: effective(entry), ...(entry.lastProbe === undefined ? {} : { lastProbe: entry.lastProbe }) };
  }

  /** Status of each uplink from traffic, probes and agents, without local faults, which each process reads itself. */
  get statuses(): Readonly<Record<string, UplinkStatus>> {
    return Object.fromEntries([...this.#entries].map(([name, { record }]) => [name, record.status]));
  }

  /** An agent reports the status of an uplink (docs/spec/uplink-proxy.md#2.2). False if there is no such uplink. */
  reportStatus(uplink: string, status: UplinkStatus): boolean {
    const kind = this.#kindOf(uplink, "once");
    return this.#update(uplink, "reported by an agent", (record, at) => record.report(at, status, kind));
  }

  /** The process that sends the probes reports the status: a failure lasts until {@link withdrawStatus}. False if there is no such uplink. */
  followStatus(uplink: string, status: UplinkStatus): boolean {
    const kind = this.#kindOf(uplink, "followed");
    const evidence = "reported by the process that sends the probes";
    return this.#update(uplink, evidence, (record, at) => record.report(at, status, kind));
  }

  /**
   * The process that sends the probes is gone: what it reported of an uplink no longer counts. False if it still does, because only the
   * agent of an `external` uplink ends its failure.
   */
  withdrawStatus(uplink: string): boolean {
    if (this.#entries.get(uplink)?.isExternal === true) return false;
    this.#update(uplink, "the process that sends the probes has ended: on trial", (record) => record.withdraw());
    return true;
  }

  dialSucceeded(uplink: string, destination: string): void {
    this.#update(uplink, `connected to ${destination}`, (record, at) => record.connected(at));
  }

  dialFailed(uplink: string, destination: string, failure: DialFailure, text: string, context: FailureContext): void {
    if (failure === "refused") {
      this.#update(uplink, `${destination} refused`, (record, at) => record.connected(at));
    } else if (failure === "timeout" || failure === "unreachable") {
      const why = `dial: ${destination}: ${text === "" ? failure : text}`;
      this.#noteFailure(uplink, why, (record, at) => record.dialFailed(at, { destination, text: why, ...context }));
    }
  }

  firstByte(uplink: string, destination: string): void {
    this.#update(uplink, `${destination} answered`, (record, at) => record.firstByte(at));
  }

  bytesReceived(uplink: string): void {
    this.#update(uplink, "bytes in a tunnel", (record, at) => record.bytesReceived(at));
  }

  blackholed(uplink: string, destination: string, context: FailureContext): void {
    const why = `blackhole: ${destination}: connected, then nothing came`;
    this.#noteFailure(uplink, why, (record, at) => record.blackholed(at, { destination, text: why, ...context }));
  }

  stalled(uplink: string, destination: string, context: FailureContext): void {
    const why = `dial: ${destination}: stalled`;
    this.#noteFailure(uplink, why, (record, at) => record.dialFailed(at, { destination, text: why, ...context }));
  }

  #take(uplink: Uplink, fault: string | undefined, settings: Settings): void {
    const said = settings.uplinks.find(({ name }) => name === uplink.name)?.status ?? uplink.status;
    const reported = JSON.stringify(said);
    const kind = this.#kindOf(uplink.name, "once");
    const isExternal = kind === "binding";
    const entry = this.#entries.get(uplink.name) ?? {
      record: new UplinkRecord(this.#now(), said, kind),
      reported,
      isExternal,
      uplink,
      fault: undefined,
      shown: flagOf(said),
      cancelRelease: undefined,
    };
    this.#entries.set(uplink.name, entry);
    entry.uplink = uplink;
    if (entry.reported !== reported) entry.record.report(this.#now(), said, kind);
    // A report that was binding is one source among several from now on.
    else if (entry.isExternal && !isExternal) entry.record.report(this.#now(), entry.record.status, kind);
    entry.reported = reported;
    entry.isExternal = isExternal;
    if (entry.fault === undefined && fault !== undefined) entry.record.forgetFailures();
    if (fault === undefined) entry.fault = undefined;
    else if (entry.fault?.text !== fault) entry.fault = { text: fault, since: this.#clock.now() };
    this.#schedule(entry);
    this.#show(entry, fault ?? (said.lastError === "" ? "local conditions" : said.lastError));
  }

  #probed({ uplink, target, outcome, tookMs, nextInMs }: ProbeResult): void {
    const probe = this.#settings?.probe;
    const entry = this.#entries.get(uplink);
    if (probe === undefined || entry === undefined) return;
    const name = describeTarget(target);
    const text = outcome.kind === "ok" ? `ok ${Math.round(tookMs)} ms` : `${WORDS[outcome.kind]}: ${outcome.reason}`;
    const shown = `${name} ${text}`;
    if (outcome.kind === "skipped") {
      if (entry.lastProbe !== shown) this.#log.warn("an uplink cannot be probed", { uplink, probe: shown });
      entry.lastProbe = shown;
      this.#changed();
      return;
    }
    entry.lastProbe = shown;
    this.#update(uplink, `probe: ${name} ${text}`, (record, at) => {
      if (outcome.kind === "failed")
        record.probeFailed(at, `probe: ${name}: ${outcome.reason}`, { ...probe, nextInMs });
      else if (outcome.kind === "foreign")
        record.foreignAnswer(at, `captive portal: ${name}: ${outcome.reason}`, { ...probe, nextInMs });
      else
        record.probeSucceeded(at, {
          recoverAfter: probe.recoverAfter,
          provesPayload: provesPayload(target),
          provesOrigin: provesOrigin(target),
        });
    });
    this.#changed();
  }

  /** Ignored while a local fault lasts: the failure follows from the local fault and must not last longer. */
  #noteFailure(uplink: string, evidence: string, change: (record: UplinkRecord, at: Timestamps) => void): void {
    if (this.#entries.get(uplink)?.fault === undefined) this.#update(uplink, evidence, change);
  }

  #update(uplink: string, evidence: string, change: (record: UplinkRecord, at: Timestamps) => void): boolean {
    const entry = this.#entries.get(uplink);
    if (entry === undefined) return false;
    change(entry.record, this.#now());
    this.#schedule(entry);
    this.#show(entry, evidence);
    return true;
  }

  #now(): Timestamps {
    return { wall: this.#clock.now(), monotonic: this.#clock.monotonic() };
  }

  /** Schedules the end of a failure without new evidence. */
  #schedule(entry: Entry): void {
    entry.cancelRelease?.();
    entry.cancelRelease = undefined;
    const { holdUntil } = entry.record;
    if (holdUntil === undefined) return;
    const release = (): void => {
      this.#update(entry.uplink.name, "no evidence for a while: on trial", (record, at) => record.release(at));
    };
    entry.cancelRelease = this.#clock.after(holdUntil - this.#clock.monotonic(), release, { unref: true });
  }

  /** Logs a change of the flag once, and reports it. */
  #show(entry: Entry, evidence: string): void {
    const flag = flagOf(effective(entry));
    if (flag === entry.shown) return;
    const fields = { uplink: entry.uplink.name, from: entry.shown, to: flag, evidence };
    entry.shown = flag;
    if (flag === "failed") this.#log.warn("uplink failed", fields);
    else this.#log.info("uplink works again", fields);
    this.#probes.mark();
    this.#changed();
  }

  #view(): ProbeView | undefined {
    const settings = this.#settings;
    const entries = [...this.#entries.values()];
    return (
      settings && {
        settings,
        uplinks: entries.map((entry) => ({ ...entry.uplink, status: effective(entry) })),
        faulty: new Set(entries.filter(({ fault }) => fault !== undefined).map(({ uplink }) => uplink.name)),
      }
    );
  }

  /** For uplinks of mode `external` the agent's report is binding; for others the report is one source among several. */
  #kindOf(uplink: string, otherwise: ReportKind): ReportKind {
    const mode = this.#settings?.uplinks.find(({ name }) => name === uplink)?.mode;
    return mode === "external" ? "binding" : otherwise;
  }
}

/** The outcomes of a probe without a success, for people. */
const WORDS = { failed: "failed", foreign: "captive portal", skipped: "not possible" } as const;

/** The status in effect: a local fault overrides the record and does not change it. */
function effective({ record, fault }: Entry): UplinkStatus {
  if (fault === undefined) return record.status;
  const { lastSucceeded, lastWarning } = record.status;
  return {
    ...(lastSucceeded === undefined ? {} : { lastSucceeded }),
    lastFailed: Math.max(fault.since, (lastSucceeded ?? 0) + 1),
    lastError: fault.text,
    lastWarning,
  };
}

function flagOf(status: UplinkStatus): string {
  return hasError(status) ? "failed" : "ok";
}
