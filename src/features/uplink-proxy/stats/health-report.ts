import type { Clock } from "#base/clock";
import { formatListenAddress } from "#base/config";
import { hasError, type ListenerSettings, type Snapshot, type Uplink } from "#base/uplink-model";
import type { Penalty } from "../select/index.ts";
import type { Counters } from "./counters.ts";
import { goTime } from "./metrics-map.ts";

/** The input of /healthz besides the counters. */
export interface HealthInput {
  readonly clock: Clock;
  readonly snapshot: Snapshot;
  readonly counters: Counters;
  readonly penalties: readonly Penalty[];
  readonly listeners: readonly ListenerSettings[];
  /** Names of listeners that are bound. */
  readonly bound: ReadonlySet<string>;
  readonly version: string;
  /** Monotonic milliseconds. */
  readonly startedAt: number;
  readonly staleDnsAnswers: number;
  /** Further keys from the program: `configError`, `env`. */
  readonly more: Readonly<Record<string, unknown>>;
}

/** The object of GET /healthz (docs/spec/uplink-proxy.md#8); EVE's keys come first, then our own. */
export function healthReport(input: HealthInput): Record<string, unknown> {
  const { snapshot, counters, listeners, bound, clock } = input;
  const host = listeners.find(({ role }) => role === "host");
  const management = snapshot.uplinks.filter(({ isManagement }) => isManagement);
  return {
    listening: host === undefined ? "" : listenText(host),
    cni0Listening: listeners.some(({ role, name }) => role === "pod" && bound.has(name)),
    ready: snapshot.ready,
    maxPortCost: snapshot.maxCost,
    ports: management.map(portSummary),
    requests: counters.requests,
    dialFailures: counters.dialFailures,
    denied: counters.denied,
    wrongTokens: counters.wrongTokens,
    notReady: counters.notReady,
    tunnelIdleClosed: counters.tunnelIdleClosed,
    bytesUp: counters.bytesUp,
    bytesDown: counters.bytesDown,
    successByPort: Object.fromEntries(counters.successByPort),
    failureByPort: Object.fromEntries(counters.failureByPort),
    ...lastOutcomes(counters),
    version: input.version,
    uptimeSeconds: Math.floor((clock.monotonic() - input.startedAt) / 1000),
    fallbackByPort: Object.fromEntries(counters.fallbackByPort),
    activeTunnels: counters.activeTunnels,
    tunnelsByPort: Object.fromEntries(counters.tunnelsByPort),
    replays: counters.replays,
    blackholes: counters.blackholes,
    overload: counters.overload,
    staleDnsAnswers: input.staleDnsAnswers,
    penalties: input.penalties.map(({ destination, uplink, until }) => ({
      destination,
      uplink,
      untilSeconds: Math.max(0, Math.ceil((until - clock.monotonic()) / 1000)),
    })),
    costExcluded: management.filter(({ cost }) => cost > snapshot.maxCost).map(({ name }) => name),
    uplinks: snapshot.uplinks.map(uplinkDetail),
    ...input.more,
  };
}

function portSummary(uplink: Uplink): Record<string, unknown> {
  const isFailed = hasError(uplink.status);
  const { lastError } = uplink.status;
  const usable = uplink.addresses.find(({ address, isUsable }) => isUsable && !address.isLinkLocal);
  return {
    ifname: uplink.ifName,
    cost: uplink.cost,
    isMgmt: uplink.isManagement,
    ...(isFailed ? { hasError: true } : {}),
    ...(lastError === "" ? {} : { lastError }),
    numAddrs: uplink.addresses.length,
    ...(usable === undefined ? {} : { usableAddr: usable.address.toString() }),
  };
}

function uplinkDetail(uplink: Uplink): Record<string, unknown> {
  const { name, ifName, cost, weight, isUp, table, gateway4, gateway6, dnsServers, lastProbe } = uplink;
  return {
    name,
    ifname: ifName,
    cost,
    weight,
    isUp,
    ...(table === undefined ? {} : { table }),
    addresses: uplink.addresses.map(({ address, prefixLength }) => `${address}/${prefixLength}`),
    ...(gateway4 === undefined ? {} : { gateway4: gateway4.toString() }),
    ...(gateway6 === undefined ? {} : { gateway6: gateway6.toString() }),
    dnsServers: dnsServers.map((server) => server.toString()),
    ...(lastProbe === undefined ? {} : { lastProbe }),
  };
}

function lastOutcomes({ lastSuccess, lastError }: Counters): Record<string, unknown> {
  return {
    ...(lastSuccess === undefined
      ? {}
      : {
          lastSuccessTime: goTime(lastSuccess.at),
          lastSuccessTarget: lastSuccess.target,
          lastSuccessPort: lastSuccess.ifName,
          lastSuccessCost: lastSuccess.cost,
        }),
    ...(lastError === undefined ? {} : { lastErrorTime: goTime(lastError.at), lastError: lastError.text }),
  };
}

/** `127.0.0.1:5443`. */
export function listenText({ address, port }: Pick<ListenerSettings, "address" | "port">): string {
  return formatListenAddress({ host: address.toString(), port });
}
