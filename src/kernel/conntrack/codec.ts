import { AF, Attributes, familyNumber, MessageWriter, malformed } from "#kernel/netlink";
import type { ConntrackEntry, ConntrackTuple } from "./types.ts";

/** Numbers of include/uapi/linux/netfilter/nfnetlink.h and nfnetlink_conntrack.h. */
const SUBSYSTEM = 1 << 8;
export const CT = { NEW: SUBSYSTEM, GET: SUBSYSTEM | 1, DELETE: SUBSYSTEM | 2 } as const;
const CTA = { TUPLE_ORIG: 1, TUPLE_REPLY: 2, TIMEOUT: 7, MARK: 8, ID: 12, ZONE: 18 } as const;
const TUPLE = { IP: 1, PROTO: 2 } as const;
const IP = { V4_SRC: 1, V4_DST: 2, V6_SRC: 3, V6_DST: 4 } as const;
const PROTO = { NUM: 1, SRC_PORT: 2, DST_PORT: 3 } as const;
/** Length of `struct nfgenmsg`. */
const HEADER_LENGTH = 4;

/** A connection, with the words by which the kernel knows it. */
export interface RawEntry {
  readonly entry: ConntrackEntry;
  /** Body of a message about this connection: tuple, id and zone, as they were received. */
  readonly identity: Uint8Array;
}

/** `struct nfgenmsg`. */
export function conntrackHeader(family: 4 | 6): Uint8Array {
  return Uint8Array.of(familyNumber(family), 0, 0, 0);
}

/** Decodes IPCTNL_MSG_CT_NEW; `undefined` for families that are not IP. Throws {@link KernelError} `invalid`. */
export function decodeConntrack(payload: Buffer): RawEntry | undefined {
  if (payload.length < HEADER_LENGTH) throw malformed(`a connection message has only ${payload.length} bytes`);
  const familyByte = payload.readUInt8(0);
  if (familyByte !== AF.INET && familyByte !== AF.INET6) return undefined;
  const family = familyByte === AF.INET ? 4 : 6;
  const attributes = Attributes.parse(payload.subarray(HEADER_LENGTH));
  const timeout = attributes.be32(CTA.TIMEOUT);
  const { tuple: original, protocol } = decodeTuple(attributes.nested(CTA.TUPLE_ORIG));
  const { tuple: reply } = decodeTuple(attributes.nested(CTA.TUPLE_REPLY));
  const mark = attributes.be32(CTA.MARK) ?? 0;
  return {
    entry: { family, protocol, original, reply, mark, ...(timeout === undefined ? {} : { timeoutSeconds: timeout }) },
    identity: encodeIdentity(family, attributes),
  };
}

function encodeIdentity(family: 4 | 6, attributes: Attributes): Uint8Array {
  const writer = new MessageWriter().raw(conntrackHeader(family));
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

function decodeTuple(attributes: Attributes): { readonly tuple: ConntrackTuple; readonly protocol: number } {
  const ip = attributes.nested(TUPLE.IP);
  const proto = attributes.nested(TUPLE.PROTO);
  const src = ip.address(IP.V4_SRC) ?? ip.address(IP.V6_SRC);
  const dst = ip.address(IP.V4_DST) ?? ip.address(IP.V6_DST);
  if (src === undefined || dst === undefined) throw malformed("a connection message has no addresses");
  const [srcPort, dstPort] = [proto.be16(PROTO.SRC_PORT), proto.be16(PROTO.DST_PORT)];
  return {
    protocol: proto.u8(PROTO.NUM) ?? 0,
    tuple: { src, dst, ...(srcPort === undefined ? {} : { srcPort }), ...(dstPort === undefined ? {} : { dstPort }) },
  };
}
