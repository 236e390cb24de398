import type { Cidr, IpAddress, IpFamily } from "#base/ip";
import type { ServiceProxyConfig } from "./config.ts";

/** Where NodePorts of a family are taken (docs/spec/service-proxy.md#2.4, #2.10). */
export interface NodePortPlaces {
  /** `all-local`: on every address of the host but loopback, which the rules know without a list. */
  readonly mode: "set" | "all-local";
  readonly addresses: readonly IpAddress[];
  /** Ranges that name loopback addresses only, which are left out. */
  readonly loopback: readonly Cidr[];
}

const isLoopback = (address: IpAddress): boolean =>
  address.family === 4 ? address.toString().startsWith("127.") : address.toString() === "::1";

/** Pure. `local`: every address of the host; `primary`: that of the node in the family. */
export function nodePortPlaces(
  { nodePortAddresses }: Pick<ServiceProxyConfig, "nodePortAddresses">,
  family: IpFamily,
  local: readonly IpAddress[],
  primary: IpAddress | undefined,
): NodePortPlaces {
  if (nodePortAddresses === "primary") {
    return { mode: "set", addresses: primary === undefined ? [] : [primary], loopback: [] };
  }
  const ranges = nodePortAddresses.filter((cidr) => cidr.family === family);
  if (ranges.length === 0 || ranges.some(({ prefixLength }) => prefixLength === 0)) {
    return {
      mode: "all-local",
      addresses: local.filter((one) => one.family === family && !isLoopback(one)),
      loopback: [],
    };
  }
  const matched = local.filter((address) => ranges.some((range) => range.contains(address)));
  return {
    mode: "set",
    addresses: matched.filter((address) => !isLoopback(address)),
    loopback: ranges.filter((range) => isLoopback(range.base)),
  };
}
