import { Cidr, type IpAddress, type IpFamily } from "#base/ip";
import type { ByteString } from "#kernel/nft-elements";
import { mergeRanges } from "./ranges.ts";
import { GUARD_FAMILIES, type GuardFamily } from "./rules.ts";
import type { GuardedLink } from "./types.ts";

/** An element of a set that the daemon fills, as data. */
export interface GuardElement {
  readonly table: GuardFamily;
  readonly set: string;
  readonly ifindex?: number;
  readonly from?: IpAddress;
  /** Last address of a range. */
  readonly to?: IpAddress;
}

/** Sets that the daemon fills; packets fill the others. */
export const FILLED: Readonly<Record<GuardFamily, readonly string[]>> = {
  inet: ["links", "pods4", "pods6", "own4", "own6", "extra4", "extra6"],
  arp: ["links", "pods4"],
};
/**
 * Further single addresses of a link that may be sender of ARP and neighbour solicitations, so that the node resolves them. With an address of each family and
 * the link-local ones the node learns at most 16 neighbours of a link.
 */
export const MAX_NEAR = 6;
const FAMILIES: readonly IpFamily[] = [4, 6];

/** Pure: the elements of a link. */
export function elementsOf(link: GuardedLink): GuardElement[] {
  const { ifindex, addresses, extra = [] } = link;
  const isJudged = link.extra !== undefined || link.isHeld !== true;
  const near = extra.filter(({ hostBits }) => hostBits === 0).slice(0, MAX_NEAR);
  const senders = distinct([...addresses, ...near.map(({ base }) => base)]);
  const ranges = FAMILIES.flatMap((family) =>
    mergeRanges(extra, family).map((range) => ({ table: "inet", set: `extra${family}`, ifindex, ...range }) as const),
  );
  return [
    ...(isJudged ? GUARD_FAMILIES.map((table) => ({ table, set: "links", ifindex }) as const) : []),
    ...senders.map((from) => ({ table: "inet", set: `pods${from.family}`, ifindex, from }) as const),
    ...distinct(addresses).map((from) => ({ table: "inet", set: `own${from.family}`, from }) as const),
    ...ranges,
    ...senders
      .filter(({ family }) => family === 4)
      .map((from) => ({ table: "arp", set: "pods4", ifindex, from }) as const),
  ];
}

/** The keys of an element in the kernel's layout. */
export function keysOf(element: GuardElement): { readonly key: ByteString; readonly keyEnd?: ByteString } {
  const { set, ifindex, from, to } = element;
  const link = ifindex === undefined ? "" : isRanged(set) ? bigEndian(ifindex) : hostOrder(ifindex);
  const key = link + (from === undefined ? "" : bytes(from));
  return to === undefined ? { key } : { key, keyEnd: link + bytes(to) };
}

/** The parts of an element in nft(8) syntax. */
export function partsOf({ ifindex, from, to }: GuardElement): string[] {
  return [
    ...(ifindex === undefined ? [] : [String(ifindex)]),
    ...(from === undefined ? [] : [to === undefined || to.equals(from) ? String(from) : `${from}-${to}`]),
  ];
}

/** The ifindex at the start of a key; `undefined` for sets without one. */
export function ifindexOf(set: string, key: ByteString): number | undefined {
  if (set.startsWith("own")) return undefined;
  const head = Buffer.from(key.slice(0, 4), "latin1");
  return isRanged(set) ? head.readUInt32BE() : head.readUInt32LE();
}

/** In a set of intervals nft(8) compares interface numbers in network order. */
function isRanged(set: string): boolean {
  return set.startsWith("extra");
}

/** An interface number as `meta iif` loads it: in host order, which is little-endian on x86-64 and arm64. */
export function hostOrder(number: number): ByteString {
  const head = Buffer.alloc(4);
  head.writeUInt32LE(number);
  return head.toString("latin1");
}

function bigEndian(number: number): ByteString {
  const head = Buffer.alloc(4);
  head.writeUInt32BE(number);
  return head.toString("latin1");
}

function bytes(address: IpAddress): ByteString {
  return Buffer.from(address.toBytes()).toString("latin1");
}

function distinct(addresses: readonly IpAddress[]): IpAddress[] {
  return [...new Map(addresses.map((one) => [String(Cidr.host(one)), one] as const)).values()];
}
