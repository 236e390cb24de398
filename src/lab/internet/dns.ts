import { createSocket, type Socket } from "node:dgram";
import type { IpAddress, IpFamily } from "#base/ip";
import { DnsQueryError } from "./errors.ts";

/** Types of RFC 1035 section 3.2.2 and RFC 3596 section 2.1. */
const TYPE = { 4: 1, 6: 28 } as const;
const CLASS_IN = 1;
const HEADER_BYTES = 12;
const NXDOMAIN = 3;
/** Lifetime of answers, in seconds: a lab changes often. */
const TTL = 5;
/** The name of the question, where every answer's name points (RFC 1035 section 4.1.4). */
const POINTER_TO_QUESTION = 0xc000 | HEADER_BYTES;

/** Addresses by name; any other name does not exist. */
export type Zone = Readonly<Record<string, readonly IpAddress[]>>;

/** The question of a query. */
export interface Question {
  /** Lower case, without the last dot. */
  readonly name: string;
  readonly type: number;
  /** Offset of the end of the question in the query. */
  readonly end: number;
}

/**
 * Pure: the one question of a query (RFC 1035 section 4.1). Throws {@link DnsQueryError} for anything but a query with one
 * question of uncompressed labels.
 */
export function readQuestion(query: Uint8Array): Question {
  const bytes = Buffer.from(query.buffer, query.byteOffset, query.byteLength);
  if (bytes.length < HEADER_BYTES + 5 || bytes.readUInt16BE(4) !== 1 || (bytes.readUInt8(2) & 0x80) !== 0)
    throw new DnsQueryError("not-a-query", `${bytes.length} bytes are not a DNS query with one question`);
  const labels: string[] = [];
  let at = HEADER_BYTES;
  for (;;) {
    const length = bytes[at];
    if (length === undefined || length > 63 || at + 1 + length + 4 > bytes.length)
      throw new DnsQueryError("not-a-query", `the name of a DNS question ends at ${bytes.length}, inside a label`);
    at += 1;
    if (length === 0) break;
    labels.push(bytes.toString("latin1", at, at + length));
    at += length;
  }
  if (at + 4 > bytes.length)
    throw new DnsQueryError("not-a-query", `a DNS question of ${bytes.length} bytes has no type and class`);
  return { name: labels.join(".").toLowerCase(), type: bytes.readUInt16BE(at), end: at + 4 };
}

/** The content of an answer. */
export interface Answer {
  /** Those of another type than the question's are left out. */
  readonly addresses: readonly IpAddress[];
  /** The response code of RFC 1035 section 4.1.1. Default: 0, no error. */
  readonly code?: number;
  /** Default: {@link TTL}. */
  readonly ttlSeconds?: number;
}

/** Pure: the answer to a query with this question. */
export function encodeAnswer(
  query: Uint8Array,
  { type, end }: Question,
  { addresses, code = 0, ttlSeconds = TTL }: Answer,
): Buffer {
  const records = addresses
    .filter(({ family }) => TYPE[family] === type)
    .map((address) => {
      const bytes = address.toBytes();
      const fixed = Buffer.alloc(12);
      fixed.writeUInt16BE(POINTER_TO_QUESTION, 0);
      fixed.writeUInt16BE(type, 2);
      fixed.writeUInt16BE(CLASS_IN, 4);
      fixed.writeUInt32BE(ttlSeconds, 6);
      fixed.writeUInt16BE(bytes.length, 10);
      return Buffer.concat([fixed, bytes]);
    });
  const header = Buffer.alloc(HEADER_BYTES);
  header.set(query.subarray(0, 2));
  // A response, authoritative, recursion desired and available.
  header.writeUInt16BE(0x8580 | code, 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(records.length, 6);
  return Buffer.concat([header, query.subarray(HEADER_BYTES, end), ...records]);
}

/** Pure: the answer of a zone, NXDOMAIN included. Throws what {@link readQuestion} throws. */
export function answerQuery(query: Uint8Array, zone: Zone): Buffer {
  const question = readQuestion(query);
  const addresses = Object.hasOwn(zone, question.name) ? zone[question.name] : undefined;
  return encodeAnswer(query, question, { addresses: addresses ?? [], code: addresses === undefined ? NXDOMAIN : 0 });
}

/** Answers over UDP on a socket that is bound already, until it is disposed. Other packets get no answer. */
export function serveDns(socket: { readonly fd: number; readonly family: IpFamily }, zone: Zone): AsyncDisposable {
  const server: Socket = createSocket({ type: socket.family === 4 ? "udp4" : "udp6" });
  server.bind({ fd: socket.fd });
  server.on("message", (query, from) => {
    const answer = answerOf(query, zone);
    // The client may have ended, or have no route any more. The client repeats the query.
    if (answer !== undefined) server.send(answer, from.port, from.address, () => undefined);
  });
  return { [Symbol.asyncDispose]: () => new Promise((resolve) => server.close(() => resolve())) };
}

function answerOf(query: Uint8Array, zone: Zone): Buffer | undefined {
  try {
    return answerQuery(query, zone);
  } catch (error) {
    if (!(error instanceof DnsQueryError)) throw error;
    return undefined;
  }
}
