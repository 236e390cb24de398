import { Cidr, IpAddress, unmapped } from "#base/ip";

/** Maximum of addresses of a Node that count: a kubelet can write any number into its own. */
const MAX_ADDRESSES = 64;
/** Addresses that are of no Node alone: unspecified, loopback, link-local, multicast and reserved ones. */
const NEVER = ["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/127", "fe80::/10", "ff00::/8"].map(
  (text) => Cidr.parse(text),
);

/** The part of a Node that is read. */
export interface NodeStatus {
  readonly addresses?: readonly { readonly type?: string; readonly address?: string }[] | null;
}

/** The InternalIP and ExternalIP addresses of a Node that are in none of the ranges, in canonical form, the first 64 of them. Pure. */
export function nodeAddresses(status: NodeStatus | undefined, excluded: readonly Cidr[]): ReadonlySet<string> {
  const addresses = new Set<string>();
  for (const { type, address = "" } of status?.addresses ?? []) {
    if (addresses.size === MAX_ADDRESSES) break;
    if (type !== "InternalIP" && type !== "ExternalIP") continue;
    const parsed = IpAddress.tryParse(address);
    if (parsed === undefined) continue;
    const plain = unmapped(parsed);
    if (![...NEVER, ...excluded].some((range) => range.contains(plain))) addresses.add(plain.toString());
  }
  return addresses;
}
