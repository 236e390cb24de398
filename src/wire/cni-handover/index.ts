/**
 * The messages between the launcher of the CNI executable and coild on the hand-over socket (docs/design/cni-executable.md): the
 * runtime's whole call in one message, and its whole answer in another.
 *
 * Owns: both messages, the socket's name, and the path that an installer writes into the launcher. Does not know: CNI's rules.
 *
 * ```ts
 * const call = parseCall(bytes); // undefined: there is more to come
 * socket.end(encodeAnswer({ exitCode: 0, to: "stdout", text: result }));
 * ```
 */
import { ExpectedError } from "#base/errors";

export type HandoverErrorCode = "malformed" | "too-large";

/** Bytes that are not a call of a launcher, or a path that cannot be a socket's path. */
export class HandoverError extends ExpectedError<HandoverErrorCode> {
  override readonly name = "HandoverError";
}

/** The version is a part of the socket's name, so a launcher finds only a coild that understands it. */
const SUFFIX = ".call1";
/** The first bytes of a call; the end of a launcher's file begins with them too. */
export const MAGIC = "CNICALL1";
/** `struct sockaddr_un`: two bytes of family, then the path, ended by a zero (include/uapi/linux/un.h). */
export const MAX_PATH_BYTES = 107;
const AF_UNIX = 1;
/**
 * The offsets of a call: magic, bytes of the environment (u32), bytes of standard input (u32), `struct sockaddr_un` of the socket; then
 * the environment, each entry ended by a zero, and standard input. Numbers are little-endian.
 */
export const CALL = { environmentBytes: 8, inputBytes: 12, address: 16, path: 18, body: 126 } as const;
/** The maximum size of environment and standard input together, in bytes: the same limit as for a call by gRPC. */
export const MAX_BODY_BYTES = 4 * 1024 * 1024;
/** The offsets of an answer: exit code (u8), descriptor (u8), two zeros, bytes of the text (u32); then the text. */
export const ANSWER = { exitCode: 0, descriptor: 1, textBytes: 4, text: 8 } as const;
/** Used instead of an exit code: the call is not for this coild and was not begun; the launcher runs the standalone executable. */
export const NOT_MINE = 2;
/** The maximum size of the text of an answer, in bytes. */
export const MAX_TEXT_BYTES = 4 * 1024 * 1024;
/** The file name of the standalone executable, relative to the launcher's. */
export const STANDALONE_SUFFIX = "-standalone";

/** The hand-over socket that belongs to a coild's socket; `undefined` if its path is too long for a socket. */
export function handoverPath(socket: string): string | undefined {
  const path = `${socket}${SUFFIX}`;
  return Buffer.byteLength(path) > MAX_PATH_BYTES ? undefined : path;
}

/** A call that a launcher has sent. */
export interface HandedCall {
  /** The variables of the runtime whose names begin with `CNI_`. */
  readonly env: Readonly<Record<string, string>>;
  /** The network configuration. */
  readonly stdin: string;
  /** The path of the hand-over socket in the launcher; a coild in a pod may know it under another path. */
  readonly path: string;
}

/**
 * The size of the call that begins with these bytes, in bytes; `undefined` if more bytes are needed to know it. Throws {@link
 * HandoverError}.
 */
export function callBytes(head: Uint8Array): number | undefined {
  const bytes = Buffer.from(head.buffer, head.byteOffset, head.length);
  const magic = bytes.toString("latin1", 0, Math.min(bytes.length, MAGIC.length));
  if (!MAGIC.startsWith(magic)) throw new HandoverError("malformed", "the caller is not a launcher of this version");
  if (bytes.length < CALL.body) return undefined;
  const body = bytes.readUInt32LE(CALL.environmentBytes) + bytes.readUInt32LE(CALL.inputBytes);
  if (body > MAX_BODY_BYTES) throw new HandoverError("too-large", `a call exceeds ${MAX_BODY_BYTES} bytes`);
  return CALL.body + body;
}

