/** Packets as bytes, also such as no kernel would send. */
import type { IpAddress, MacAddress } from "#base/ip";
import { bind, C, close, send, socket } from "#kernel/ffi";
import { inNetNs } from "#kernel/netns";

export const TCP = 6;
export const UDP = 17;
const ETHER_TYPE = { 4: 0x0800, 6: 0x86dd } as const;

/** An IP packet. `options`: of IPv4, a multiple of 4 bytes. `fragment`: its offset in bytes, and whether more follow. `hops`: default 64. */
export function ipPacket(
  ends: { readonly src: IpAddress; readonly dst: IpAddress },
  protocol: number,
  payload: Uint8Array,
  {
    options = Buffer.alloc(0),
    fragment,
    hops = 64,
  }: { readonly options?: Buffer; readonly fragment?: Fragment; readonly hops?: number } = {},
): Buffer {
  const { src, dst } = ends;
  if (src.family === 6) {
    const inner = fragment === undefined ? payload : Buffer.concat([fragmentHeader(protocol, fragment), payload]);
    const head = Buffer.alloc(8);
    head[0] = 0x60;
    head.writeUInt16BE(inner.length, 4);
    head[6] = fragment === undefined ? protocol : 44;
    head[7] = hops;
    return Buffer.concat([head, src.toBytes(), dst.toBytes(), inner]);
  }
  const head = Buffer.alloc(12);
  head[0] = 0x45 + options.length / 4;
  head.writeUInt16BE(20 + options.length + payload.length, 2);
  head.writeUInt16BE(FRAGMENT_ID, 4);
  if (fragment !== undefined) head.writeUInt16BE((fragment.more ? 0x2000 : 0) | (fragment.offset / 8), 6);
  head.set([hops, protocol], 8);
  const whole = Buffer.concat([head, src.toBytes(), dst.toBytes(), options, payload]);
  whole.writeUInt16BE(checksum(whole.subarray(0, 20 + options.length)), 10);
  return whole;
}

/** A part of a packet. */
export interface Fragment {
  readonly offset: number;
  readonly more: boolean;
}

const FRAGMENT_ID = 0x1234;

function fragmentHeader(protocol: number, { offset, more }: Fragment): Buffer {
  const bytes = Buffer.alloc(8);
  bytes[0] = protocol;
  bytes.writeUInt16BE(offset | Number(more), 2);
  bytes.writeUInt32BE(FRAGMENT_ID, 4);
  return bytes;
}

/** An IPv6 header of destination options with padding alone, in front of `payload`. */
export function behindOptions(protocol: number, payload: Uint8Array): Buffer {
  return Buffer.concat([Uint8Array.of(protocol, 0, 1, 4, 0, 0, 0, 0), payload]);
}

/** A UDP datagram with its header. */
export function udp(
  { src, dst }: { readonly src: IpAddress; readonly dst: IpAddress },
  ports: { readonly from: number; readonly to: number },
  payload: Uint8Array,
): Buffer {
  const bytes = Buffer.concat([Buffer.alloc(8), payload]);
  bytes.writeUInt16BE(ports.from, 0);
  bytes.writeUInt16BE(ports.to, 2);
  bytes.writeUInt16BE(bytes.length, 4);
  bytes.writeUInt16BE(checksum(Buffer.concat([pseudoHeader({ src, dst }, UDP, bytes.length), bytes])) || 0xffff, 6);
  return bytes;
}

/** A TCP segment without data. `flags` as in the header: 0x02 opens a connection, 0x10 acknowledges. */
export function tcp(
  ends: { readonly src: IpAddress; readonly dst: IpAddress },
  ports: { readonly from: number; readonly to: number },
  { flags, sequence }: { readonly flags: number; readonly sequence: number },
): Buffer {
  const bytes = Buffer.alloc(20);
  bytes.writeUInt16BE(ports.from, 0);
  bytes.writeUInt16BE(ports.to, 2);
  bytes.writeUInt32BE(sequence, 4);
  bytes.writeUInt32BE(1, 8);
  bytes.set([0x50, flags], 12);
  bytes.writeUInt16BE(0xffff, 14);
  bytes.writeUInt16BE(checksum(Buffer.concat([pseudoHeader(ends, TCP, bytes.length), bytes])), 16);
  return bytes;
}

function pseudoHeader(
  { src, dst }: { readonly src: IpAddress; readonly dst: IpAddress },
  protocol: number,
  length: number,
): Buffer {
  const pseudo = Buffer.alloc(8);
  pseudo.writeUInt32BE(length, 0);
  pseudo[7] = protocol;
  return Buffer.concat([src.toBytes(), dst.toBytes(), pseudo]);
}

/** An Ethernet frame. `vlan`: the identifier of a tag of IEEE 802.1Q. */
export function frame(
  { to, from }: { readonly to: MacAddress; readonly from: MacAddress },
  packet: Uint8Array,
  { vlan }: { readonly vlan?: number } = {},
): Buffer {
  const type = ETHER_TYPE[(packet[0] ?? 0) >> 4 === 4 ? 4 : 6];
  const words = vlan === undefined ? [type] : [0x8100, vlan, type];
  const head = Buffer.alloc(2 * words.length);
  for (const [at, word] of words.entries()) head.writeUInt16BE(word, 2 * at);
  return Buffer.concat([to.toBytes(), from.toBytes(), head, packet]);
}

/** VXLAN's header and a frame. */
export function vxlan(vni: number, inner: Uint8Array, flags = 0x08): Buffer {
  const head = Buffer.alloc(8);
  head[0] = flags;
  head.writeUInt32BE(vni * 256, 4);
  return Buffer.concat([head, inner]);
}

function checksum(bytes: Uint8Array): number {
  const even = bytes.length % 2 === 0 ? Buffer.from(bytes) : Buffer.concat([bytes, Uint8Array.of(0)]);
  let sum = 0;
  for (let at = 0; at < even.length; at += 2) sum += even.readUInt16BE(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}

/** Sends a frame by a link as it is. Throws `KernelError`. */
export function sendFrame(netns: { readonly fd: number }, linkIndex: number, bytes: Uint8Array): void {
  const fd = inNetNs(netns, () => socket(C.AF_PACKET, C.SOCK_RAW, 0));
  try {
    const address = Buffer.alloc(20); // struct sockaddr_ll
    address.writeUInt16LE(C.AF_PACKET, 0);
    address.writeInt32LE(linkIndex, 4);
    bind(fd, address, `send by link ${linkIndex}`);
    send(fd, bytes, { what: "send a frame" });
  } finally {
    close(fd);
  }
}
