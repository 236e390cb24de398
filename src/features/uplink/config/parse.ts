import * as v from "valibot";
import { LineCounter, parseDocument } from "yaml";
import type { IpAddress } from "#base/ip";
import type { ListenerSettings, Settings, UplinkSettings, UplinkStatus } from "../model/index.ts";
import {
  DEFAULT_SETTINGS,
  DIAL_TIMEOUT_MS,
  HOST_ADDRESS,
  HOST_ADDRESS_6,
  POD_ADDRESS,
  POD_BRIDGE,
  POD_PORTS,
  PROXY_PORT,
} from "./defaults.ts";
import { UplinkConfigError } from "./errors.ts";
import { describeIssue, isSurplusKey } from "./issues.ts";
import { type ConfigFile, configFile, type ListenerEntry, type UplinkEntry } from "./schema.ts";

/** So many faults are told; the rest are counted. */
const MAX_FAULTS_TOLD = 20;

/** A file that is in force, perhaps without some of its uplinks. */
export interface ParsedSettings {
  readonly settings: Settings;
  /** Uplinks that cannot be told from an earlier one, each with the reason and what to do. */
  readonly refused: readonly string[];
  /** What an operator should know and need not change. */
  readonly notes: readonly string[];
}

/**
 * Pure: reads a configuration in JSON or YAML; `file` is its name in messages. Throws {@link UplinkConfigError} `invalid`
 * with every fault, by its path.
 */
export function parseSettings(source: string, file: string): ParsedSettings {
  const checked = checkAll(parseText(source, file));
  const faults = [...checked.faults, ...(checked.entry === undefined ? [] : faultsOf(checked.entry))];
  if (checked.entry === undefined || faults.length > 0) throw invalid(file, faults);
  const { entry } = checked;
  const { uplinks, refused } = distinct(entry.uplinks ?? []);
  const notes = entry.dialTimeoutMs === 0 ? [`dialTimeoutMs 0 is taken as the default, ${DIAL_TIMEOUT_MS} ms`] : [];
  return { settings: settingsOf(entry, uplinks.map(uplinkSettings)), refused, notes };
}

/** All faults of single values. A schema tells of one key too many at a time: that one goes, and it is asked again. */
function checkAll(value: unknown): { readonly entry?: ConfigFile; readonly faults: readonly string[] } {
  const surplus: string[] = [];
  for (let rest = value; ; ) {
    const result = v.safeParse(configFile, rest);
    if (result.success) return { entry: result.output, faults: surplus };
    const keys = result.issues.filter(isSurplusKey);
    surplus.push(...keys.map(describeIssue));
    const others = result.issues.filter((issue) => !isSurplusKey(issue));
    if (keys.length === 0 || surplus.length > MAX_FAULTS_TOLD)
      return { faults: [...others.map(describeIssue), ...surplus] };
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

/** A copy without what is at the path. */
function without(value: unknown, [key, ...rest]: readonly unknown[]): unknown {
  const entries = Object.entries(value as Record<string, unknown>);
  const kept = entries.flatMap(([name, inner]): [string, unknown][] => {
    if (name !== String(key)) return [[name, inner]];
    return rest.length === 0 ? [] : [[name, without(inner, rest)]];
  });
  return Array.isArray(value) ? kept.map(([, inner]) => inner) : Object.fromEntries(kept);
}

function parseText(source: string, file: string): unknown {
  const lines = new LineCounter();
  // JSON is YAML, as far as this goes. Aliases could grow without bound: none are needed.
  const document = parseDocument(source, {
    lineCounter: lines,
    prettyErrors: false,
    uniqueKeys: true,
    stringKeys: true,
  });
  const faults = document.errors.map(
    (error) => `line ${lines.linePos(error.pos[0]).line}: ${error.message.replaceAll("\n", " ")}`,
  );
  if (faults.length > 0) throw invalid(file, faults);
  try {
    return document.toJS({ maxAliasCount: 0 });
  } catch (error) {
    if (!(error instanceof ReferenceError)) throw error;
    throw invalid(file, ["anchors and aliases are not taken: write the value out"]);
  }
}

function invalid(file: string, faults: readonly string[]): UplinkConfigError {
  const more = faults.length - MAX_FAULTS_TOLD;
  const told = faults.slice(0, MAX_FAULTS_TOLD).join("; ");
  return new UplinkConfigError("invalid", `${file}: ${told}${more > 0 ? `; and ${more} more` : ""}`);
}

/** What no single value shows. */
function faultsOf(file: ConfigFile): string[] {
  const names = new Map<string, number>();
  const faults: string[] = [];
  for (const [at, entry] of (file.uplinks ?? []).entries()) {
    const path = `uplinks[${at}]`;
    const first = names.get(entry.name);
    if (first !== undefined)
      faults.push(`${path}.name: "${entry.name}" is the name of uplinks[${first}] too; give each its own`);
    else names.set(entry.name, at);
    if (entry.mode === "static" && (entry.addresses ?? []).length === 0) {
      faults.push(
        `${path}.addresses: is missing: a static uplink needs its addresses; list them, or use mode "observe"`,
      );
    }
    for (const family of [4, 6] as const) {
      const gateway = family === 4 ? entry.gateway4 : entry.gateway6;
      if (gateway && gateway.family !== family) faults.push(`${path}.gateway${family}: ${gateway} is not IPv${family}`);
    }
  }
  const { dns, selection } = settingsOf(file, []);
  if (dns.minTtlMs > dns.maxTtlMs) faults.push(`dns.minTtlMs: must not be above dns.maxTtlMs, ${dns.maxTtlMs}`);
  if (selection.penaltyMs > selection.penaltyMaxMs) {
    faults.push(`selection.penaltyMs: must not be above selection.penaltyMaxMs, ${selection.penaltyMaxMs}`);
  }
  faults.push(...clashes(listenersOf(file)));
  return faults;
}

function clashes(listeners: readonly ListenerSettings[]): string[] {
  const faults: string[] = [];
  for (const [at, one] of listeners.entries()) {
    const before = listeners.slice(0, at);
    if (before.some(({ name }) => name === one.name)) faults.push(`listeners[${at}].name: "${one.name}" is used twice`);
    if (before.some(({ address, port }) => address.equals(one.address) && port === one.port)) {
      faults.push(`listeners[${at}]: ${one.address} port ${one.port} is another listener's; choose another port`);
    }
  }
  return faults;
}

/** Uplinks with one source address, or one interface, cannot be told apart by rules and tables: the first stays. */
function distinct(entries: readonly UplinkEntry[]): { readonly uplinks: UplinkEntry[]; readonly refused: string[] } {
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
        `uplink ${entry.name} is left out: its ${shared} is that of uplink ${owners.get(shared)}, which stays; give each its own`,
      );
    }
  }
  return { uplinks, refused };
}

