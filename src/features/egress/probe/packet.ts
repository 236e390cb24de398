import type { IpAddress } from "#base/ip";
import type { GatewayPeer, TunnelDriver } from "../tunnel/index.ts";

/** Both ends of a probe: the same addresses are outside and inside. */
export interface ProbeEnds {
  readonly client: IpAddress;
  readonly router: IpAddress;
  /** The UDP port of the client's socket. The router answers to it, past the tunnel. */
  readonly clientPort: number;
  readonly routerPort: number;
}

const UDP = 17;
const TTL = 64;

/**
 * Pure: a probe as the payload of a UDP packet from the client to the router's tunnel port. It is what the client's tunnel to the Egress would send of a
 * UDP packet to the router itself.
 */
export function wrapProbe(
  driver: Pick<TunnelDriver, "wrap">,
  egress: GatewayPeer["egress"],
  ends: ProbeEnds,
  message: Uint8Array,
): Buffer {
  return driver.wrap(ends.client.family, egress, ipPacket(ends, udpDatagram(ends, message)));
}

/** RFC 791 section 3.1 and RFC 8200 section 3. The packet is never fragmented: the smallest MTU of both families is larger. */
function ipPacket({ client, router }: ProbeEnds, payload: Buffer): Buffer {
  const addresses = [client.toBytes(), router.toBytes()];
  if (client.family === 6) {
    const head = Buffer.alloc(8);
    head[0] = 0x60;
    head.writeUInt16BE(payload.length, 4);
    head.set([UDP, TTL], 6);
    return Buffer.concat([head, ...addresses, payload]);
  }
  const head = Buffer.alloc(12);
  head[0] = 0x45;
  head.writeUInt16BE(20 + payload.length, 2);
  head.set([TTL, UDP], 8);
  const whole = Buffer.concat([head, ...addresses, payload]);
  whole.writeUInt16BE(checksum(whole.subarray(0, 20)), 10);
  return whole;
}

/** RFC 768, with the checksum of a pseudo header (RFC 8200 section 8.1; that of IPv4 has the same sum). */
function udpDatagram({ client, router, clientPort, routerPort }: ProbeEnds, payload: Uint8Array): Buffer {
  const head = Buffer.alloc(8);
  head.writeUInt16BE(clientPort, 0);
  head.writeUInt16BE(routerPort, 2);
  head.writeUInt16BE(head.length + payload.length, 4);
  const datagram = Buffer.concat([head, payload]);
  const pseudo = Buffer.alloc(8);
  pseudo.writeUInt32BE(datagram.length, 0);
  pseudo[7] = UDP;
  const sum = checksum(Buffer.concat([client.toBytes(), router.toBytes(), pseudo, datagram]));
  // 0 says that there is no checksum.
  datagram.writeUInt16BE(sum === 0 ? 0xffff : sum, 6);
  return datagram;
}

/** RFC 1071. An odd last byte counts as the first of two. */
function checksum(bytes: Buffer): number {
  let sum = 0;
  for (let at = 0; at < bytes.length; at += 1) sum += at % 2 === 0 ? (bytes[at] ?? 0) << 8 : (bytes[at] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
