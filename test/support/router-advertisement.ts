import type { IpAddress, MacAddress } from "#base/ip";
import { bind, C, close, send, socket } from "#kernel/ffi";
import { inNetNs, type NetNs } from "#kernel/netns";

const ICMPV6 = 58;
const ROUTER_ADVERTISEMENT = 134;
/** ff02::1, and its MAC address (RFC 2464 section 7). */
const ALL_NODES = Uint8Array.of(0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC = Uint8Array.of(0x33, 0x33, 0, 0, 0, 1);

/** Sends the router advertisement (RFC 4861 section 4.2) of a default router for half an hour over a link. */
export function advertiseRouter(
  netns: Pick<NetNs, "fd">,
  link: { readonly index: number; readonly mac: MacAddress },
  from: IpAddress,
): void {
  const mac = link.mac.toBytes();
  const message = Buffer.from([
    ROUTER_ADVERTISEMENT,
    0,
    0,
    0,
    64,
    0,
    7,
    8,
    ...new Array<number>(8).fill(0),
    1,
    1,
    ...mac,
  ]);
  const pseudo = Buffer.from([0, 0, 0, message.length, 0, 0, 0, ICMPV6]);
  message.writeUInt16BE(checksum(Buffer.concat([from.toBytes(), ALL_NODES, pseudo, message])), 2);
  // A hop limit of 255 shows that no router has forwarded it.
  const ip = Buffer.from([0x60, 0, 0, 0, 0, message.length, ICMPV6, 255]);
  const head = [ALL_NODES_MAC, mac, Uint8Array.of(0x86, 0xdd)];
  const fd = inNetNs(netns, () => socket(C.AF_PACKET, C.SOCK_RAW, 0));
  try {
    const address = Buffer.alloc(20);
    address.writeUInt16LE(C.AF_PACKET, 0);
    address.writeInt32LE(link.index, 4);
    bind(fd, address, `link ${link.index}`);
    send(fd, Buffer.concat([...head, ip, from.toBytes(), ALL_NODES, message]), { what: "a router advertisement" });
  } finally {
    close(fd);
  }
}

function checksum(bytes: Buffer): number {
  let sum = 0;
  for (let at = 0; at < bytes.length; at += 2) sum += bytes.readUInt16BE(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
