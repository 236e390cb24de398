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

/**
 * Declares the proxy's metrics. The labels hold interfaces and uplinks only, never what clients send. Before `observe` counters are 0, and
 * series with labels are absent.
 */
export function uplinkProxyMetrics(registry: Registry): { readonly observe: (input: MetricsInput) => void } {
  const registers = [registry];
  let input: MetricsInput | undefined;
  const total = (name: string, help: string, value: (counters: Counters) => number): void => {
    new Counter({
      name: `uplink_proxy_${name}_total`,
      help,
      registers,
      collect() {
        this.reset();
        if (input !== undefined) this.inc(value(input.counters));
      },
    });
  };
  const byPort = (name: string, help: string, values: (counters: Counters) => ReadonlyMap<string, number>): void => {
    new Counter({
      name: `uplink_proxy_${name}_total`,
      help,
      labelNames: ["interface"],
      registers,
      collect() {
        this.reset();
        if (input === undefined) return;
        for (const [ifName, value] of values(input.counters)) this.inc({ interface: ifName }, value);
      },
    });
  };
  const gauge = (
    name: string,
    help: string,
    label: string,
    values: (input: MetricsInput) => Iterable<readonly [string, number]>,
  ): void => {
    new Gauge({
      name: `uplink_proxy_${name}`,
      help,
      labelNames: [label],
      registers,
      collect() {
        this.reset();
        if (input === undefined) return;
        for (const [key, value] of values(input)) this.set({ [label]: key }, value);
      },
    });
  };
  total("requests", "CONNECT requests, including malformed requests.", (counters) => counters.requests);
  total("dial_failures", "Requests for which no connection could be made.", (counters) => counters.dialFailures);
  total("overload", "Requests refused because a limit was reached.", (counters) => counters.overload);
  total("denied", "Requests refused by policy.", (counters) => counters.denied);
  total("wrong_tokens", "Requests of pods whose credentials are wrong.", (counters) => counters.wrongTokens);
  total(
    "idle_closed",
    "Tunnels that were closed because no bytes were sent for the idle time.",
    (counters) => counters.tunnelIdleClosed,
  );
  total("replays", "Tunnels that continued over another uplink.", (counters) => counters.replays);
  total("blackholes", "Blackholed connections.", (counters) => counters.blackholes);
  byPort("tunnels", "Tunnels by interface.", (counters) => counters.successByPort);
  byPort("attempt_failures", "Attempts that failed, by interface.", (counters) => counters.failureByPort);
  byPort(
    "fallbacks",
    "Tunnels that used this interface after other interfaces had failed.",
    (counters) => counters.fallbackByPort,
  );
  byPort("sent_bytes", "Bytes from clients.", (counters) => sides(counters, "up"));
  byPort("received_bytes", "Bytes to clients.", (counters) => sides(counters, "down"));
  gauge("active_tunnels", "Tunnels that are open.", "interface", ({ counters }) => counters.tunnelsByPort);
  gauge("uplink_failed", "1 for an uplink that has an error.", "uplink", ({ snapshot }) =>
    snapshot().uplinks.map(({ name, status }) => [name, hasError(status) ? 1 : 0] as const),
  );
  gauge("penalties", "Destinations for which an uplink is tried last.", "uplink", ({ penalties }) =>
    countByUplink(penalties()),
  );
  return {
    observe: (given) => {
      input = given;
    },
  };
}

function sides({ bytesByPort }: Counters, side: "up" | "down"): Map<string, number> {
  return new Map([...bytesByPort].map(([ifName, bytes]) => [ifName, bytes[side]]));
}

function countByUplink(penalties: readonly Penalty[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { uplink } of penalties) counts.set(uplink, (counts.get(uplink) ?? 0) + 1);
  return counts;
}
