import { encodeHeaderBlock, type Header } from "../../hpack.ts";
import { HpackDecoder } from "../../hpack-decoder.ts";
import { FRAME_HEAD_BYTES, FrameType, PREFACE } from "../frames.ts";

/** A frame as it is on the wire. */
export interface RawFrame {
  readonly type: number;
  readonly flags: number;
  readonly stream: number;
  readonly payload: Buffer;
}

/** The bytes of a frame. */
export function frame(type: number, flags: number, stream: number, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

export function uint32(...values: number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length);
  for (const [at, value] of values.entries()) bytes.writeUInt32BE(value, 4 * at);
  return bytes;
}

/** A SETTINGS frame. */
export function settings(...values: readonly (readonly [id: number, value: number])[]): Buffer {
  const payload = Buffer.alloc(6 * values.length);
  for (const [at, [id, value]] of values.entries()) {
    payload.writeUInt16BE(id, 6 * at);
    payload.writeUInt32BE(value, 6 * at + 2);
  }
  return frame(FrameType.settings, 0, 0, payload);
}

export function windowUpdate(stream: number, bytes: number): Buffer {
  return frame(FrameType.windowUpdate, 0, stream, uint32(bytes));
}

/** A HEADERS frame with a whole block. */
export function headers(stream: number, list: readonly Header[], endStream = false): Buffer {
  return frame(FrameType.headers, endStream ? 5 : 4, stream, encodeHeaderBlock(list));
}

export const PREFACE_BYTES: Buffer = Buffer.from(PREFACE);

export const GET: readonly Header[] = [
  [":method", "GET"],
  [":scheme", "http"],
  [":path", "/"],
  [":authority", "localhost"],
];
export const POST: readonly Header[] = [
  [":method", "POST"],
  [":scheme", "http"],
  [":path", "/S/M"],
  [":authority", "localhost"],
];
export const OK: readonly Header[] = [[":status", "200"]];

/** The frames in bytes, which hold whole frames. A client's preface is left out. */
export function framesOf(bytes: Uint8Array): RawFrame[] {
  let rest = Buffer.from(bytes);
  if (rest.subarray(0, PREFACE.length).equals(PREFACE_BYTES)) rest = rest.subarray(PREFACE.length);
  const frames: RawFrame[] = [];
  while (rest.length > 0) {
    const first = firstFrame(rest);
    if (first === undefined) throw new Error("a frame is cut off");
    frames.push(first);
    rest = rest.subarray(FRAME_HEAD_BYTES + first.payload.length);
  }
  return frames;
}

/** The frame with which bytes begin, once it is whole. */
export function firstFrame(bytes: Buffer): RawFrame | undefined {
  if (bytes.length < FRAME_HEAD_BYTES) return undefined;
  const end = FRAME_HEAD_BYTES + bytes.readUIntBE(0, 3);
  if (bytes.length < end) return undefined;
  return {
    type: bytes.readUInt8(3),
    flags: bytes.readUInt8(4),
    stream: bytes.readUInt32BE(5),
    payload: bytes.subarray(FRAME_HEAD_BYTES, end),
  };
}

/** Decodes the header blocks of one side, in order. */
export function blockDecoder(): (block: Uint8Array) => Header[] {
  const decoder = new HpackDecoder({ maxTableBytes: 4096, maxListBytes: 1 << 20 });
  return (block) => decoder.decode(block);
}
