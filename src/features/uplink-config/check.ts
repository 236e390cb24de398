import * as v from "valibot";
import type { ListenerSettings, Settings } from "#base/uplink-model";
import { settingsOf } from "./fill.ts";
import { describeIssue, isSurplusKey } from "./issues.ts";
import { type ConfigFile, configFile, type UplinkEntry } from "./schema.ts";

/** Maximum number of faults that a message lists; further faults are only counted. */
export const MAX_FAULTS = 20;

/** Pure: all faults of single values. valibot reports only one surplus key at a time: each one is removed, and the rest checked again. */
export function checkValues(value: unknown): { readonly entry?: ConfigFile; readonly faults: readonly string[] } {
  const surplus: string[] = [];
  for (let rest = value; ; ) {
    const result = v.safeParse(configFile, rest);
    if (result.success) return { entry: result.output, faults: surplus };
    const keys = result.issues.filter(isSurplusKey);
    surplus.push(...keys.map(describeIssue));
    const others = result.issues.filter((issue) => !isSurplusKey(issue));
    if (keys.length === 0 || surplus.length > MAX_FAULTS) return { faults: [...others.map(describeIssue), ...surplus] };
    rest = keys.reduce(
      (at, { path = [] }) =>
        without(
          at,
          path.map(({ key }) => key),
        ),
      rest,
    );
  }
}

/** Returns a copy of the value without the part at the path. */
function without(value: unknown, [key, ...rest]: readonly unknown[]): unknown {
  const entries = Object.entries(value as Record<string, unknown>);
  const kept = entries.flatMap(([name, inner]): [string, unknown][] => {
    if (name !== String(key)) return [[name, inner]];
    return rest.length === 0 ? [] : [[name, without(inner, rest)]];
  });
  return Array.isArray(value) ? kept.map(([, inner]) => inner) : Object.fromEntries(kept);
}

/** Pure: faults that only two or more values together show. */
export function checkTogether(file: ConfigFile): string[] {
  const names = new Map<string, number>();
  const faults: string[] = [];
  for (const [at, entry] of (file.uplinks ?? []).entries()) {
    const path = `uplinks[${at}]`;
    const first = names.get(entry.name);
    if (first !== undefined)
      faults.push(`${path}.name: "${entry.name}" is also the name of uplinks[${first}]; use different names`);
    else names.set(entry.name, at);
    if (entry.mode === "static" && (entry.addresses ?? []).length === 0) {
      faults.push(
        `${path}.addresses: is missing: a static uplink needs addresses; list them, or set mode to "observe"`,
      );
    }
    for (const family of [4, 6] as const) {
      const gateway = family === 4 ? entry.gateway4 : entry.gateway6;
      if (gateway && gateway.family !== family) faults.push(`${path}.gateway${family}: ${gateway} is not IPv${family}`);
    }
  }
  const settings = settingsOf(file);
  const { dns, selection } = settings;
  if (dns.minTtlMs > dns.maxTtlMs) faults.push(`dns.minTtlMs: must not be above dns.maxTtlMs, ${dns.maxTtlMs}`);
  if (selection.penaltyMs > selection.penaltyMaxMs) {
    faults.push(`selection.penaltyMs: must not be above selection.penaltyMaxMs, ${selection.penaltyMaxMs}`);
  }
  const { nodeIP, prefixLength } = settings.cluster;
  if (nodeIP !== undefined && (prefixLength ?? 0) > nodeIP.bits) {
    faults.push(`cluster.prefixLength: must be at most ${nodeIP.bits} for ${nodeIP}, not ${prefixLength}`);
  }
  faults.push(...clashes(settings.listeners), ...openListeners(settings.listeners), ...tableFaults(settings));
  return faults;
}

/**
 * Faults of host listeners not on loopback: they have no authentication and allow nearly all destinations (docs/spec/uplink-proxy.md#4).
 */
function openListeners(listeners: readonly ListenerSettings[]): string[] {
  return listeners.flatMap(({ role, address }, at) =>
    role !== "host" || address.isLoopback
      ? []
      : [`listeners[${at}].address: must be a loopback address, such as 127.0.0.1, for role "host", not ${address}`],
  );
}

/** Tables that others own (rtnetlink.h, docs/spec/uplink-proxy.md#3.1): a `local default` route in such a table would cut the host off. */
const OWNED_TABLES = new Map([
  [253, "default table"],
  [254, "main table"],
  [255, "local table"],
  [400, "table of Services"],
]);

function tableFaults({ transparent, routing }: Settings): string[] {
  const { enabled, table } = transparent;
  if (!enabled) return [];
  const owned = OWNED_TABLES.get(table);
  const whose =
    owned === undefined
      ? `used for an uplink: tables of uplinks begin above routing.tableBase, ${routing.tableBase}`
      : `the ${owned}`;
  if (owned === undefined && table <= routing.tableBase) return [];
  return [`transparent.table: ${table} is ${whose}; choose a table that nothing uses, such as 499`];
}

function clashes(listeners: readonly ListenerSettings[]): string[] {
  const faults: string[] = [];
  for (const [at, one] of listeners.entries()) {
    const before = listeners.slice(0, at);
    if (before.some(({ name }) => name === one.name)) faults.push(`listeners[${at}].name: "${one.name}" is used twice`);
    if (before.some(({ address, port }) => address.equals(one.address) && port === one.port)) {
      const path = one.role === "transparent" ? "transparent.port" : `listeners[${at}]`;
      faults.push(`${path}: ${one.address} port ${one.port} is used by another listener; choose another port`);
    }
  }
  return faults;
}

/** Pure: refuses uplinks with the source address or interface of an earlier uplink, because rules and tables cannot distinguish them. */
export function distinctUplinks(entries: readonly UplinkEntry[]): {
  readonly uplinks: UplinkEntry[];
  readonly refused: string[];
} {
  const uplinks: UplinkEntry[] = [];
  const refused: string[] = [];
  const owners = new Map<string, string>();
  for (const entry of entries) {
    const marks = [
      `interface ${entry.interface}`,
      ...(entry.addresses ?? []).map(({ address }) => `source address ${address}`),
    ];
    const shared = marks.find((mark) => owners.has(mark));
    if (shared === undefined) {
      uplinks.push(entry);
      for (const mark of marks) owners.set(mark, entry.name);
    } else {
      refused.push(
        `uplink ${entry.name} is ignored: uplink ${owners.get(shared)} has the same ${shared}; use different ones`,
      );
    }
  }
  return { uplinks, refused };
}
