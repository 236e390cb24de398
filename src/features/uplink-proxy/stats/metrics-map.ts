/** Targets of one interface; the least recently used targets are merged into one entry (docs/spec/uplink-proxy.md#8). */
const MAX_TARGETS = 1000;
const OTHER = "_other";
/** Go's text for a time that was never set. */
const ZERO_TIME = "0001-01-01T00:00:00Z";

/** EVE's counters of one target, with EVE's keys. */
export interface UrlCounters {
  TryMsgCount: number;
  TryByteCount: number;
  SentMsgCount: number;
  SentByteCount: number;
  RecvMsgCount: number;
  RecvByteCount: number;
  /** Milliseconds. */
  TotalTimeSpent: number;
  SessionResume: number;
}

/** EVE's counters of one interface, with EVE's keys. */
export interface InterfaceMetrics {
  readonly FailureCount: number;
  readonly SuccessCount: number;
  readonly LastFailure: string;
  readonly LastSuccess: string;
  readonly AuthFailCount: number;
  readonly URLCounters: Readonly<Record<string, UrlCounters>>;
}

/** A number of closed tunnels, with the sums of their bytes and times. */
export interface ClosedTunnels {
  readonly count: number;
  readonly up: number;
  readonly down: number;
  readonly durationMs: number;
}

/** The published document: interface to counters. */
export type MetricsDocument = Readonly<Record<string, InterfaceMetrics>>;

interface Entry {
  failures: number;
  successes: number;
  lastFailure: number | undefined;
  lastSuccess: number | undefined;
  /** Least recently used first. */
  readonly targets: Map<string, UrlCounters>;
  /** The most recently used target; it need not be moved to the end again. */
  newest: string | undefined;
}

/** The counters that EVE's tools read from a file. */
export class MetricsMap {
  readonly #entries = new Map<string, Entry>();
  /** A number that grows with each change. */
  version = 0;

  /** `at` is milliseconds since the epoch. */
  attemptFailed(ifName: string, target: string, at: number): void {
    const entry = this.#entryOf(ifName);
    entry.failures += 1;
    entry.lastFailure = at;
    targetOf(entry, target).TryMsgCount += 1;
  }

  tunnelsClosed(ifName: string, target: string, { up, down, durationMs, count }: ClosedTunnels, at: number): void {
    const entry = this.#entryOf(ifName);
    entry.successes += count;
    entry.lastSuccess = at;
    const counters = targetOf(entry, target);
    counters.SentMsgCount += count;
    counters.SentByteCount += up;
    counters.RecvMsgCount += count;
    counters.RecvByteCount += down;
    counters.TotalTimeSpent += durationMs;
  }

  document(): MetricsDocument {
    const document: Record<string, InterfaceMetrics> = {};
    for (const [ifName, entry] of this.#entries) {
      document[ifName] = {
        FailureCount: entry.failures,
        SuccessCount: entry.successes,
        LastFailure: goTime(entry.lastFailure),
        LastSuccess: goTime(entry.lastSuccess),
        AuthFailCount: 0,
        URLCounters: Object.fromEntries(Array.from(entry.targets, ([target, counters]) => [target, whole(counters)])),
      };
    }
    return document;
  }

  #entryOf(ifName: string): Entry {
    this.version += 1;
    const known = this.#entries.get(ifName);
    if (known !== undefined) return known;
    const made: Entry = {
      failures: 0,
      successes: 0,
      lastFailure: undefined,
      lastSuccess: undefined,
      targets: new Map(),
      newest: undefined,
    };
    this.#entries.set(ifName, made);
    return made;
  }
}

/** Whole seconds in UTC, as RFC 3339 has it. */
export function goTime(at: number | undefined): string {
  return at === undefined ? ZERO_TIME : `${new Date(at).toISOString().slice(0, 19)}Z`;
}

function targetOf(entry: Entry, target: string): UrlCounters {
  const { targets } = entry;
  const counters = targets.get(target) ?? emptyCounters();
  if (entry.newest === target) return counters;
  entry.newest = target;
  targets.delete(target);
  targets.set(target, counters);
  if (targets.size - (targets.has(OTHER) ? 1 : 0) > MAX_TARGETS) fold(targets);
  return counters;
}

/** The least recently used target is merged into the remainder, which does not count as a target. */
function fold(targets: Map<string, UrlCounters>): void {
  for (const [target, counters] of targets) {
    if (target === OTHER) continue;
    targets.delete(target);
    targets.set(OTHER, sum(targets.get(OTHER) ?? emptyCounters(), counters));
    return;
  }
}

function sum(a: UrlCounters, b: UrlCounters): UrlCounters {
  return {
    TryMsgCount: a.TryMsgCount + b.TryMsgCount,
    TryByteCount: a.TryByteCount + b.TryByteCount,
    SentMsgCount: a.SentMsgCount + b.SentMsgCount,
    SentByteCount: a.SentByteCount + b.SentByteCount,
    RecvMsgCount: a.RecvMsgCount + b.RecvMsgCount,
    RecvByteCount: a.RecvByteCount + b.RecvByteCount,
    TotalTimeSpent: a.TotalTimeSpent + b.TotalTimeSpent,
    SessionResume: a.SessionResume + b.SessionResume,
  };
}

/** Whole milliseconds, of all tunnels together: rounding each of many short tunnels would lose their time. */
function whole(counters: UrlCounters): UrlCounters {
  return { ...counters, TotalTimeSpent: Math.round(counters.TotalTimeSpent) };
}

function emptyCounters(): UrlCounters {
  return {
    TryMsgCount: 0,
    TryByteCount: 0,
    SentMsgCount: 0,
    SentByteCount: 0,
    RecvMsgCount: 0,
    RecvByteCount: 0,
    TotalTimeSpent: 0,
    SessionResume: 0,
  };
}
