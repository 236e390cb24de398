/**
 * The header of the PROXY protocol, with which a proxy sends the client's addresses: version 2 is written, both are read.
 * Source: "The PROXY protocol, versions 1 & 2" by HAProxy Technologies, sections 2.1 and 2.2.
 *
 * Owns: the bytes of the header. Does not know: sockets, and from whom a header may be believed.
 *
 * ```ts
 * backend.write(encodeProxyHeader({ source: { address, port: 40_000 }, destination: { address: own, port: 443 } }));
 * ```
 */
import { IpAddress, unmapped } from "#base/ip";
import { type ProxiedConnection, SIGNATURE, TCP_OVER_IPV4, TCP_OVER_IPV6 } from "./layout.ts";

export type { ProxiedConnection } from "./layout.ts";
export { type HeaderProgress, ProxyHeaderReader } from "./read.ts";

/** Version 2, command PROXY. */
const VERSION_AND_COMMAND = 0x21;

/**
 * The header: 28 bytes for IPv4, 52 for IPv6. IPv4-mapped addresses, which dual-stack sockets report, count as IPv4.
 * Ends of different families are both written as IPv6.
 */
export function encodeProxyHeader({ source, destination }: ProxiedConnection): Uint8Array {
  const from = unmapped(source.address);
  const to = unmapped(destination.address);
  const isIPv4 = from.family === 4 && to.family === 4;
  const addresses = isIPv4 ? [from.toBytes(), to.toBytes()] : [bytesOfIPv6(from), bytesOfIPv6(to)];
  const ports = Buffer.alloc(4);
  ports.writeUInt16BE(source.port, 0);
  ports.writeUInt16BE(destination.port, 2);
  const body = Buffer.concat([...addresses, ports]);
  const head = Buffer.from([VERSION_AND_COMMAND, isIPv4 ? TCP_OVER_IPV4 : TCP_OVER_IPV6, 0, body.length]);
  return Buffer.concat([SIGNATURE, head, body]);
}

/** The prefix that maps an IPv4 address into IPv6 (RFC 4291 2.5.5.2). */
const MAPPED = 0xffffn << 32n;

function bytesOfIPv6(address: IpAddress): Uint8Array {
  return (address.family === 6 ? address : IpAddress.fromValue(6, address.value + MAPPED)).toBytes();
}
