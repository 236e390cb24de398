import { IpParseError, MacAddress } from "#base/ip";
import { CniFailure } from "./failure.ts";

/** The values of a network configuration that decide about a pod's link. */
export interface LinkSettings {
  /** The key `name`. */
  readonly networkName: string | undefined;
  /** The key `mtu`, in bytes. */
  readonly mtuBytes: number | undefined;
  /** `runtimeConfig.mac`: the address that the pod's interface gets. */
  readonly mac: MacAddress | undefined;
}

/** The maximum length of a value in a message, in characters. */
const MAX_SHOWN = 200;

/**
 * Reads the settings of a network configuration; an empty one has none. Throws {@link CniFailure} `invalid-config` naming the field, also for
 * `runtimeConfig.ips`: addresses are of blocks, so nobody can demand them (docs/design/pod-network.md).
 */
export function linkSettings(stdinData: Uint8Array): LinkSettings {
  const config = configIn(stdinData);
  const { name, runtimeConfig } = config;
  const runtime = isObject(runtimeConfig) ? runtimeConfig : {};
  if (runtimeConfig !== undefined && runtimeConfig !== null && !isObject(runtimeConfig)) {
    throw invalid("runtimeConfig", runtimeConfig, "an object");
  }
  refuseAddresses(runtime["ips"]);
  return {
    networkName: typeof name === "string" ? name : undefined,
    mtuBytes: mtuIn(config["mtu"]),
    mac: macIn(runtime["mac"]),
  };
}

/** `runtimeConfig.mac` of a network configuration; `undefined` without one. Throws {@link CniFailure} `invalid-config`. */
export function requestedMac(stdinData: Uint8Array): MacAddress | undefined {
  const { runtimeConfig } = configIn(stdinData);
  return isObject(runtimeConfig) ? macIn(runtimeConfig["mac"]) : undefined;
}

function configIn(stdinData: Uint8Array): Readonly<Record<string, unknown>> {
  if (stdinData.length === 0) return {};
  try {
    const config: unknown = JSON.parse(new TextDecoder().decode(stdinData));
    return isObject(config) ? config : {};
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new CniFailure("invalid-config", "the network configuration is not JSON", { cause: error });
  }
}

function mtuIn(mtu: unknown): number | undefined {
  if (mtu === undefined) return undefined;
  if (typeof mtu === "number" && Number.isInteger(mtu) && mtu >= 576 && mtu <= 65535) return mtu;
  throw invalid("mtu", mtu, "a whole number from 576 to 65535");
}

/** A runtime that has nothing to say gives no key, or an empty text. */
function macIn(mac: unknown): MacAddress | undefined {
  if (mac === undefined || mac === null || mac === "") return undefined;
  const wanted = "a unicast MAC address such as 02:00:00:00:00:01";
  if (typeof mac !== "string") throw invalid("runtimeConfig.mac", mac, wanted);
  let address: MacAddress;
  try {
    address = MacAddress.parse(mac);
  } catch (error) {
    if (!(error instanceof IpParseError)) throw error;
    throw invalid("runtimeConfig.mac", mac, wanted);
  }
  const bytes = address.toBytes();
  const isUnicast = ((bytes[0] ?? 1) & 1) === 0 && bytes.some((byte) => byte !== 0);
  if (!isUnicast) throw invalid("runtimeConfig.mac", mac, wanted);
  return address;
}

function refuseAddresses(ips: unknown): void {
  if (ips === undefined || ips === null || (Array.isArray(ips) && ips.length === 0)) return;
  throw new CniFailure(
    "invalid-config",
    `network configuration: runtimeConfig.ips is ${shown(ips)}; coil gives pods the addresses of their node's blocks and cannot give those: remove "ips" from the capabilities of the plugin coil, or the demand from the pod`,
  );
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function invalid(field: string, value: unknown, wanted: string): CniFailure {
  return new CniFailure("invalid-config", `network configuration: ${field} is ${shown(value)}; it must be ${wanted}`);
}

function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? "";
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text;
}
