import { type ControlPacket, PacketType, type TunnelId } from "./packet.ts";

const encoder = new TextEncoder();
/** The longest varint of 64 bits, in bytes. */
const MAX_VARINT = 10;
const GRPC_PREFIX = 5;

/**
 * A control packet as a gRPC message with its prefix, as it is written to the stream. Fields with proto3 default values are left out,
 * as in Go. Source: konnectivity-client/proto/client/client.proto.
 */
export function frameControl(packet: ControlPacket): Uint8Array {
  const writer = new Writer(64 + textBytes(packet));
  writer.varintField(1, PacketType[packet.type]);
  switch (packet.type) {
    case "DIAL_REQ":
      return writer.payload(2, (body) =>
        body.text(1, packet.protocol).text(2, packet.address).varintField(3, packet.random),
      );
    case "DIAL_RSP":
      return writer.payload(3, (body) =>
        body.text(1, packet.error).varintField(2, packet.connectID).varintField(3, packet.random),
      );
    case "CLOSE_REQ":
      return writer.payload(5, (body) => body.varintField(1, packet.connectID));
    case "CLOSE_RSP":
      return writer.payload(6, (body) => body.text(1, packet.error).varintField(2, packet.connectID));
    case "DIAL_CLS":
      return writer.payload(7, (body) => body.varintField(1, packet.random));
    case "DRAIN":
      return writer.payload(8, (body) => body);
    case "WINDOW":
      return writer.payload(64, (body) => body.varintField(1, packet.connectID).varintField(2, packet.credit));
    case "FIN":
      return writer.payload(65, (body) => body.varintField(1, packet.connectID));
  }
}

/** The bytes before a payload of `length` bytes that make it a DATA packet in a gRPC message. `length` is at least 1. */
export function frameData(connectID: TunnelId, length: number): Uint8Array {
  const idBytes = connectID === 0 ? 0 : 1 + varintLength(connectID);
  const data = idBytes + 1 + varintLength(length) + length;
  const message = 3 + varintLength(data) + data;
  const writer = new Writer(GRPC_PREFIX + 2 * MAX_VARINT + 8 + MAX_VARINT);
  writer.varintField(1, PacketType.DATA);
  writer.tag(4).varint(data).varintField(1, connectID).tag(3).varint(length);
  return writer.finish(message);
}

class Writer {
  readonly #bytes: Uint8Array;
  #at = GRPC_PREFIX;

  constructor(atMost: number) {
    this.#bytes = new Uint8Array(atMost);
  }

  /** Key of a length-delimited field. */
  tag(field: number): this {
    return this.varint(field * 8 + 2);
  }

  text(field: number, value: string): this {
    if (value === "") return this;
    const bytes = encoder.encode(value);
    this.tag(field).varint(bytes.length);
    this.#bytes.set(bytes, this.#at);
    this.#at += bytes.length;
    return this;
  }

  varintField(field: number, value: TunnelId): this {
    return value === 0 ? this : this.varint(field * 8).varint(value);
  }

  varint(value: TunnelId): this {
    if (typeof value === "number" && value >= 0) {
      let rest = value;
      while (rest >= 128) {
        this.#bytes[this.#at++] = (rest % 128) + 128;
        rest = Math.floor(rest / 128);
      }
      this.#bytes[this.#at++] = rest;
      return this;
    }
    let rest = BigInt.asUintN(64, BigInt(value));
    while (rest >= 128n) {
      this.#bytes[this.#at++] = Number(rest & 127n) + 128;
      rest >>= 7n;
    }
    this.#bytes[this.#at++] = Number(rest);
    return this;
  }

  /** Writes an embedded message of unknown length and finishes. */
  payload(field: number, write: (body: Writer) => Writer): Uint8Array {
    const body = new Writer(this.#bytes.length);
    write(body);
    this.tag(field).varint(body.#at - GRPC_PREFIX);
    this.#bytes.set(body.#bytes.subarray(GRPC_PREFIX, body.#at), this.#at);
    this.#at += body.#at - GRPC_PREFIX;
    return this.finish(this.#at - GRPC_PREFIX);
  }

  /** Sets the gRPC prefix to the message's length. */
  finish(message: number): Uint8Array {
    new DataView(this.#bytes.buffer).setUint32(1, message);
    return this.#bytes.subarray(0, this.#at);
  }
}

function textBytes(packet: ControlPacket): number {
  switch (packet.type) {
    case "DIAL_REQ":
      return 3 * (packet.protocol.length + packet.address.length);
    case "DIAL_RSP":
    case "CLOSE_RSP":
      return 3 * packet.error.length;
    default:
      return 0;
  }
}

function varintLength(value: TunnelId): number {
  if (typeof value === "number" && value >= 0) {
    let length = 1;
    for (let rest = value; rest >= 128; rest = Math.floor(rest / 128)) length += 1;
    return length;
  }
  let length = 1;
  for (let rest = BigInt.asUintN(64, BigInt(value)); rest >= 128n; rest >>= 7n) length += 1;
  return length;
}
