/**
 * Addresses and prefixes of both families, as parsed values with exact arithmetic. A program parses
 * addresses where they enter it; inside it, no address is a string.
 *
 * Owns: parsing, canonical text (RFC 5952 for IPv6), bytes, arithmetic, set relations.
 * Does not know: interfaces, routes, DNS.
 *
 * ```ts
 * const block = Cidr.parse("10.2.0.0/27");
 * block.at(3).toString(); // "10.2.0.3"
 * block.contains(IpAddress.parse("10.2.0.31")); // true
 * ```
 */
export { IpAddress, type IpFamily } from "./address.ts";
export { Cidr } from "./cidr.ts";
export { IpParseError } from "./errors.ts";
export { MIN_IPV6_MTU_BYTES } from "./limits.ts";
export { MacAddress } from "./mac.ts";
export { socketAddress, unmapped, unmappedCidr } from "./mapped.ts";