/** Reads a whole call. Throws {@link HandoverError}. */
export function parseCall(call: Uint8Array): HandedCall {
  const bytes = Buffer.from(call.buffer, call.byteOffset, call.length);
  if (bytes.length !== callBytes(bytes))
    throw new HandoverError("malformed", "the size of a call differs from the size in its header");
  const path = bytes.subarray(CALL.path, CALL.body);
  const end = CALL.body + bytes.readUInt32LE(CALL.environmentBytes);
  if (end > CALL.body && bytes[end - 1] !== 0)
    throw new HandoverError("malformed", "the block of environment variables has no end marker");
  const env: Record<string, string> = Object.create(null) as Record<string, string>;
  for (const entry of bytes.toString("utf8", CALL.body, end).split("\0")) {
    const at = entry.indexOf("=");
    // As in getenv(3), the first of two entries with the same name counts.
    if (at > 0 && !(entry.slice(0, at) in env)) env[entry.slice(0, at)] = entry.slice(at + 1);
  }
  const zero = path.indexOf(0);
  return { env, stdin: bytes.toString("utf8", end), path: path.toString("utf8", 0, zero < 0 ? path.length : zero) };
}

/** The output and exit code of the launcher. */
export interface Answer {
  readonly exitCode: 0 | 1;
  readonly to: "stdout" | "stderr";
  readonly text: string;
}

/** The bytes of an answer, or of {@link NOT_MINE}. Throws {@link HandoverError} `too-large`. */
export function encodeAnswer(answer: Answer | typeof NOT_MINE): Uint8Array {
  const { exitCode, to, text } = answer === NOT_MINE ? { exitCode: NOT_MINE, to: "stdout", text: "" } : answer;
  const length = Buffer.byteLength(text);
  if (length > MAX_TEXT_BYTES) throw new HandoverError("too-large", `an answer exceeds ${MAX_TEXT_BYTES} bytes`);
  const bytes = Buffer.alloc(ANSWER.text + length);
  bytes[ANSWER.exitCode] = exitCode;
  bytes[ANSWER.descriptor] = to === "stdout" ? 1 : 2;
  bytes.writeUInt32LE(length, ANSWER.textBytes);
  bytes.write(text, ANSWER.text);
  return bytes;
}

/**
 * The head of a call, with zeros for the sizes: a launcher's file ends with it. Throws {@link HandoverError} for a path that cannot be a
 * socket's.
 */
export function encodeHead(path: string): Uint8Array {
  const length = Buffer.byteLength(path);
  if (length === 0 || length > MAX_PATH_BYTES || path.includes("\0") || !path.startsWith("/")) {
    const why = `a path must be absolute, have no NUL bytes, and have ${MAX_PATH_BYTES} bytes at most`;
    throw new HandoverError("malformed", `${JSON.stringify(path)} is not a path of a hand-over socket: ${why}`);
  }
  const bytes = Buffer.alloc(CALL.body);
  bytes.write(MAGIC);
  bytes.writeUInt16LE(AF_UNIX, CALL.address);
  bytes.write(path, CALL.path);
  return bytes;
}

/** True for the bytes of a launcher's file. */
export function isLauncher(file: Uint8Array): boolean {
  const at = file.length - CALL.body;
  const head = Buffer.from(file.buffer, file.byteOffset, file.length).subarray(Math.max(0, at));
  return at > 0 && head.toString("latin1", 0, MAGIC.length) === MAGIC && head.readUInt16LE(CALL.address) === AF_UNIX;
}

/** A launcher's file for another hand-over socket. Throws {@link HandoverError}. */
export function launcherFor(file: Uint8Array, path: string): Uint8Array {
  if (!isLauncher(file)) throw new HandoverError("malformed", "the file is not a launcher of this version");
  return Buffer.concat([file.subarray(0, file.length - CALL.body), encodeHead(path)]);
}
