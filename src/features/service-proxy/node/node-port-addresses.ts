import type { Cidr, IpAddress, IpFamily } from "#base/ip";
import type { NodeConfig, NodePortPlaces } from "./types.ts";

/** Only the Node's address of each family. */
export const PRIMARY_ADDRESSES: NodePortPlaces = { hasPrimary: true, ranges: [] };

/** The addresses that take NodePorts in a family (docs/spec/service-proxy.md#2.4, #2.10). */
export interface NodePortAddresses {
  /** `all-local`: every address of the host but loopback; the rules need no list of them. */
  readonly mode: "set" | "all-local";
  /** Each once. */
  readonly addresses: readonly IpAddress[];
  /** Loopback ranges of the configuration, which are left out. */
  readonly loopback: readonly Cidr[];
}

const isLoopback = (address: IpAddress): boolean =>
  address.family === 4 ? address.toString().startsWith("127.") : address.toString() === "::1";

const distinct = (addresses: readonly IpAddress[]): IpAddress[] => [
  ...new Map(addresses.map((address) => [address.value, address])).values(),
];

/**
 * The addresses that take NodePorts by rules. A family without a range takes them at all its addresses, unless the primary one is named, or the
 * loopback addresses alone. `local`: all
 * addresses of the host, where those of several links may be the same. `primary`: the address of the node in this family. Pure.
 */
export function nodePortAddressesOf(
  { nodePortAddresses }: Pick<NodeConfig, "nodePortAddresses">,
  family: IpFamily,
  local: readonly IpAddress[],
  primary: IpAddress | undefined,
): NodePortAddresses {
  const { hasPrimary, hasLocalhost = false } = nodePortAddresses;
  const isSelective = hasPrimary || (hasLocalhost && nodePortAddresses.ranges.length === 0);
  const own = hasPrimary && primary !== undefined ? [primary] : [];
  const ranges = nodePortAddresses.ranges.filter((cidr) => cidr.family === family);
  if ((ranges.length === 0 && !isSelective) || ranges.some(({ prefixLength }) => prefixLength === 0)) {
    return {
      mode: "all-local",
      addresses: distinct(local.filter((one) => one.family === family && !isLoopback(one))),
      loopback: [],
    };
  }
  const matched = local.filter((address) => ranges.some((range) => range.contains(address)));
  return {
    mode: "set",
    addresses: distinct([...own, ...matched.filter((address) => !isLoopback(address))]),
    loopback: ranges.filter((range) => isLoopback(range.base)),
  };
}
