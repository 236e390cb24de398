import { ExpectedError } from "#base/errors";
import { type Data, type Packet, PacketType, type PacketTypeName, type TunnelId, tunnelId } from "./packet.ts";

export type TunnelWireErrorCode = "malformed";

/** Bytes that are not a `Packet`. */
export class TunnelWireError extends ExpectedError<TunnelWireErrorCode> {
  override readonly name = "TunnelWireError";
}

/** The payload's number in the oneof by packet type. */
const PAYLOAD_OF: Readonly<Record<PacketTypeName, number>> = {
  DIAL_REQ: 2,
  DIAL_RSP: 3,
  DATA: 4,
  CLOSE_REQ: 5,
  CLOSE_RSP: 6,
  DIAL_CLS: 7,
  DRAIN: 8,
  WINDOW: 64,
  FIN: 65,
};
const PAYLOADS: ReadonlySet<number> = new Set(Object.values(PAYLOAD_OF));
const NAME_OF = new Map<number, PacketTypeName>(
  Object.entries(PacketType).map(([name, value]) => [value, name as PacketTypeName]),
);

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const NO_BYTES: Uint8Array = new Uint8Array(0);

/**
 * Reads one message, which may be split into `pieces` at any byte. The payload of DATA is returned as views of the pieces; if its header
 * is split or its layout is unusual, the pieces are joined first. Throws {@link TunnelWireError} for bytes that are not a protobuf message
 * of the schema. Unknown fields are skipped.
 */
export function decodePacket(pieces: readonly Uint8Array[], length: number): Packet {
  const [first = NO_BYTES] = pieces;
  return quickData(first, pieces, length) ?? decodeWhole(pieces.length <= 1 ? first : joined(pieces, length));
}

/** DATA in the layout of every known writer, with the payload last: 08 04 22 <length> 08 <id> 1a <length> <bytes>. */
function quickData(first: Uint8Array, pieces: readonly Uint8Array[], length: number): Data | undefined {
  if (first[0] !== 8 || first[1] !== PacketType.DATA || first[2] !== 0x22) return undefined;
  const reader = new Reader(first, 3);
  const message = reader.tryUint();
  if (message === undefined || reader.at + message !== length) return undefined;
  let connectID: TunnelId = 0;
  if (first[reader.at] === 8) {
    reader.at += 1;
    const id = reader.tryInt64();
    if (id === undefined) return undefined;
    connectID = id;
  }
  if (first[reader.at] !== 0x1a) return undefined;
  reader.at += 1;
  const bytes = reader.tryUint();
  if (bytes === undefined || reader.at + bytes !== length) return undefined;
  const rest = first.subarray(reader.at);
  return {
    type: "DATA",
    connectID,
    pieces: rest.length > 0 ? [rest, ...pieces.slice(1)] : pieces.slice(1),
    length: bytes,
  };
}

function decodeWhole(message: Uint8Array): Packet {
  const reader = new Reader(message);
  let value = 0;
  // The last member of a oneof counts; parts of one member are merged.
  let payload = 0;
  let body = NO_BYTES;
  let others: Uint8Array[] | undefined;
  while (reader.more) {
    const { field, wireType } = reader.tag();
    if (field === 1 && wireType === 0) value = Number(BigInt.asIntN(32, BigInt(reader.int64())));
    else if (PAYLOADS.has(field) && wireType === 2) {
      const part = reader.bytes();
      if (payload === field) {
        others ??= [];
        others.push(part);
      } else {
        payload = field;
        body = part;
        others = undefined;
      }
    } else reader.skip(wireType, field);
  }
  const type = NAME_OF.get(value);
  if (type === undefined) return { type: "UNKNOWN", value };
  // Every payload is checked, even one that does not belong to the type.
  const fields = readBody(others === undefined ? body : joined([body].concat(others)), payload);
  return packetOf(type, PAYLOAD_OF[type] === payload ? fields : NO_BODY);
}

/** The fields of a payload by their numbers, which are at most 3. A field that is not there has the default of proto3. */
interface Body {
  readonly ints: readonly TunnelId[];
  readonly texts: readonly string[];
  readonly data: Uint8Array;
}
const NO_BODY: Body = { ints: [], texts: [], data: NO_BYTES };

/** Field numbers that are texts, by payload. */
const TEXTS: Readonly<Record<number, readonly number[]>> = { 2: [1, 2], 3: [1], 4: [2], 6: [1] };
/** Field numbers that are int64, by payload. */
const INTS: Readonly<Record<number, readonly number[]>> = {
  2: [3],
  3: [2, 3],
  4: [1],
  5: [1],
  6: [2],
  7: [1],
  64: [1, 2],
  65: [1],
};