function settingsOf(file: ConfigFile, uplinks: readonly UplinkSettings[]): Settings {
  const { version: _version, cluster, dialTimeoutMs, ...rest } = file;
  const of = <Key extends "routing" | "probe" | "limits" | "tunnel" | "dns" | "selection" | "transparent">(
    key: Key,
  ) => ({
    ...DEFAULT_SETTINGS[key],
    ...rest[key],
  });
  return {
    ...DEFAULT_SETTINGS,
    ...rest,
    dialTimeoutMs: dialTimeoutMs === undefined || dialTimeoutMs === 0 ? DIAL_TIMEOUT_MS : dialTimeoutMs,
    uplinks,
    routing: of("routing"),
    probe: { ...of("probe"), targets: file.probe?.targets ?? [] },
    listeners: listenersOf(file),
    cluster: {
      ...(cluster?.nodeIP ? { nodeIP: cluster.nodeIP } : {}),
      ...(cluster?.prefixLength ? { prefixLength: cluster.prefixLength } : {}),
    },
    limits: of("limits"),
    tunnel: of("tunnel"),
    dns: of("dns"),
    selection: of("selection"),
    transparent: of("transparent"),
  };
}

function uplinkSettings(entry: UplinkEntry): UplinkSettings {
  return {
    name: entry.name,
    interface: entry.interface,
    cost: entry.cost ?? 0,
    management: entry.management ?? true,
    weight: entry.weight ?? 1,
    mode: entry.mode ?? "observe",
    addresses: entry.addresses ?? [],
    ...gateway("gateway4", entry.gateway4),
    ...gateway("gateway6", entry.gateway6),
    dnsServers: entry.dnsServers ?? [],
    searchDomains: entry.searchDomains ?? [],
    status: statusOf(entry.status),
  };
}

function gateway<Key extends "gateway4" | "gateway6">(
  key: Key,
  address: IpAddress | null | undefined,
): { [K in Key]?: IpAddress } {
  return address ? ({ [key]: address } as { [K in Key]?: IpAddress }) : {};
}

function statusOf(entry: UplinkEntry["status"] = {}): UplinkStatus {
  return {
    ...(typeof entry.lastFailed === "number" ? { lastFailed: entry.lastFailed } : {}),
    ...(typeof entry.lastSucceeded === "number" ? { lastSucceeded: entry.lastSucceeded } : {}),
    lastError: entry.lastError ?? "",
    lastWarning: entry.lastWarning ?? "",
  };
}

function listenersOf(file: ConfigFile): readonly ListenerSettings[] {
  const named = file.listeners?.map(listenerSettings) ?? DEFAULT_SETTINGS.listeners;
  const transparent = { ...DEFAULT_SETTINGS.transparent, ...file.transparent };
  return transparent.enabled ? [...named, ...transparentListeners(transparent.port)] : named;
}

/** What the redirection of transparent mode leads to, in each family. */
function transparentListeners(port: number): readonly ListenerSettings[] {
  const common = {
    role: "transparent",
    port,
    assignAddress: false,
    auth: "none",
    tls: "off",
    allowedPorts: [],
  } as const;
  return [
    { name: "transparent4", address: HOST_ADDRESS, ...common },
    { name: "transparent6", address: HOST_ADDRESS_6, ...common },
  ];
}

function listenerSettings(entry: ListenerEntry): ListenerSettings {
  const isPod = entry.role === "pod";
  const bridge = entry.interface ?? (isPod ? POD_BRIDGE : undefined);
  return {
    name: entry.name ?? entry.role,
    role: entry.role,
    address: entry.address ?? (isPod ? POD_ADDRESS : HOST_ADDRESS),
    port: entry.port ?? PROXY_PORT,
    ...(bridge === undefined ? {} : { interface: bridge }),
    assignAddress: entry.assignAddress ?? isPod,
    auth: entry.auth ?? (isPod ? "token" : "none"),
    tls: entry.tls ?? (isPod ? "optional" : "off"),
    allowedPorts: entry.allowedPorts ?? (isPod ? POD_PORTS : []),
  };
}
