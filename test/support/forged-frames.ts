import type { IpAddress, MacAddress } from "#base/ip";
import { bind, C, close, send, socket } from "#kernel/ffi";
import { inNetNs, type NetNs } from "#kernel/netns";

/** EtherTypes. */
const IPV4 = 0x0800;
const IPV6 = 0x86dd;
const ARP = 0x0806;
const VLAN = 0x8100;
const UDP = 17;
const ICMPV6 = 58;
const FRAGMENT = 44;
const HOP_BY_HOP = 0;
const DESTINATION_OPTIONS = 60;

/** The part of a frame after both MAC addresses: EtherType and content. */
export interface Frame {
  readonly type: number;
  readonly content: Buffer;
}

/** A UDP datagram. `fragment`: one part of a larger one: the first, or a later one, which has no header of UDP. */
export function udp(
  from: IpAddress,
  to: IpAddress,
  options: { readonly port?: number; readonly payload?: Buffer; readonly fragment?: "first" | "later" } = {},
): Frame {
  const { port = 9, payload = Buffer.alloc(16, 1), fragment } = options;
  const head = Buffer.alloc(8);
  head.writeUInt16BE(40_000, 0);
  head.writeUInt16BE(port, 2);
  head.writeUInt16BE(8 + payload.length, 4);
  const datagram = Buffer.concat([head, payload]);
  if (from.family === 6) datagram.writeUInt16BE(checksum(pseudo(from, to, UDP, datagram), datagram), 6);
  return ip(from, to, UDP, datagram, { fragment });
}

/** VXLAN (RFC 7348) with an inner frame, in UDP. */
export function vxlan(from: IpAddress, to: IpAddress, inner: Frame): Frame {
  const head = Buffer.from([8, 0, 0, 0, 0, 0, 1, 0]);
  const frame = Buffer.concat([Buffer.alloc(12, 2), etherType(inner.type), inner.content]);
  return udp(from, to, { port: 4789, payload: Buffer.concat([head, frame]) });
}

/** The same frame with a VLAN tag; VID 0 marks a priority alone. */
export function tagged(vid: number, frame: Frame): Frame {
  return { type: VLAN, content: Buffer.concat([etherType(vid), etherType(frame.type), frame.content]) };
}

/** The same IPv6 packet with extension headers: hop-by-hop and destination options, both only padding. */
export function withExtensions({ type, content }: Frame): Frame {
  const next = content[6] ?? 0;
  const padding = Buffer.from([1, 4, 0, 0, 0, 0]);
  const options = [Buffer.from([DESTINATION_OPTIONS, 0]), padding, Buffer.from([next, 0]), padding];
  const head = Buffer.from(content.subarray(0, 40));
  head[6] = HOP_BY_HOP;
  head.writeUInt16BE(head.readUInt16BE(4) + 16, 4);
  return { type, content: Buffer.concat([head, ...options, content.subarray(40)]) };
}

/** An ARP packet; a request asks for `target`. */
export function arp(
  operation: "request" | "reply",
  sender: { readonly ip: IpAddress; readonly mac: MacAddress },
  target: IpAddress,
): Frame {
  const head = Buffer.from([0, 1, 8, 0, 6, 4, 0, operation === "request" ? 1 : 2]);
  const parts = [head, sender.mac.toBytes(), sender.ip.toBytes(), Buffer.alloc(6), target.toBytes()];
  return { type: ARP, content: Buffer.concat(parts) };
}

/** ICMPv6 with hop limit 255: 134 is a router advertisement, 135 a solicitation, 136 an advertisement, 137 a redirect. */
export function icmpv6(type: number, from: IpAddress, to: IpAddress, body: Buffer = Buffer.alloc(4)): Frame {
  const message = Buffer.concat([Buffer.from([type, 0, 0, 0]), body]);
  message.writeUInt16BE(checksum(pseudo(from, to, ICMPV6, message), message), 2);
  return ip(from, to, ICMPV6, message, { hopLimit: 255 });
}

/** A neighbour solicitation with the sender's MAC address, which a host learns. */
export function solicitation(
  sender: { readonly ip: IpAddress; readonly mac: MacAddress },
  to: IpAddress,
  target = to,
): Frame {
  return icmpv6(
    135,
    sender.ip,
    to,
    Buffer.concat([Buffer.alloc(4), target.toBytes(), Buffer.from([1, 1]), sender.mac.toBytes()]),
  );
}

