import { Attributes, malformed } from "./attributes.ts";
import { NLM_F } from "./constants.ts";

/** Length of `struct nlmsghdr`. */
export const HEADER_LENGTH = 16;

/** One message as it arrived; `payload` is a view of the receive buffer, valid until the next receive. */
export interface NetlinkMessage {
  readonly type: number;
  readonly flags: number;
  readonly sequence: number;
  /** Port id of the socket that made the request; of notifications too. */
  readonly port: number;
  readonly payload: Buffer;
}

/** A whole message, header included. */
export function encodeMessage(type: number, flags: number, sequence: number, body: Uint8Array): Buffer {
  const bytes = Buffer.alloc(HEADER_LENGTH + body.length);
  bytes.writeUInt32LE(bytes.length, 0);
  bytes.writeUInt16LE(type, 4);
  bytes.writeUInt16LE(flags, 6);
  bytes.writeUInt32LE(sequence, 8);
  bytes.set(body, HEADER_LENGTH); // nlmsg_pid stays 0: the kernel fills in the sender
  return bytes;
}

/** The messages of one datagram. Throws {@link KernelError} `invalid` when a length does not fit. */
export function* decodeMessages(datagram: Buffer): Generator<NetlinkMessage> {
  for (let at = 0; at < datagram.length; ) {
    if (at + HEADER_LENGTH > datagram.length) throw malformed(`header cut at ${at} of ${datagram.length} bytes`);
    const length = datagram.readUInt32LE(at);
    if (length < HEADER_LENGTH || at + length > datagram.length) {
      throw malformed(`message of length ${length} at ${at} of ${datagram.length} bytes`);
    }
    yield {
      type: datagram.readUInt16LE(at + 4),
      flags: datagram.readUInt16LE(at + 6),
      sequence: datagram.readUInt32LE(at + 8),
      port: datagram.readUInt32LE(at + 12),
      payload: datagram.subarray(at + HEADER_LENGTH, at + length),
    };
    at += (length + 3) & ~3;
  }
}

/** The result of a request: errno 0 is success. `text` is the kernel's own, from the extended ack. */
export interface Ack {
  readonly errno: number;
  readonly text: string;
}

/** NLMSGERR_ATTR_MSG. */
const ATTR_MSG = 1;

/** Decodes NLMSG_ERROR (`struct nlmsgerr`). Throws {@link KernelError} `invalid` for a message that is too short. */
export function decodeAck(message: NetlinkMessage): Ack {
  const { payload, flags } = message;
  if (payload.length < 4) throw malformed(`an ack has only ${payload.length} bytes`);
  const errno = -payload.readInt32LE(0);
  if ((flags & NLM_F.ACK_TLVS) === 0 || payload.length < 4 + HEADER_LENGTH) return { errno, text: "" };
  // Unless capped, the whole request is echoed between the error and the attributes.
  const echoed = (flags & NLM_F.CAPPED) !== 0 ? HEADER_LENGTH : payload.readUInt32LE(4);
  if (echoed < HEADER_LENGTH || 4 + echoed > payload.length) throw malformed(`an ack that echoes ${echoed} bytes`);
  const text = Attributes.parse(payload.subarray(4 + ((echoed + 3) & ~3))).string(ATTR_MSG) ?? "";
  return { errno, text };
}

/** Decodes NLMSG_DONE: a dump may end with an error, and with an extended ack. */
export function decodeDone(message: NetlinkMessage): Ack {
  const { payload, flags } = message;
  if (payload.length < 4) return { errno: 0, text: "" };
  const errno = Math.max(0, -payload.readInt32LE(0));
  if ((flags & NLM_F.ACK_TLVS) === 0) return { errno, text: "" };
  return { errno, text: Attributes.parse(payload.subarray(4)).string(ATTR_MSG) ?? "" };
}
