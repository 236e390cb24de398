import { Cidr, IpAddress } from "#base/ip";

/** RFC 4291 section 2.5.5.2. */
const MAPPED = Cidr.parse("::ffff:0:0/96");
/** RFC 4291 section 2.5.5.1, deprecated. */
const COMPATIBLE = Cidr.parse("::/96");
/** RFC 6052 section 2.1. */
const NAT64 = Cidr.parse("64:ff9b::/96");
/** RFC 3056 section 2: the IPv4 address follows the first 16 bits. */
const SIX_TO_FOUR = Cidr.parse("2002::/16");
/** RFC 2765 section 2.1. */
const TRANSLATED = Cidr.parse("::ffff:0:0:0/96");
/** RFC 5214 section 6.1: an interface identifier with an IPv4 address in it. */
const ISATAP_MARKS: ReadonlySet<bigint> = new Set([0x0000_5efen, 0x0200_5efen]);

/** Converts an IPv4-mapped address to IPv4, as the kernel does; returns any other address unchanged. */
export function unmapped(address: IpAddress): IpAddress {
  return address.family === 6 && MAPPED.contains(address) ? low32(address) : address;
}

/** The IPv4 addresses that an IPv6 address may lead to by translation or a tunnel. */
export function embeddedV4(address: IpAddress): IpAddress[] {
  if (address.family === 4) return [];
  const found: IpAddress[] = [];
  if ([MAPPED, COMPATIBLE, NAT64, TRANSLATED].some((prefix) => prefix.contains(address))) found.push(low32(address));
  if (SIX_TO_FOUR.contains(address)) found.push(IpAddress.fromValue(4, (address.value >> 80n) & 0xffff_ffffn));
  if (ISATAP_MARKS.has((address.value >> 32n) & 0xffff_ffffn)) found.push(low32(address));
  return found;
}

function low32(address: IpAddress): IpAddress {
  return IpAddress.fromValue(4, address.value & 0xffff_ffffn);
}
