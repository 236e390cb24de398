import { AF, Attributes, familyNumber, MessageWriter, malformed } from "#kernel/netlink";
import type { ConntrackEntry, ConntrackFilter, ConntrackTuple } from "./types.ts";

/** Numbers of include/uapi/linux/netfilter/nfnetlink.h and nfnetlink_conntrack.h. */
const SUBSYSTEM = 1 << 8;
export const CT = { NEW: SUBSYSTEM, GET: SUBSYSTEM | 1, DELETE: SUBSYSTEM | 2 } as const;
const CTA = { TUPLE_ORIG: 1, TUPLE_REPLY: 2, TIMEOUT: 7, MARK: 8, ID: 12, ZONE: 18, FILTER: 25 } as const;
const TUPLE = { IP: 1, PROTO: 2 } as const;
const IP = { V4_SRC: 1, V4_DST: 2, V6_SRC: 3, V6_DST: 4 } as const;
const PROTO = { NUM: 1, SRC_PORT: 2, DST_PORT: 3 } as const;
/** CTA_FILTER_ORIG_FLAGS; its bit for CTA_PROTO_NUM is in no header (nf_conntrack_netlink.c, CTA_FILTER_F_CTA_PROTO_NUM). */
const FILTER = { ORIG_FLAGS: 1, PROTO_NUM: 1 << 3 } as const;
/** Length of `struct nfgenmsg`. */
const HEADER_LENGTH = 4;

/** `struct nfgenmsg`. */
function header(family: 4 | 6): Uint8Array {
  return Uint8Array.of(familyNumber(family), 0, 0, 0);
}

/**
 * Body of the request that lists connections. Of the filter's fields the kernel gets family and protocol, and since Linux 5.8 it leaves other protocols
 * out. Older ones list all: the rest of the filter is for the receiver in any case.
 */
export function encodeListing({ family, protocol }: ConntrackFilter): Uint8Array {
  const writer = new MessageWriter().raw(header(family));
  if (protocol !== undefined) {
    writer.nest(CTA.TUPLE_ORIG, (tuple) => tuple.nest(TUPLE.PROTO, (proto) => proto.u8(PROTO.NUM, protocol)));
    writer.nest(CTA.FILTER, (filter) => filter.u32(FILTER.ORIG_FLAGS, FILTER.PROTO_NUM));
  }
  return writer.bytes;
}

/**
 * Decodes IPCTNL_MSG_CT_NEW; `undefined` for families that are not IP, and with `protocol`, for other protocols, of which little is decoded. Throws
 * {@link KernelError} `invalid`.
 */
export function decodeConntrack(
  payload: Buffer,
  filter: Pick<ConntrackFilter, "protocol"> = {},
): ConntrackEntry | undefined {
  if (payload.length < HEADER_LENGTH) throw malformed(`a connection message has only ${payload.length} bytes`);
  const familyByte = payload.readUInt8(0);
  if (familyByte !== AF.INET && familyByte !== AF.INET6) return undefined;
  const family = familyByte === AF.INET ? 4 : 6;
  const attributes = Attributes.parse(payload.subarray(HEADER_LENGTH));
  const first = attributes.nested(CTA.TUPLE_ORIG);
  const protocol = first.nested(TUPLE.PROTO).u8(PROTO.NUM) ?? 0;
  if (filter.protocol !== undefined && protocol !== filter.protocol) return undefined;
  const timeout = attributes.be32(CTA.TIMEOUT);
  const original = decodeTuple(first);
  const reply = decodeTuple(attributes.nested(CTA.TUPLE_REPLY));
  const mark = attributes.be32(CTA.MARK) ?? 0;
  return { family, protocol, original, reply, mark, ...(timeout === undefined ? {} : { timeoutSeconds: timeout }) };
}

/**
 * Body of a message about a connection: its tuple, id and zone, as they were received in an IPCTNL_MSG_CT_NEW that
 * {@link decodeConntrack} has decoded.
 */
export function identityOf(payload: Buffer): Uint8Array {
  const attributes = Attributes.parse(payload.subarray(HEADER_LENGTH));
  const writer = new MessageWriter().raw(Uint8Array.of(payload.readUInt8(0), 0, 0, 0));
  for (const type of [CTA.TUPLE_ORIG, CTA.ID, CTA.ZONE]) {
    const bytes = attributes.bytes(type);
    if (bytes === undefined) continue;
    if (type === CTA.TUPLE_ORIG) writer.nest(type, (tuple) => tuple.raw(bytes));
    else writer.attribute(type, bytes);
  }
  return Uint8Array.from(writer.bytes);
}

/** Body of the message that sets the mark of a connection to 0. */
export function withoutMark(identity: Uint8Array): Uint8Array {
  return Uint8Array.from(new MessageWriter().raw(identity).attribute(CTA.MARK, Buffer.alloc(4)).bytes);
}

function decodeTuple(attributes: Attributes): ConntrackTuple {
  const ip = attributes.nested(TUPLE.IP);
  const proto = attributes.nested(TUPLE.PROTO);
  const src = ip.address(IP.V4_SRC) ?? ip.address(IP.V6_SRC);
  const dst = ip.address(IP.V4_DST) ?? ip.address(IP.V6_DST);
  if (src === undefined || dst === undefined) throw malformed("a connection message has no addresses");
  const [srcPort, dstPort] = [proto.be16(PROTO.SRC_PORT), proto.be16(PROTO.DST_PORT)];
  return { src, dst, ...(srcPort === undefined ? {} : { srcPort }), ...(dstPort === undefined ? {} : { dstPort }) };
}
