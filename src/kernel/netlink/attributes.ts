import { IpAddress } from "#base/ip";
import { KernelError } from "#kernel/errors";

const NESTED = 0x8000;
/** The mask of an attribute's type, without the bits for nesting and byte order (NLA_TYPE_MASK). */
const TYPE_MASK = 0x3fff;

/** Builds the body of a message: a fixed header, then attributes, all aligned to 4 bytes, in host (little-endian) order. */
export class MessageWriter {
  #bytes = Buffer.alloc(256);
  #length = 0;

  /** The bytes written so far: a view that the next write may invalidate. */
  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  /** Appends raw bytes, such as a struct, padded to 4. */
  raw(bytes: Uint8Array): this {
    const at = this.#reserve(bytes.length);
    this.#bytes.set(bytes, at);
    return this;
  }

  /** An attribute with bytes as its payload. Throws {@link KernelError} `invalid` above 65531 bytes. */
  attribute(type: number, payload: Uint8Array): this {
    if (payload.length > 0xffff - 4) {
      throw new KernelError(
        "invalid",
        `Cannot encode netlink attribute ${type}: ${payload.length} bytes, at most 65531`,
      );
    }
    const at = this.#reserve(4 + payload.length);
    this.#bytes.writeUInt16LE(4 + payload.length, at);
    this.#bytes.writeUInt16LE(type, at + 2);
    this.#bytes.set(payload, at + 4);
    return this;
  }

  u8(type: number, value: number): this {
    return this.attribute(type, Uint8Array.of(checked(type, value, 0xff)));
  }

  u16(type: number, value: number): this {
    return this.attribute(type, new Uint8Array(new Uint16Array([checked(type, value, 0xffff)]).buffer));
  }

  /** Writes a big-endian number: a port or another value in network order. */
  be16(type: number, value: number): this {
    const port = checked(type, value, 0xffff);
    return this.attribute(type, Uint8Array.of(port >> 8, port & 0xff));
  }

  u32(type: number, value: number): this {
    return this.attribute(type, new Uint8Array(new Uint32Array([checked(type, value, 0xffff_ffff)]).buffer));
  }

  i32(type: number, value: number): this {
    return this.attribute(type, new Uint8Array(new Int32Array([value]).buffer));
  }

  be32(type: number, value: number): this {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32BE(checked(type, value, 0xffff_ffff));
    return this.attribute(type, bytes);
  }

  be64(type: number, value: bigint): this {
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64BE(BigInt.asUintN(64, value));
    return this.attribute(type, bytes);
  }

  /** A NUL-terminated string. */
  string(type: number, value: string): this {
    return this.attribute(type, Buffer.from(`${value}\0`));
  }

  address(type: number, value: IpAddress): this {
    return this.attribute(type, value.toBytes());
  }

  /** An attribute without payload. */
  flag(type: number): this {
    return this.attribute(type, new Uint8Array(0));
  }

  /** An attribute whose payload is written by `fill`. `marked` sets NLA_F_NESTED, which newer parts of the kernel require. */
  nest(type: number, fill: (writer: MessageWriter) => void, marked = true): this {
    const inner = new MessageWriter();
    fill(inner);
    return this.attribute(marked ? type | NESTED : type, inner.bytes);
  }

  #reserve(length: number): number {
    const at = this.#length;
    const end = at + ((length + 3) & ~3);
    if (end > this.#bytes.length) {
      const larger = Buffer.alloc(Math.max(end, this.#bytes.length * 2));
      larger.set(this.#bytes.subarray(0, at));
      this.#bytes = larger;
    }
    this.#length = end;
    return at;
  }
}

function checked(type: number, value: number, max: number): number {
  if (Number.isInteger(value) && value >= 0 && value <= max) return value;
  throw new KernelError(
    "invalid",
    `Cannot encode netlink attribute ${type}: ${value} is not an integer from 0 to ${max}`,
  );
}

/**
 * The attributes of one level, by type; the last of a repeated type wins. Payloads are views. Every getter gives
 * `undefined` for an absent attribute and throws {@link KernelError} `invalid` for an attribute that is too short.
 */
export class Attributes {
  readonly #payloads: ReadonlyMap<number, Buffer>;

  private constructor(payloads: ReadonlyMap<number, Buffer>) {
    this.#payloads = payloads;
  }

  /** Parses attributes that fill `bytes`. Throws {@link KernelError} `invalid` when a length does not fit. */
  static parse(bytes: Buffer): Attributes {
    const payloads = new Map<number, Buffer>();
    for (const { type, payload } of eachAttribute(bytes)) payloads.set(type, payload);
    return new Attributes(payloads);
  }

  has(type: number): boolean {
    return this.#payloads.has(type);
  }

  bytes(type: number): Buffer | undefined {
    return this.#payloads.get(type);
  }

  u8(type: number): number | undefined {
    return this.#sized(type, 1)?.readUInt8(0);
  }

  u16(type: number): number | undefined {
    return this.#sized(type, 2)?.readUInt16LE(0);
  }

  be16(type: number): number | undefined {
    return this.#sized(type, 2)?.readUInt16BE(0);
  }

  u32(type: number): number | undefined {
    return this.#sized(type, 4)?.readUInt32LE(0);
  }

  be32(type: number): number | undefined {
    return this.#sized(type, 4)?.readUInt32BE(0);
  }

  i32(type: number): number | undefined {
    return this.#sized(type, 4)?.readInt32LE(0);
  }

  be64(type: number): bigint | undefined {
    return this.#sized(type, 8)?.readBigUInt64BE(0);
  }

  /** The text up to the first NUL. */
  string(type: number): string | undefined {
    const payload = this.#payloads.get(type);
    if (payload === undefined) return undefined;
    const end = payload.indexOf(0);
    return payload.toString("utf8", 0, end < 0 ? payload.length : end);
  }

  /** An address of 4 or 16 bytes. */
  address(type: number): IpAddress | undefined {
    const payload = this.#payloads.get(type);
    if (payload === undefined) return undefined;
    if (payload.length !== 4 && payload.length !== 16) throw malformed(`attribute ${type} has ${payload.length} bytes`);
    return IpAddress.fromBytes(payload);
  }

  /** The nested attributes; empty if the attribute is absent. */
  nested(type: number): Attributes {
    return Attributes.parse(this.#payloads.get(type) ?? Buffer.alloc(0));
  }

  #sized(type: number, length: number): Buffer | undefined {
    const payload = this.#payloads.get(type);
    if (payload !== undefined && payload.length < length) {
      throw malformed(`attribute ${type} has ${payload.length} bytes, wanted ${length}`);
    }
    return payload;
  }
}

/** The attributes in order, repeated ones too. Throws {@link KernelError} `invalid` when a length does not fit. */
export function* eachAttribute(bytes: Buffer): Generator<{ readonly type: number; readonly payload: Buffer }> {
  for (let at = 0; at + 4 <= bytes.length; ) {
    const length = bytes.readUInt16LE(at);
    if (length < 4 || at + length > bytes.length) {
      throw malformed(`attribute of length ${length} at ${at} of ${bytes.length} bytes`);
    }
    yield { type: bytes.readUInt16LE(at + 2) & TYPE_MASK, payload: bytes.subarray(at + 4, at + length) };
    at += (length + 3) & ~3;
  }
}

/** The error for malformed bytes, which the kernel does not send. */
export function malformed(what: string): KernelError {
  return new KernelError("invalid", `Malformed netlink message: ${what}`, { errno: "EBADMSG" });
}
