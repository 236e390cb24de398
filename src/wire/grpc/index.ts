/**
 * gRPC over HTTP/2: message framing, status codes, percent-encoded messages and rich status details.
 * Source: grpc/grpc doc/PROTOCOL-HTTP2.md and google/rpc/status.proto. Codecs only; no sockets.
 */
import { fieldBytes, fieldText, ProtoError, ProtoWriter, readFields } from "#wire/protobuf";
import { GrpcWireError } from "./errors.ts";

export { GrpcDeframer } from "./deframer.ts";
export { GrpcWireError, type GrpcWireErrorCode } from "./errors.ts";

/** Status codes, google.golang.org/grpc/codes. */
export const GrpcCode = {
  ok: 0,
  cancelled: 1,
  unknown: 2,
  invalidArgument: 3,
  deadlineExceeded: 4,
  notFound: 5,
  alreadyExists: 6,
  permissionDenied: 7,
  resourceExhausted: 8,
  failedPrecondition: 9,
  aborted: 10,
  outOfRange: 11,
  unimplemented: 12,
  internal: 13,
  unavailable: 14,
  dataLoss: 15,
  unauthenticated: 16,
} as const;
export type GrpcCode = (typeof GrpcCode)[keyof typeof GrpcCode];

/** A `google.rpc.Status`, as in `grpc-status-details-bin`. */
export interface GrpcStatus {
  readonly code: number;
  readonly message: string;
  readonly details: readonly GrpcDetail[];
}

/** A `google.protobuf.Any`. */
export interface GrpcDetail {
  readonly typeUrl: string;
  readonly value: Uint8Array;
}

/** Length-Prefixed-Message: a byte 0 (not compressed), four bytes of length, the message. */
export function frameMessage(message: Uint8Array): Uint8Array {
  const frame = new Uint8Array(5 + message.length);
  new DataView(frame.buffer).setUint32(1, message.length);
  frame.set(message, 5);
  return frame;
}

/**
 * The only message of a unary body. Throws {@link GrpcWireError}: `malformed` for a body that is not exactly one
 * message, `compressed`, or `too-large` above `maxBytes`.
 */
export function unframeUnary(body: Uint8Array, maxBytes: number): Uint8Array {
  if (body.length < 5)
    throw new GrpcWireError("malformed", `a gRPC message has a prefix of 5 bytes, got ${body.length}`);
  if (body[0] !== 0) throw new GrpcWireError("compressed", "the gRPC message is compressed, which was not negotiated");
  const length = new DataView(body.buffer, body.byteOffset).getUint32(1);
  if (length > maxBytes) throw new GrpcWireError("too-large", `a gRPC message of ${length} bytes exceeds ${maxBytes}`);
  if (body.length !== 5 + length) {
    throw new GrpcWireError(
      "malformed",
      `a gRPC message has ${length} bytes according to its prefix, but the body has ${body.length}`,
    );
  }
  return body.subarray(5);
}

/** The value of `grpc-status-details-bin`: unpadded base64 of the message. */
export function encodeStatus(status: GrpcStatus): string {
  const writer = new ProtoWriter().uint(1, status.code).string(2, status.message);
  for (const detail of status.details) {
    writer.message(3, new ProtoWriter().string(1, detail.typeUrl).bytes(2, detail.value).finish());
  }
  return bytesToBase64(writer.finish()).replaceAll("=", "");
}

/** Reads `grpc-status-details-bin`, padded or not. Throws {@link GrpcWireError} `malformed`. */
export function decodeStatus(header: string): GrpcStatus {
  try {
    const status = { code: 0, message: "", details: [] as GrpcDetail[] };
    for (const field of readFields(base64ToBytes(header))) {
      if (field.number === 1) status.code = field.value;
      if (field.number === 2) status.message = fieldText(field);
      if (field.number === 3) status.details.push(decodeDetail(fieldBytes(field)));
    }
    return status;
  } catch (error) {
    if (!(error instanceof ProtoError)) throw error;
    throw new GrpcWireError("malformed", `grpc-status-details-bin: ${error.message}`, { cause: error });
  }
}

/** Percent-encodes `grpc-message`: everything but printable ASCII without "%". */
export function encodeGrpcMessage(message: string): string {
  return Array.from(new TextEncoder().encode(message), (byte) =>
    byte >= 0x20 && byte <= 0x7e && byte !== 0x25
      ? String.fromCharCode(byte)
      : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`,
  ).join("");
}

/** The inverse of {@link encodeGrpcMessage}. Invalid escapes stay as they are. */
export function decodeGrpcMessage(text: string): string {
  const parts: Uint8Array[] = [];
  for (const [part = "", digits] of text.matchAll(/%([0-9a-fA-F]{2})|%|[^%]+/gu))
    parts.push(digits === undefined ? Buffer.from(part) : Uint8Array.of(Number.parseInt(digits, 16)));
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Buffer.concat(parts));
}

/** Parses `grpc-timeout` (`5S`, `100m`), in milliseconds; `undefined` if it is invalid. */
export function parseGrpcTimeout(header: string): number | undefined {
  const match = /^(\d{1,8})([HMSmun])$/.exec(header);
  const unit = { H: 3_600_000, M: 60_000, S: 1000, m: 1, u: 1e-3, n: 1e-6 }[match?.[2] ?? ""];
  return unit === undefined ? undefined : Number(match?.[1]) * unit;
}

function decodeDetail(bytes: Uint8Array): GrpcDetail {
  let typeUrl = "";
  let value: Uint8Array = new Uint8Array(0);
  for (const field of readFields(bytes)) {
    if (field.number === 1) typeUrl = fieldText(field);
    if (field.number === 2) value = fieldBytes(field);
  }
  return { typeUrl, value };
}

function bytesToBase64(bytes: Uint8Array): string {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

function base64ToBytes(text: string): Uint8Array {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text))
    throw new GrpcWireError("malformed", "grpc-status-details-bin is not base64");
  try {
    return Uint8Array.from(atob(text.replaceAll("=", "")), (char) => char.charCodeAt(0));
  } catch (error) {
    throw new GrpcWireError("malformed", "grpc-status-details-bin is not base64", { cause: error });
  }
}
