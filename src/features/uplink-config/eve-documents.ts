import * as v from "valibot";
import { IpAddress } from "#base/ip";
import { DIAL_TIMEOUT_MS, parseInstant, type UplinkSettings } from "#base/uplink-model";
import { UplinkConfigError } from "./errors.ts";
import { describeIssue } from "./issues.ts";

/** Maximum number of ports in a document; more are a fault. A device has about ten. */
export const MAX_PORTS = 256;
const MAX_ADDRESSES = 256;

const text = v.nullish(v.string(), "");
const bool = v.nullish(v.boolean(), false);
const addressList = v.nullish(v.array(v.string()), []);

/** Schema of a port. Go prints an unset address as the empty text, and may print an IPv4 address as `::ffff:192.0.2.1`. */
const portDocument = v.object({
  IfName: v.string(),
  IsMgmt: bool,
  IsL3Port: bool,
  Cost: v.nullish(v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(255)), 0),
  AddrInfoList: v.nullish(v.array(v.object({ Addr: text })), []),
  DNSServers: addressList,
  DefaultRouters: addressList,
  Up: v.nullish(v.boolean(), true),
  InvalidConfig: bool,
  LastFailed: text,
  LastSucceeded: text,
  LastError: text,
  LastWarning: text,
});

const statusDocument = v.object({
  Version: v.nullish(v.number(), 0),
  Ports: v.nullish(v.array(portDocument), []),
});

/** Schema of an item: either the value itself or the mapping `{ "ItemType": …, "IntValue": … }` (pkg/pillar/types/global.go of EVE). */
const item = v.union([v.number(), v.string(), v.looseObject({ IntValue: v.nullish(v.number(), 0) })]);
const globalConfigDocument = v.looseObject({
  GlobalSettings: v.nullish(v.record(v.string(), v.unknown())),
});

/** The items of the global configuration that concern downloads. */
export interface EveGlobalConfig {
  readonly maxCost: number;
  readonly dialTimeoutMs: number;
  /** The document has a timer of zero, which means the default here. */
  readonly zeroTimer: boolean;
}

/** The values before any document was read (docs/spec/uplink-proxy.md#2.1). */
export const EVE_DEFAULTS: EveGlobalConfig = { maxCost: 0, dialTimeoutMs: DIAL_TIMEOUT_MS, zeroTimer: false };

/**
 * Pure: `DeviceNetworkStatus` (docs/spec/uplink-proxy.md#2.1), ports in the order of the document. Unknown keys are ignored, because
 * other versions of EVE have other keys. Throws {@link UplinkConfigError} `invalid`.
 */
export function parseNetworkStatus(source: string, file: string): readonly UplinkSettings[] {
  const { Version: version, Ports: ports } = check(statusDocument, parseJson(source, file), file);
  if (ports.length > MAX_PORTS)
    throw invalid(file, [`Ports: must have at most ${MAX_PORTS} entries, not ${ports.length}`]);
  const names = new Set<string>();
  return ports.flatMap((port) => {
    // The interface's name is the identity: a second entry of that name is ignored.
    if (port.IfName === "" || names.has(port.IfName)) return [];
    names.add(port.IfName);
    return [uplinkOf(port, version)];
  });
}

function uplinkOf(port: v.InferOutput<typeof portDocument>, version: number): UplinkSettings {
  const routers = addresses(port.DefaultRouters);
  const [gateway4, gateway6] = ([4, 6] as const).map((family) => routers.find((router) => router.family === family));
  const [lastFailed, lastSucceeded] = [instantOf(port.LastFailed), instantOf(port.LastSucceeded)];
  return {
    name: port.IfName,
    interface: port.IfName,
    cost: port.Cost,
    // Documents before version 1 do not have the flag IsMgmt.
    management: port.IsL3Port && (version < 1 || port.IsMgmt),
    weight: 1,
    mode: "external",
    addresses: addresses(port.AddrInfoList.map(({ Addr }) => Addr)).map((address) => ({
      address,
      prefixLength: address.bits,
    })),
    ...(gateway4 === undefined ? {} : { gateway4 }),
    ...(gateway6 === undefined ? {} : { gateway6 }),
    dnsServers: addresses(port.DNSServers),
    searchDomains: [],
    status: {
      ...(lastFailed === undefined ? {} : { lastFailed }),
      ...(lastSucceeded === undefined ? {} : { lastSucceeded }),
      lastError: port.LastError,
      lastWarning: port.LastWarning,
    },
    published: { isL3: port.IsL3Port, isValid: !port.InvalidConfig, isUp: port.Up },
  };
}

/** Pure: parses `ConfigItemValueMap`. Items that are absent or out of range get their defaults. */
export function parseGlobalConfig(source: string, file: string, before: EveGlobalConfig): EveGlobalConfig {
  const document = check(globalConfigDocument, parseJson(source, file), file);
  // Operators' tools write the items without the map around them.
  const items: Readonly<Record<string, unknown>> = document.GlobalSettings ?? document;
  const maxCost = itemIn(items["network.download.max.cost"], 255) ?? EVE_DEFAULTS.maxCost;
  const seconds = itemIn(items["timer.dial.timeout"], 3600);
  if (seconds === undefined) return { ...before, maxCost, dialTimeoutMs: EVE_DEFAULTS.dialTimeoutMs, zeroTimer: false };
  return { maxCost, dialTimeoutMs: seconds === 0 ? DIAL_TIMEOUT_MS : seconds * 1000, zeroTimer: seconds === 0 };
}

function itemIn(value: unknown, max: number): number | undefined {
  const parsed = v.safeParse(item, value);
  if (!parsed.success) return undefined;
  const { output } = parsed;
  const number = typeof output === "object" ? output.IntValue : Number(output === "" ? Number.NaN : output);
  return Number.isInteger(number) && number >= 0 && number <= max ? number : undefined;
}

function addresses(texts: readonly string[]): IpAddress[] {
  return texts.slice(0, MAX_ADDRESSES).flatMap((one) => {
    const address = IpAddress.tryParse(one);
    if (address === undefined || address.isUnspecified) return [];
    const mapped = address.family === 6 && address.value >> 32n === 0xffffn;
    return [mapped ? IpAddress.fromValue(4, address.value & 0xffff_ffffn) : address];
  });
}

/** Parses a time; `undefined` for Go's zero time, which means never. */
function instantOf(value: string): number | undefined {
  const time = parseInstant(value);
  return time === undefined || time <= 0 ? undefined : time;
}

function parseJson(source: string, file: string): unknown {
  try {
    return JSON.parse(source);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new UplinkConfigError("invalid", `${file} is not JSON: ${error.message}`, { cause: error });
  }
}

function check<Schema extends v.GenericSchema>(schema: Schema, value: unknown, file: string): v.InferOutput<Schema> {
  const result = v.safeParse(schema, value);
  if (result.success) return result.output;
  throw invalid(file, result.issues.map(describeIssue));
}

function invalid(file: string, faults: readonly string[]): UplinkConfigError {
  return new UplinkConfigError("invalid", `${file}: ${faults.slice(0, 5).join("; ")}`);
}
