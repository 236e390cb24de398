import type { IpAddress, MacAddress } from "#base/ip";
import { bind, C, close, send } from "#kernel/ffi";
import type { NetNs } from "#kernel/netns";
import { socketIn } from "./inet.ts";

const ETH_P_ARP = 0x0806;
const ETH_P_IPV6 = 0x86dd;
const ARPHRD_ETHER = 1;
const ARPOP_REQUEST = 1;
const IPPROTO_ICMPV6 = 58;
const NEIGHBOUR_ADVERTISEMENT = 136;
/** The option with the sender's MAC address (RFC 4861 section 4.6.1). */
const TARGET_LINK_ADDRESS = 2;
/** The flag "override" (RFC 4861 section 4.4): caches take the new MAC address. */
const OVERRIDE = 0x20;
/** ff02::1, and its MAC address (RFC 2464 section 7). */
const ALL_NODES = Uint8Array.of(0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC = Uint8Array.of(0x33, 0x33, 0, 0, 0, 1);
const BROADCAST = new Uint8Array(6).fill(0xff);

/**
 * Tells the network of a link which MAC address has these addresses: a gratuitous ARP request for IPv4 (RFC 5227 section 3), an unsolicited
 * neighbour advertisement for IPv6 (RFC 4861 section 7.2.6). The link must be up. Needs CAP_NET_RAW. Throws {@link KernelError}.
 */
export function announceAddresses(
  netns: Pick<NetNs, "fd">,
  link: { readonly index: number; readonly mac: MacAddress },
  addresses: readonly IpAddress[],
): void {
  if (addresses.length === 0) return;
  const fd = socketIn(netns, C.AF_PACKET, C.SOCK_RAW | C.SOCK_NONBLOCK, 0);
  try {
    bind(fd, packetAddress(link.index), `announce addresses on link ${link.index}`);
    for (const address of addresses) send(fd, announcement(link.mac, address), { what: `announce ${address}` });
  } finally {
    close(fd);
  }
}

/** `struct sockaddr_ll` (packet(7)): a protocol of 0 receives nothing. */
function packetAddress(index: number): Uint8Array {
  const bytes = Buffer.alloc(20);
  bytes.writeUInt16LE(C.AF_PACKET, 0);
  bytes.writeInt32LE(index, 4);
  return bytes;
}

/** The whole frame. */
export function announcement(mac: MacAddress, address: IpAddress): Buffer {
  return address.family === 4
    ? gratuitousArp(mac.toBytes(), address.toBytes())
    : advertisement(mac.toBytes(), address.toBytes());
}

function gratuitousArp(mac: Uint8Array, address: Uint8Array): Buffer {
  const head = Buffer.alloc(8);
  head.writeUInt16BE(ARPHRD_ETHER, 0);
  head.writeUInt16BE(0x0800, 2);
  head.set([6, 4], 4);
  head.writeUInt16BE(ARPOP_REQUEST, 6);
  return Buffer.concat([frameHead(BROADCAST, mac, ETH_P_ARP), head, mac, address, new Uint8Array(6), address]);
}

function advertisement(mac: Uint8Array, address: Uint8Array): Buffer {
  const message = Buffer.concat([
    Uint8Array.of(NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0),
    address,
    Uint8Array.of(TARGET_LINK_ADDRESS, 1),
    mac,
  ]);
  const pseudo = Buffer.alloc(8);
  pseudo.writeUInt32BE(message.length, 0);
  pseudo[7] = IPPROTO_ICMPV6;
  message.writeUInt16BE(checksum(Buffer.concat([address, ALL_NODES, pseudo, message])), 2);
  const ip = Buffer.alloc(8);
  ip[0] = 0x60;
  ip.writeUInt16BE(message.length, 4);
  // A hop limit of 255 shows that no router has forwarded it.
  ip.set([IPPROTO_ICMPV6, 255], 6);
  return Buffer.concat([frameHead(ALL_NODES_MAC, mac, ETH_P_IPV6), ip, address, ALL_NODES, message]);
}

function frameHead(to: Uint8Array, from: Uint8Array, type: number): Buffer {
  return Buffer.concat([to, from, Uint8Array.of(type >> 8, type & 255)]);
}

/** The internet checksum (RFC 1071) of an even number of bytes. */
function checksum(bytes: Buffer): number {
  let sum = 0;
  for (let at = 0; at < bytes.length; at += 2) sum += bytes.readUInt16BE(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
