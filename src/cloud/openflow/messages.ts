import { OpenFlowError } from "./errors.ts";

/** OpenFlow 1.3: the version of Neutron's agent, which sets it as one of its bridges'. */
export const VERSION = 0x04;
/** OpenFlow Switch Specification 1.3.5 section A.1: `enum ofp_type`. */
export const TYPE = {
  hello: 0,
  error: 1,
  echoRequest: 2,
  echoReply: 3,
  multipartRequest: 18,
  multipartReply: 19,
} as const;
/** Section A.3.5: `OFPMP_AGGREGATE`. */
const AGGREGATE = 2;
/** Section A.2.3.1: `OFPTT_ALL`, `OFPP_ANY` and `OFPG_ANY`. */
const ANY = 0xffff_ffff;
const ALL_TABLES = 0xff;
/** Section A.2.3.2: `OFPMT_OXM`, and the length of a match without fields, without its padding. */
const MATCH = { type: 1, bytes: 4, paddedBytes: 8 } as const;
const HEADER_BYTES = 8;
const MULTIPART_HEADER_BYTES = 8;
/** `struct ofp_aggregate_stats_request` without its match. */
const REQUEST_BYTES = 32;
/** `struct ofp_aggregate_stats_reply`, and where its flow count is. */
const REPLY = { bytes: 24, countAt: 16 } as const;

/** One message: all of its bytes after the header are `body`. */
export interface OpenFlowMessage {
  readonly version: number;
  readonly type: number;
  readonly xid: number;
  readonly body: Buffer;
}

/** Pure: the bytes of a message of {@link VERSION}. */
export function encodeMessage({
  type,
  xid,
  body = Buffer.alloc(0),
}: Pick<OpenFlowMessage, "type" | "xid"> & { readonly body?: Buffer }): Buffer {
  const head = Buffer.alloc(HEADER_BYTES);
  head.writeUInt8(VERSION, 0);
  head.writeUInt8(type, 1);
  head.writeUInt16BE(HEADER_BYTES + body.length, 2);
  head.writeUInt32BE(xid, 4);
  return Buffer.concat([head, body]);
}

/** Pure: the first message of some bytes, and how many it has; `undefined`: more are needed. Throws {@link OpenFlowError} `malformed`. */
export function decodeMessage(
  bytes: Buffer,
): { readonly message: OpenFlowMessage; readonly length: number } | undefined {
  if (bytes.length < HEADER_BYTES) return undefined;
  const length = bytes.readUInt16BE(2);
  if (length < HEADER_BYTES) throw new OpenFlowError("malformed", `an OpenFlow message of ${length} bytes`);
  if (bytes.length < length) return undefined;
  const message = {
    version: bytes.readUInt8(0),
    type: bytes.readUInt8(1),
    xid: bytes.readUInt32BE(4),
    body: bytes.subarray(HEADER_BYTES, length),
  };
  return { message, length };
}

/** Pure: the request for the sum of all flows of all tables. */
export function encodeCountRequest(xid: number): Buffer {
  const body = Buffer.alloc(MULTIPART_HEADER_BYTES + REQUEST_BYTES + MATCH.paddedBytes);
  body.writeUInt16BE(AGGREGATE, 0);
  let at = MULTIPART_HEADER_BYTES;
  body.writeUInt8(ALL_TABLES, at);
  body.writeUInt32BE(ANY, at + 4);
  body.writeUInt32BE(ANY, at + 8);
  at += REQUEST_BYTES;
  body.writeUInt16BE(MATCH.type, at);
  body.writeUInt16BE(MATCH.bytes, at + 2);
  return encodeMessage({ type: TYPE.multipartRequest, xid, body });
}

/** Pure: the number of flows in the answer. Throws {@link OpenFlowError} `refused`, `malformed`. */
export function decodeCount({ type, body }: OpenFlowMessage): number {
  if (type === TYPE.error) {
    const [kind, code] = body.length < 4 ? [0, 0] : [body.readUInt16BE(0), body.readUInt16BE(2)];
    throw new OpenFlowError("refused", `the switch answers with OpenFlow error ${kind}, code ${code}`);
  }
  const isCount =
    type === TYPE.multipartReply &&
    body.length === MULTIPART_HEADER_BYTES + REPLY.bytes &&
    body.readUInt16BE(0) === AGGREGATE;
  if (!isCount) throw new OpenFlowError("malformed", `the switch answers with type ${type} of ${body.length} bytes`);
  return body.readUInt32BE(MULTIPART_HEADER_BYTES + REPLY.countAt);
}
