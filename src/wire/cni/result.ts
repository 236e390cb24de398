import { CniCode, CniError } from "./errors.ts";
import { compareVersions } from "./versions.ts";

/** An interface of a result. Without `sandbox` it is on the host. */
export interface CniInterface {
  readonly name: string;
  readonly mac?: string;
  readonly mtu?: number;
  readonly sandbox?: string;
  readonly socketPath?: string;
  readonly pciID?: string;
}

/** An address of a result; `interface` is an index into the interfaces. */
export interface CniIp {
  readonly address: string;
  readonly gateway?: string;
  readonly interface?: number;
}

/** Fields that version 1.1.0 added to interfaces and to routes. */
const NEW_OF_INTERFACE = new Set(["mtu", "socketPath", "pciID"]);
const NEW_OF_ROUTE = new Set(["mtu", "advmss", "priority", "table", "scope"]);

/** A result in the form of version 1.1.0. Routes and dns are not checked. */
export interface CniResult {
  readonly interfaces: readonly CniInterface[];
  readonly ips: readonly CniIp[];
  readonly routes?: readonly unknown[];
  readonly dns?: unknown;
}

/** Reads a result of any version from 0.3.0 on. Throws {@link CniError} 6 naming the field. */
export function parseResult(value: unknown): CniResult {
  const result = object(value, "result");
  const { routes, dns } = result;
  return {
    interfaces: list(result["interfaces"], "interfaces").map((entry, at) => parseInterface(entry, `interfaces[${at}]`)),
    ips: list(result["ips"], "ips").map((entry, at) => parseIp(entry, `ips[${at}]`)),
    ...(routes === undefined || routes === null ? {} : { routes: list(routes, "routes") }),
    ...(dns === undefined ? {} : { dns }),
  };
}

/** The result as JSON data of `cniVersion`, without fields that the version does not have. */
export function convertResult(result: CniResult, cniVersion: string): Record<string, unknown> {
  const has11 = compareVersions(cniVersion, "1.1.0") >= 0;
  const needsIpVersion = compareVersions(cniVersion, "1.0.0") < 0;
  return {
    cniVersion,
    interfaces: has11 ? result.interfaces : result.interfaces.map((link) => without(link, NEW_OF_INTERFACE)),
    ips: result.ips.map((ip) => (needsIpVersion ? { version: ip.address.includes(":") ? "6" : "4", ...ip } : ip)),
    ...(result.routes === undefined
      ? {}
      : { routes: has11 ? result.routes : result.routes.map((route) => without(route, NEW_OF_ROUTE)) }),
    dns: result.dns ?? {},
  };
}

function without(value: unknown, names: ReadonlySet<string>): unknown {
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).filter(([name]) => !names.has(name)));
}

function parseInterface(value: unknown, at: string): CniInterface {
  const entry = object(value, at);
  const name = text(entry["name"], `${at}.name`);
  if (name === undefined) throw malformed(`${at}.name`, "a string");
  const mac = text(entry["mac"], `${at}.mac`);
  const sandbox = text(entry["sandbox"], `${at}.sandbox`);
  const mtu = count(entry["mtu"], `${at}.mtu`);
  const socketPath = text(entry["socketPath"], `${at}.socketPath`);
  const pciID = text(entry["pciID"], `${at}.pciID`);
  return {
    name,
    ...(mac === undefined ? {} : { mac }),
    ...(mtu === undefined ? {} : { mtu }),
    ...(sandbox === undefined || sandbox === "" ? {} : { sandbox }),
    ...(socketPath === undefined ? {} : { socketPath }),
    ...(pciID === undefined ? {} : { pciID }),
  };
}

function parseIp(value: unknown, at: string): CniIp {
  const entry = object(value, at);
  const address = text(entry["address"], `${at}.address`);
  if (address === undefined) throw malformed(`${at}.address`, "an address with prefix length");
  const gateway = text(entry["gateway"], `${at}.gateway`);
  const index = count(entry["interface"], `${at}.interface`);
  return {
    address,
    ...(gateway === undefined ? {} : { gateway }),
    ...(index === undefined ? {} : { interface: index }),
  };
}

function object(value: unknown, at: string): Readonly<Record<string, unknown>> {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw malformed(at, "an object");
}

function list(value: unknown, at: string): readonly unknown[] {
  if (value === undefined || value === null) return [];
  if (Array.isArray(value)) return value;
  throw malformed(at, "a list");
}

function text(value: unknown, at: string): string | undefined {
  if (value === undefined || typeof value === "string") return value;
  throw malformed(at, "a string");
}

function count(value: unknown, at: string): number | undefined {
  if (value === undefined || (typeof value === "number" && Number.isInteger(value) && value >= 0)) return value;
  throw malformed(at, "a whole number of at least 0");
}

function malformed(at: string, wanted: string): CniError {
  return new CniError(CniCode.decodingFailure, `cannot decode the CNI result: ${at} must be ${wanted}`);
}
