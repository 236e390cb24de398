/**
 * The header of the PROXY protocol, version 2, with which a proxy sends the client's addresses.
 * Source: "The PROXY protocol, versions 1 & 2" by HAProxy Technologies, section 2.2.
 *
 * Owns: the encoding of the header. Does not know: sockets, and reading a header.
 *
 * ```ts
 * backend.write(encodeProxyHeader({ source: { address, port: 40_000 }, destination: { address: own, port: 443 } }));
 * ```
 */
import { IpAddress } from "#base/ip";

/** One end of a TCP connection. */
export interface ProxyEndpoint {
  readonly address: IpAddress;
  /** 0 to 65535. */
  readonly port: number;
}

/** The ends of the connection as the client sees it. */
export interface ProxiedConnection {
  /** The client. */
  readonly source: ProxyEndpoint;
  /** The address that the client connected to. */
  readonly destination: ProxyEndpoint;
}

const SIGNATURE = Buffer.from("0d0a0d0a000d0a515549540a", "hex");
/** Version 2, command PROXY. */
const VERSION_AND_COMMAND = 0x21;
const TCP_OVER_IPV4 = 0x11;
const TCP_OVER_IPV6 = 0x21;

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

const MAPPED = 0xffffn << 32n;

function unmapped(address: IpAddress): IpAddress {
  if (address.family === 4 || address.value >> 32n !== 0xffffn) return address;
  return IpAddress.fromValue(4, address.value - MAPPED);
}

function bytesOfIPv6(address: IpAddress): Uint8Array {
  return (address.family === 6 ? address : IpAddress.fromValue(6, address.value + MAPPED)).toBytes();
}
