import type { IpFamily } from "#base/ip";

/** Answer to a probe. */
export interface HealthAnswer {
  readonly code: 200 | 503;
  /** JSON. */
  readonly body: string;
}

/** State of the start. `adopted`: the complete table of an earlier run counts. */
export type StartupState = "pending" | "adopted" | "synced";

/** State of one family in an answer. */
export interface FamilyStatus {
  readonly family: IpFamily;
  readonly healthy: boolean;
  /** Milliseconds since the epoch; `undefined`: never. */
  readonly lastUpdatedMs: number | undefined;
  readonly pendingMs: number | undefined;
  readonly lastError: string | undefined;
}

/** Everything that an answer contains. */
export interface HealthFacts {
  readonly code: 200 | 503;
  readonly nowMs: number;
  /** Absent in `/livez`, and if the feature gate is off. */
  readonly nodeEligible: boolean | undefined;
  /** Health of the data plane alone. */
  readonly healthy: boolean;
  readonly families: readonly FamilyStatus[];
  readonly startup: StartupState;
  readonly isStopping: boolean;
}

/** Name of a family in labels and keys. */
export function familyName(family: IpFamily): "IPv4" | "IPv6" {
  return family === 4 ? "IPv4" : "IPv6";
}

/**
 * The JSON text of an answer (docs/spec/service-proxy.md#1.4). kube-proxy's keys come first, in its order; our own keys follow, only with
 * 503. With 200 the top `lastUpdated` is the current time: some monitoring programs raise an alert for an old time, although an idle proxy
 * is healthy. Pure.
 */
export function healthBody(facts: HealthFacts): string {
  const { code, nowMs, nodeEligible, healthy, families } = facts;
  const newest = families.reduce<number | undefined>(
    (latest, { lastUpdatedMs: at }) => (at === undefined || (latest ?? at) > at ? latest : at),
    undefined,
  );
  const status = byFamily(families, ({ lastUpdatedMs, healthy: isHealthy }) => ({
    lastUpdated: timeText(lastUpdatedMs),
    healthy: isHealthy,
  }));
  return JSON.stringify({
    lastUpdated: timeText(code === 200 ? nowMs : newest),
    currentTime: timeText(nowMs),
    nodeEligible,
    healthy,
    status,
    ...(code === 503 ? reasons(facts) : {}),
  });
}

/** The keys that explain a 503. */
function reasons({ families, startup, isStopping }: HealthFacts): object {
  return {
    startup,
    pendingSeconds: byFamily(families, ({ pendingMs }) =>
      pendingMs === undefined ? undefined : Math.round(pendingMs) / 1000,
    ),
    lastError: byFamily(families, ({ lastError }) => lastError),
    stopping: isStopping ? true : undefined,
  };
}

/** Values by family; `undefined` if no family has a value: the key is then left out. */
function byFamily<T>(
  families: readonly FamilyStatus[],
  read: (family: FamilyStatus) => T | undefined,
): Readonly<Record<string, T>> | undefined {
  const found = families.flatMap((one) => {
    const value = read(one);
    return value === undefined ? [] : [[familyName(one.family), value] as const];
  });
  return found.length === 0 ? undefined : Object.fromEntries(found);
}

/** The time in RFC 3339 with milliseconds; `undefined`, which means never, is Go's zero time. */
function timeText(ms: number | undefined): string {
  return ms === undefined ? "0001-01-01T00:00:00Z" : new Date(ms).toISOString();
}
