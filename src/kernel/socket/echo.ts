import type { IpFamily } from "#base/ip";

/** Length of an ICMP echo header (RFC 792, RFC 4443 section 4). */
const HEADER = 8;
const ECHO_REQUEST = { 4: 8, 6: 128 } as const;
const ECHO_REPLY = { 4: 0, 6: 129 } as const;

/** An echo message. */
export interface Echo {
  /** 0 to 65535: identifies the sender of the request. */
  readonly id: number;
  /** 0 to 65535. */
  readonly sequence: number;
  readonly payload: Buffer;
}

/** Encodes an echo request. The kernel computes the IPv6 checksum, since it knows the source address. */
export function encodeEchoRequest(family: IpFamily, id: number, sequence: number, payload: Uint8Array): Buffer {
  const bytes = Buffer.alloc(HEADER + payload.length);
  bytes.writeUInt8(ECHO_REQUEST[family], 0);
  bytes.writeUInt16BE(id, 4);
  bytes.writeUInt16BE(sequence, 6);
  bytes.set(payload, HEADER);
  if (family === 4) bytes.writeUInt16BE(checksum(bytes), 2);
  return bytes;
}

/** Decodes an echo reply from a raw socket: IPv4 with its IP header, IPv6 without. `undefined` for anything else. */
export function decodeEchoReply(family: IpFamily, packet: Buffer): Echo | undefined {
  const offset = family === 4 ? ((packet[0] ?? 0) % 16) * 4 : 0;
  const message = packet.subarray(offset);
  if (message.length < HEADER || message[0] !== ECHO_REPLY[family] || message[1] !== 0) return undefined;
  return {
    id: message.readUInt16BE(4),
    sequence: message.readUInt16BE(6),
    payload: Buffer.from(message.subarray(HEADER)),
  };
}

/** The Internet checksum (RFC 1071). */
export function checksum(bytes: Uint8Array): number {
  let sum = 0;
  for (let at = 0; at < bytes.length; at += 2) sum += ((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
