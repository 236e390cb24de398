import type { IpAddress } from "#base/ip";
import {
  DEFAULT_SETTINGS,
  DIAL_TIMEOUT_MS,
  HOST_ADDRESS,
  HOST_ADDRESS_6,
  type ListenerSettings,
  POD_ADDRESS,
  POD_BRIDGE,
  POD_PORTS,
  PROXY_PORT,
  type Settings,
  type UplinkSettings,
  type UplinkStatus,
} from "#base/uplink-model";
import type { ConfigFile, ListenerEntry, UplinkEntry } from "./schema.ts";

/** Pure: the settings of a file: the values that the file has, and defaults for all others. */
export function settingsOf(file: ConfigFile): Settings {
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
    uplinks: (file.uplinks ?? []).map(uplinkSettings),
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

/** The listeners to which transparent mode redirects connections, one for each family. */
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
