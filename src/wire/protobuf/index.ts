/**
 * The part of the protobuf wire format that small hand-written codecs need: varints, length-delimited fields, skipping.
 * Source: protobuf.dev "Encoding". It has no dependencies, because the CNI executable, which uses it, is started for each pod.
 *
 * ```ts
 * const bytes = new ProtoWriter().string(1, "abc").finish();
 * for (const field of readFields(bytes)) if (field.number === 1) decodeText(field.bytes);
 * ```
 */
import { ExpectedError } from "#base/errors";

export type ProtoErrorCode = "malformed";

/** The bytes are not a protobuf message, or a field has another wire type than in the schema. */
export class ProtoError extends ExpectedError<ProtoErrorCode> {
  override readonly name = "ProtoError";
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Builds one message. Fields with proto3 default values are left out by the caller or by the typed methods here. */
export class ProtoWriter {
  readonly #chunks: Uint8Array[] = [];
  #length = 0;

  /** A string field; the empty string is left out. */
  string(field: number, value: string): this {
    return value === "" ? this : this.bytes(field, encoder.encode(value));
  }

  /** A bytes field; no bytes are left out. */
  bytes(field: number, value: Uint8Array): this {
    return value.length === 0 ? this : this.message(field, value);
  }

  /** An embedded message, written even when empty. */
  message(field: number, value: Uint8Array): this {
    this.#push(varint(field * 8 + 2));
    this.#push(varint(value.length));
    this.#push(value);
    return this;
  }

  /** An unsigned number up to 2^53; zero is left out. */
  uint(field: number, value: number): this {
    if (value === 0) return this;
    this.#push(varint(field * 8));
    this.#push(varint(value));
    return this;
  }

  finish(): Uint8Array {
    const bytes = new Uint8Array(this.#length);
    let at = 0;
    for (const chunk of this.#chunks) {
      bytes.set(chunk, at);
      at += chunk.length;
    }
    return bytes;
  }

  #push(chunk: Uint8Array): void {
    this.#chunks.push(chunk);
    this.#length += chunk.length;
  }
}

/** A field on the wire. `bytes` is empty unless `wireType` is 2; `value` is 0 unless it is 0. */
export interface ProtoField {
  readonly number: number;
  readonly wireType: number;
  readonly value: number;
  readonly bytes: Uint8Array;
}

const NO_BYTES = new Uint8Array(0);

/** The fields of a message in order; `bytes` are views. Throws {@link ProtoError}. */
export function* readFields(message: Uint8Array): Generator<ProtoField> {
  let at = 0;
  while (at < message.length) {
    const tag = readVarint(message, at);
    at = tag.next;
    const number = Math.floor(tag.value / 8);
    const wireType = tag.value % 8;
    if (number === 0) throw new ProtoError("malformed", "a protobuf field has number 0");
    if (wireType === 0) {
      const { value, next } = readVarint(message, at);
      at = next;
      yield { number, wireType, value, bytes: NO_BYTES };
      continue;
    }
    let length = wireType === 1 ? 8 : 4;
    if (wireType === 2) {
      const prefix = readVarint(message, at);
      length = prefix.value;
      at = prefix.next;
    } else if (wireType !== 1 && wireType !== 5) {
      throw new ProtoError("malformed", `protobuf wire type ${wireType} of field ${number} is unknown`);
    }
    if (length > message.length - at) throw new ProtoError("malformed", `protobuf field ${number} is cut off`);
    const bytes = wireType === 2 ? message.subarray(at, at + length) : NO_BYTES;
    at += length;
    yield { number, wireType, value: 0, bytes };
  }
}

/** The text of a string field. Throws {@link ProtoError} when it is not a length-delimited field of UTF-8. */
export function fieldText(field: ProtoField): string {
  try {
    return decoder.decode(fieldBytes(field));
  } catch (error) {
    if (error instanceof ProtoError) throw error;
    throw new ProtoError("malformed", `protobuf field ${field.number} is not UTF-8`, { cause: error });
  }
}

/** The bytes of a length-delimited field. Throws {@link ProtoError} for another wire type. */
export function fieldBytes(field: ProtoField): Uint8Array {
  if (field.wireType !== 2) {
    throw new ProtoError("malformed", `protobuf field ${field.number} has wire type ${field.wireType} instead of 2`);
  }
  return field.bytes;
}

function varint(value: number): Uint8Array {
  const bytes: number[] = [];
  let rest = value;
  while (rest >= 128) {
    bytes.push((rest % 128) + 128);
    rest = Math.floor(rest / 128);
  }
  bytes.push(rest);
  return Uint8Array.from(bytes);
}

/** Up to ten bytes; values above 2^53 lose precision, but no message here has values above that. */
function readVarint(message: Uint8Array, start: number): { readonly value: number; readonly next: number } {
  let value = 0;
  for (let at = start; at < start + 10; at += 1) {
    const byte = message[at];
    if (byte === undefined) throw new ProtoError("malformed", "a protobuf varint is cut off");
    value += (byte & 127) * 2 ** (7 * (at - start));
    if (byte < 128) return { value, next: at + 1 };
  }
  throw new ProtoError("malformed", "a protobuf varint is longer than ten bytes");
}
