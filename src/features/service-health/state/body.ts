import type { IpFamily } from "#base/ip";

/** What a probe is answered. */
export interface HealthAnswer {
  readonly code: 200 | 503;
  /** JSON. */
  readonly body: string;
}

/** How far the start has come: `adopted` means that the table of an earlier run is trusted, as the API server is away. */
export type StartupState = "pending" | "adopted" | "synced";

/** One family in an answer. */
export interface FamilyStatus {
  readonly family: IpFamily;
  readonly healthy: boolean;
  /** Milliseconds since the epoch; `undefined`: never. */
  readonly lastUpdatedMs: number | undefined;
  readonly pendingMs: number | undefined;
  readonly lastError: string | undefined;
}

/** All that an answer says. */
export interface HealthFacts {
  readonly code: 200 | 503;
  readonly nowMs: number;
  /** Absent from `/livez`, and where the gate is off. */
  readonly nodeEligible: boolean | undefined;
  /** Of the data plane alone. */
  readonly healthy: boolean;
  readonly families: readonly FamilyStatus[];
  readonly startup: StartupState;
  readonly isStopping: boolean;
}

/** As labels and keys have it. */
export function familyName(family: IpFamily): "IPv4" | "IPv6" {
  return family === 4 ? "IPv4" : "IPv6";
}

/**
 * Pure (docs/spec/service-proxy.md#1.4). Keys are in the order of kube-proxy's; ours come after, and only where the answer is 503. With 200
 * the top `lastUpdated` is the current time: old probes alert on its age, although an idle proxy is a healthy one.
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

/** What helps whoever asks why. */
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

/** `undefined` where no family has the thing: the key is then left out. */
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

/** RFC 3339 with milliseconds; Go's zero time for never. */
function timeText(ms: number | undefined): string {
  return ms === undefined ? "0001-01-01T00:00:00Z" : new Date(ms).toISOString();
}
