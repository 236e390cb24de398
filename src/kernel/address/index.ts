/**
 * IPv4 and IPv6 addresses on the links of one namespace.
 *
 * Owns: {@link AddressPort} and its rtnetlink encoding. Does not know: who allocated an address.
 *
 * ```ts
 * stack.addresses.add({ linkIndex: eth0.index, address: IpAddress.parse("fd00::5"), noDad: true });
 * ```
 */
export { decodeAddress, defaultScope } from "./codec.ts";
export { checkAddress, describeAddress, openAddressPort } from "./port.ts";
export type { Address, AddressFilter, AddressKey, AddressPort, AddressSpec } from "./types.ts";
