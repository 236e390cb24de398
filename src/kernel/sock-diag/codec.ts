import { IpAddress } from "#base/ip";
import { AF, Attributes, malformed } from "#kernel/netlink";
import type { ListeningSocket } from "./types.ts";

/** include/uapi/linux/sock_diag.h */
export const SOCK_DIAG_BY_FAMILY = 20;
/** Protocol numbers (IANA). */
const PROTOCOLS = { TCP: 6, UDP: 17 } as const;
/**
 * include/net/tcp_states.h: TCP sockets that listen, and UDP sockets without a peer, which have the state of a closed socket, as have those of TCP that
 * are not used.
 */
const STATES = { TCP: 1 << 10, UDP: 1 << 7 } as const;
/** struct inet_diag_req_v2, include/uapi/linux/inet_diag.h. */
const REQUEST_BYTES = 56;
/** struct inet_diag_msg. */
const MESSAGE_BYTES = 72;
/** INET_DIAG_SKV6ONLY: a byte; only for sockets of IPv6. */
const V6_ONLY = 11;

/** The request for the listening sockets of a family and protocol. */
export function encodeRequest(family: 4 | 6, protocol: ListeningSocket["protocol"]): Uint8Array {
  const bytes = Buffer.alloc(REQUEST_BYTES);
  bytes.writeUInt8(family === 4 ? AF.INET : AF.INET6, 0);
  bytes.writeUInt8(PROTOCOLS[protocol], 1);
  bytes.writeUInt32LE(STATES[protocol], 4);
  return bytes;
}

/** Decodes SOCK_DIAG_BY_FAMILY; `undefined` for a socket with a peer or without a port. Throws `KernelError` `invalid`. */
export function decodeSocket(payload: Buffer, protocol: ListeningSocket["protocol"]): ListeningSocket | undefined {
  if (payload.length < MESSAGE_BYTES) throw malformed(`a socket of ${payload.length} bytes, not ${MESSAGE_BYTES}`);
  const family = payload.readUInt8(0);
  const port = payload.readUInt16BE(4);
  const peerPort = payload.readUInt16BE(6);
  if (port === 0 || peerPort !== 0 || (family !== AF.INET && family !== AF.INET6)) return undefined;
  const address = IpAddress.fromBytes(payload.subarray(8, family === AF.INET ? 12 : 24));
  const only = Attributes.parse(payload.subarray(MESSAGE_BYTES)).bytes(V6_ONLY)?.[0];
  return { protocol, address, port, isOneFamily: family === AF.INET || only === 1 };
}
