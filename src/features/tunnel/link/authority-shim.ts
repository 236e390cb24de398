import type { Http2Server } from "node:http2";
import { createServer, type Server, type Socket } from "node:net";
import { Http2Error } from "#wire/http2";
import {
  AuthorityRewriter,
  Flag,
  FRAME_HEAD_BYTES,
  FrameType,
  frameBytes,
  HeaderBlocks,
  isRefused,
  PREFACE,
} from "./authority-rewriter.ts";
import { SessionSocket } from "./session-socket.ts";

/**
 * Bytes that a client may send before its first request and its acknowledgement of the server's settings: the limit is larger than the
 * client's first windows. PINGs that were answered count too, because a client may send PINGs without reading the answers.
 */
const MAX_OPENING_BYTES = 256 * 1024;
const NOTHING = Buffer.alloc(0);

/**
 * A server for a UNIX socket that passes its connections to an HTTP/2 server. Go clients before grpc-go 1.57 send the socket's path as
 * `:authority`, which Node.js's HTTP/2 refuses (docs/spec/tunnel.md#2). The first request of a connection decides: with a lawful authority
 * the session reads the connection as it is; otherwise a rewriter translates all of it. Connections are passed on as
 * {@link SessionSocket}s.
 */
export function acceptPathAuthority(server: Http2Server): Server {
  return createServer({ noDelay: true }, (socket) => open(socket, server));
}

function open(socket: Socket, server: Http2Server): void {
  const opening = new AuthorityDetector();
  // Go's client waits for the server's settings before its first request. The settings sent here are empty; the session sends its own
  // later.
  socket.write(frameBytes(FrameType.settings, 0, 0, NOTHING));
  const drop = (): void => void socket.destroy();
  const onData = (chunk: Buffer): void => {
    const decision = decide(opening, chunk);
    if (decision === undefined) {
      drop();
      return;
    }
    if (decision.reply.length > 0) socket.write(decision.reply);
    if (decision.kind === "wait") return;
    socket.off("data", onData).off("end", drop).off("error", drop).pause();
    const rewriter = decision.kind === "rewrite" ? new AuthorityRewriter() : undefined;
    const translate = rewriter === undefined ? {} : { translate: (bytes: Buffer) => rewriter.push(bytes) };
    server.emit("connection", new SessionSocket(socket, { first: decision.bytes, ...translate }));
  };
  socket.on("data", onData).on("end", drop).on("error", drop);
}

/** Takes bytes of the client; `undefined` if they break the protocol or exceed the limit. */
function decide(opening: AuthorityDetector, chunk: Buffer): Decision | undefined {
  try {
    return opening.push(chunk);
  } catch (error) {
    if (error instanceof Http2Error) return undefined;
    throw error;
  }
}

type Decision =
  | { readonly kind: "wait"; readonly reply: Buffer }
  /** `bytes` are for the server, as they are or rewritten; the acknowledgement of the settings is left out. */
  | { readonly kind: "pass" | "rewrite"; readonly reply: Buffer; readonly bytes: Buffer };

/** A connection until its first request: keeps its bytes, answers PINGs and removes the acknowledgement of the settings. */
export class AuthorityDetector {
  readonly #blocks = new HeaderBlocks();
  #kept: Buffer[] = [];
  #bytes = 0;
  #pending: Buffer = NOTHING;
  #hasPreface = false;
  #isConfirmed = false;
  #verdict: "pass" | "rewrite" | undefined;

  /** Throws `Http2Error`; the connection must be closed then. Not to be called after a decision. */
  push(chunk: Buffer): Decision {
    this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    if (!this.#hasPreface && !this.#preface()) {
      // Another protocol: the HTTP/2 server answers it.
      const seen = Math.min(this.#pending.length, PREFACE.length);
      if (this.#pending.compare(PREFACE, 0, seen, 0, seen) !== 0) return this.#done("pass", NOTHING);
      return { kind: "wait", reply: NOTHING };
    }
    const replies: Buffer[] = [];
    while (this.#verdict === undefined || !this.#isConfirmed) {
      if (!this.#frame(replies)) {
        if (this.#bytes + this.#pending.length > MAX_OPENING_BYTES) {
          throw new Http2Error(
            "too-large",
            `more than ${MAX_OPENING_BYTES} bytes came before the HTTP/2 session was set up`,
          );
        }
        return { kind: "wait", reply: Buffer.concat(replies) };
      }
    }
    return this.#done(this.#verdict, Buffer.concat(replies));
  }

  #done(kind: "pass" | "rewrite", reply: Buffer): Decision {
    return { kind, reply, bytes: Buffer.concat([...this.#kept, this.#pending]) };
  }

  #preface(): boolean {
    if (this.#pending.length < PREFACE.length || !this.#pending.subarray(0, PREFACE.length).equals(PREFACE))
      return false;
    this.#hasPreface = true;
    this.#keep(PREFACE.length);
    return true;
  }

  #keep(length: number): void {
    this.#kept.push(this.#pending.subarray(0, length));
    this.#bytes += length;
    this.#pending = this.#pending.subarray(length);
  }

  /** Takes one frame. Returns false if more bytes are needed. */
  #frame(replies: Buffer[]): boolean {
    const bytes = this.#pending;
    if (bytes.length < FRAME_HEAD_BYTES) return false;
    const end = FRAME_HEAD_BYTES + bytes.readUIntBE(0, 3);
    if (bytes.length < end) return false;
    const [type, flags] = [bytes.readUInt8(3), bytes.readUInt8(4)];
    const payload = bytes.subarray(FRAME_HEAD_BYTES, end);
    if (type === FrameType.settings && (flags & Flag.ack) !== 0 && !this.#isConfirmed) {
      this.#isConfirmed = true;
      this.#pending = bytes.subarray(end);
      return true;
    }
    if (type === FrameType.ping && (flags & Flag.ack) === 0) {
      replies.push(frameBytes(FrameType.ping, Flag.ack, 0, payload));
      this.#bytes += end;
      this.#pending = bytes.subarray(end);
      return true;
    }
    const isHeaders = type === FrameType.headers || type === FrameType.continuation;
    if (isHeaders && this.#verdict === undefined) {
      const block = this.#blocks.take(type, flags, bytes.readUInt32BE(5) & 0x7fff_ffff, payload);
      if (block !== undefined) this.#verdict = isRefused(block.headers) ? "rewrite" : "pass";
    }
    this.#keep(end);
    return true;
  }
}