function readBody(bytes: Uint8Array, payload: number): Body {
  const ints: TunnelId[] = [0, 0, 0, 0];
  const texts = ["", "", "", ""];
  let data = NO_BYTES;
  const reader = new Reader(bytes);
  while (reader.more) {
    const { field, wireType } = reader.tag();
    if (wireType === 0 && INTS[payload]?.includes(field) === true) ints[field] = reader.int64();
    else if (wireType === 2 && TEXTS[payload]?.includes(field) === true) texts[field] = textOf(reader.bytes(), field);
    else if (wireType === 2 && payload === 4 && field === 3) data = reader.bytes();
    else reader.skip(wireType, field);
  }
  return { ints, texts, data };
}

function packetOf(type: PacketTypeName, { ints, texts, data }: Body): Packet {
  const int = (field: number): TunnelId => ints[field] ?? 0;
  const text = (field: number): string => texts[field] ?? "";
  switch (type) {
    case "DIAL_REQ":
      return { type, protocol: text(1), address: text(2), random: int(3) };
    case "DIAL_RSP":
      return { type, error: text(1), connectID: int(2), random: int(3) };
    case "DATA":
      return { type, connectID: int(1), pieces: data.length === 0 ? [] : [data], length: data.length };
    case "CLOSE_REQ":
    case "FIN":
      return { type, connectID: int(1) };
    case "CLOSE_RSP":
      return { type, error: text(1), connectID: int(2) };
    case "DIAL_CLS":
      return { type, random: int(1) };
    case "DRAIN":
      return { type };
    case "WINDOW":
      return { type, connectID: int(1), credit: int(2) };
  }
}

class Reader {
  readonly #bytes: Uint8Array;
  at: number;

  constructor(bytes: Uint8Array, at = 0) {
    this.#bytes = bytes;
    this.at = at;
  }

  get more(): boolean {
    return this.at < this.#bytes.length;
  }

  tag(): { readonly field: number; readonly wireType: number } {
    const tag = this.uint();
    const field = Math.floor(tag / 8);
    if (field === 0 || field >= 2 ** 29) throw new TunnelWireError("malformed", `a packet has a field number ${field}`);
    return { field, wireType: tag % 8 };
  }

  uint(): number {
    const value = this.tryUint();
    if (value === undefined)
      throw new TunnelWireError("malformed", "a packet has a length or key that is cut off or too large");
    return value;
  }

  int64(): TunnelId {
    const value = this.tryInt64();
    if (value === undefined)
      throw new TunnelWireError("malformed", "a packet has a varint that is cut off or too long");
    return value;
  }

  /** A varint below 2^32; `undefined` if it is invalid or incomplete, with the position undefined. */
  tryUint(): number | undefined {
    let value = 0;
    for (let shift = 1, end = this.at + 5; this.at < end; shift *= 128) {
      const byte = this.#bytes[this.at];
      if (byte === undefined) return undefined;
      this.at += 1;
      value += (byte & 127) * shift;
      if (byte < 128) return value < 2 ** 32 ? value : undefined;
    }
    return undefined;
  }

  /** A varint of up to ten bytes as a signed 64-bit number; `undefined` if it is invalid or incomplete. */
  tryInt64(): TunnelId | undefined {
    const start = this.at;
    let value = 0;
    // Seven bytes have 49 bits, which a number holds exactly.
    for (let shift = 1, end = start + 7; this.at < end; shift *= 128) {
      const byte = this.#bytes[this.at];
      if (byte === undefined) return undefined;
      this.at += 1;
      value += (byte & 127) * shift;
      if (byte < 128) return value;
    }
    let large = BigInt(value);
    for (let shift = 49n; shift < 70n; shift += 7n) {
      const byte = this.#bytes[this.at];
      if (byte === undefined) return undefined;
      this.at += 1;
      large |= BigInt(byte & 127) << shift;
      if (byte < 128) return tunnelId(BigInt.asIntN(64, large));
    }
    return undefined;
  }

  bytes(): Uint8Array {
    const length = this.uint();
    if (length > this.#bytes.length - this.at)
      throw new TunnelWireError("malformed", "a packet has a field that is cut off");
    this.at += length;
    return this.#bytes.subarray(this.at - length, this.at);
  }

  skip(wireType: number, field: number): void {
    if (wireType === 0) this.int64();
    else if (wireType === 2) this.bytes();
    else if (wireType === 1) this.#advance(8);
    else if (wireType === 5) this.#advance(4);
    else
      throw new TunnelWireError("malformed", `a packet's field ${field} has wire type ${wireType}, which is unknown`);
  }

  #advance(count: number): void {
    if (count > this.#bytes.length - this.at)
      throw new TunnelWireError("malformed", "a packet has a field that is cut off");
    this.at += count;
  }
}

function textOf(bytes: Uint8Array, field: number): string {
  try {
    return decoder.decode(bytes);
  } catch (error) {
    throw new TunnelWireError("malformed", `a packet's text field ${field} is not UTF-8`, { cause: error });
  }
}

function joined(
  pieces: readonly Uint8Array[],
  length = pieces.reduce((sum, piece) => sum + piece.length, 0),
): Uint8Array {
  const whole = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}
