import { IpAddress } from "./address.ts";
import { Cidr } from "./cidr.ts";

/** IPv4-mapped addresses (RFC 4291 2.5.5.2). */
const MAPPED = Cidr.parse("::ffff:0:0/96");

/** Returns the IPv4 address that an IPv4-mapped one stands for, and any other address as it is. */
export function unmapped(address: IpAddress): IpAddress {
  return MAPPED.contains(address) ? IpAddress.fromValue(4, address.value & 0xffff_ffffn) : address;
}

/** Returns the IPv4 prefix that one of IPv4-mapped addresses stands for, and any other prefix as it is. */
export function unmappedCidr(cidr: Cidr): Cidr {
  return MAPPED.contains(cidr) ? Cidr.of(unmapped(cidr.base), cidr.prefixLength - MAPPED.prefixLength) : cidr;
}

/**
 * Reads the address of a socket's end as Node names it: with a zone if it is link-local, and IPv4-mapped if the listener is of both families. Returns `undefined`
 * for a socket that has ended, or is a UNIX one.
 */
export function socketAddress(text: string | undefined): IpAddress | undefined {
  const [plain = ""] = text?.split("%", 1) ?? [];
  const address = IpAddress.tryParse(plain);
  return address === undefined ? undefined : unmapped(address);
}