/** A neighbour advertisement that overrides. */
export function advertisement(sender: { readonly ip: IpAddress; readonly mac: MacAddress }, to: IpAddress): Frame {
  return icmpv6(
    136,
    sender.ip,
    to,
    Buffer.concat([Buffer.from([0x20, 0, 0, 0]), sender.ip.toBytes(), Buffer.from([2, 1]), sender.mac.toBytes()]),
  );
}

/** A router advertisement of a default router for half an hour. */
export function routerAdvertisement(
  sender: { readonly ip: IpAddress; readonly mac: MacAddress },
  to: IpAddress,
): Frame {
  const body = Buffer.from([64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
  return icmpv6(134, sender.ip, to, Buffer.concat([body, sender.mac.toBytes()]));
}

/** A redirect: `destination` is reached by `target`. */
export function redirect(from: IpAddress, to: IpAddress, target: IpAddress, destination: IpAddress): Frame {
  return icmpv6(137, from, to, Buffer.concat([Buffer.alloc(4), target.toBytes(), destination.toBytes()]));
}

/** An ICMP redirect of IPv4 for a packet that `to` would have sent to `destination`. */
export function redirect4(from: IpAddress, to: IpAddress, gateway: IpAddress, destination: IpAddress): Frame {
  const quoted = udp(to, destination).content;
  const message = Buffer.concat([Buffer.from([5, 1, 0, 0]), gateway.toBytes(), quoted.subarray(0, 28)]);
  message.writeUInt16BE(checksum(message), 2);
  return ip(from, to, 1, message, {});
}

/** Sends frames over a link of a namespace from one socket. The link's other end gets them as from a neighbour. */
export function sendFrames(
  netns: Pick<NetNs, "fd">,
  link: { readonly index: number; readonly mac: MacAddress; readonly peerMac: MacAddress },
  frames: Iterable<Frame>,
): void {
  const fd = inNetNs(netns, () => socket(C.AF_PACKET, C.SOCK_RAW, 0));
  try {
    const address = Buffer.alloc(20);
    address.writeUInt16LE(C.AF_PACKET, 0);
    address.writeInt32LE(link.index, 4);
    bind(fd, address, `link ${link.index}`);
    const head = Buffer.concat([link.peerMac.toBytes(), link.mac.toBytes()]);
    for (const { type, content } of frames)
      send(fd, Buffer.concat([head, etherType(type), content]), { what: "a frame" });
  } finally {
    close(fd);
  }
}

function ip(
  from: IpAddress,
  to: IpAddress,
  protocol: number,
  payload: Buffer,
  { fragment, hopLimit = 64 }: { readonly fragment?: "first" | "later" | undefined; readonly hopLimit?: number },
): Frame {
  if (from.family === 4) {
    const head = Buffer.alloc(20);
    head[0] = 0x45;
    head.writeUInt16BE(20 + payload.length, 2);
    head.writeUInt16BE(4711, 4);
    head.writeUInt16BE(fragment === "first" ? 0x2000 : fragment === "later" ? 8 : 0, 6);
    head.set([hopLimit, protocol], 8);
    head.set(from.toBytes(), 12);
    head.set(to.toBytes(), 16);
    head.writeUInt16BE(checksum(head), 10);
    return { type: IPV4, content: Buffer.concat([head, payload]) };
  }
  const part = Buffer.from([protocol, 0, 0, fragment === "first" ? 1 : 64, 0, 0, 0, 7]);
  const body = fragment === undefined ? payload : Buffer.concat([part, payload]);
  const head = Buffer.alloc(8);
  head[0] = 0x60;
  head.writeUInt16BE(body.length, 4);
  head.set([fragment === undefined ? protocol : FRAGMENT, hopLimit], 6);
  return { type: IPV6, content: Buffer.concat([head, from.toBytes(), to.toBytes(), body]) };
}

function etherType(type: number): Buffer {
  return Buffer.from([type >> 8, type & 255]);
}

function pseudo(from: IpAddress, to: IpAddress, protocol: number, message: Buffer): Buffer {
  return Buffer.concat([
    from.toBytes(),
    to.toBytes(),
    Buffer.from([0, 0, message.length >> 8, message.length & 255, 0, 0, 0, protocol]),
  ]);
}

/** The internet checksum (RFC 1071). */
function checksum(...parts: readonly Buffer[]): number {
  let bytes = Buffer.concat(parts);
  if (bytes.length % 2 === 1) bytes = Buffer.concat([bytes, Buffer.alloc(1)]);
  let sum = 0;
  for (let at = 0; at < bytes.length; at += 2) sum += bytes.readUInt16BE(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
