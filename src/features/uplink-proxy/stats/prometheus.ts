import { Counter, Gauge, type Registry } from "#base/metrics";
import { hasError, type Snapshot } from "#base/uplink-model";
import type { Penalty } from "../select/index.ts";
import type { Counters } from "./counters.ts";

/** The sources of the metrics, read when they are scraped. */
export interface MetricsInput {
  readonly counters: Counters;
  readonly snapshot: () => Snapshot;
  readonly penalties: () => readonly Penalty[];
}

/** Registers the proxy's metrics. The labels hold interfaces and uplinks only, never what clients send. */
export function registerMetrics(registry: Registry, { counters, snapshot, penalties }: MetricsInput): void {
  const registers = [registry];
  const total = (name: string, help: string, value: () => number): void => {
    new Counter({
      name: `uplink_proxy_${name}_total`,
      help,
      registers,
      collect() {
        this.reset();
        this.inc(value());
      },
    });
  };
  const byPort = (name: string, help: string, values: () => ReadonlyMap<string, number>): void => {
    new Counter({
      name: `uplink_proxy_${name}_total`,
      help,
      labelNames: ["interface"],
      registers,
      collect() {
        this.reset();
        for (const [ifName, value] of values()) this.inc({ interface: ifName }, value);
      },
    });
  };
  const gauge = (
    name: string,
    help: string,
    label: string,
    values: () => Iterable<readonly [string, number]>,
  ): void => {
    new Gauge({
      name: `uplink_proxy_${name}`,
      help,
      labelNames: [label],
      registers,
      collect() {
        this.reset();
        for (const [key, value] of values()) this.set({ [label]: key }, value);
      },
    });
  };
  total("requests", "CONNECT requests, malformed ones too.", () => counters.requests);
  total("dial_failures", "Requests for which no connection could be made.", () => counters.dialFailures);
  total("overload", "Requests refused because a limit was reached.", () => counters.overload);
  total("denied", "Requests refused by policy.", () => counters.denied);
  total("idle_closed", "Tunnels ended for silence.", () => counters.tunnelIdleClosed);
  total("replays", "Tunnels that went on over another uplink.", () => counters.replays);
  total("blackholes", "Blackholed connections.", () => counters.blackholes);
  byPort("tunnels", "Tunnels by interface.", () => counters.successByPort);
  byPort("attempt_failures", "Attempts that failed, by interface.", () => counters.failureByPort);
  byPort("fallbacks", "Tunnels that took an interface after others had failed.", () => counters.fallbackByPort);
  byPort("sent_bytes", "Bytes from clients.", () => sides(counters, "up"));
  byPort("received_bytes", "Bytes to clients.", () => sides(counters, "down"));
  gauge("active_tunnels", "Tunnels that are open.", "interface", () => counters.tunnelsByPort);
  gauge("uplink_failed", "1 for an uplink that has an error.", "uplink", () =>
    snapshot().uplinks.map(({ name, status }) => [name, hasError(status) ? 1 : 0] as const),
  );
  gauge("penalties", "Destinations for which an uplink is a last resort.", "uplink", () => countByUplink(penalties()));
}

function sides({ bytesByPort }: Counters, side: "up" | "down"): Map<string, number> {
  return new Map([...bytesByPort].map(([ifName, bytes]) => [ifName, bytes[side]]));
}

function countByUplink(penalties: readonly Penalty[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { uplink } of penalties) counts.set(uplink, (counts.get(uplink) ?? 0) + 1);
  return counts;
}
