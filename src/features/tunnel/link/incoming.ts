import { constants, type Http2Server, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";
import type { Clock } from "#base/clock";
import { encodeGrpcMessage, GrpcCode } from "#wire/grpc";
import type { BufferBudget } from "../mux/budget.ts";
import { DuplexPacketStream, type PacketStream, type PacketStreamHandlers, type StreamFault } from "./packet-stream.ts";
import { keepAlive, limitPings, widenWindow } from "./session.ts";
import { sessionSocketOf } from "./session-socket.ts";

const CONTENT_TYPE = "application/grpc";

/** The peer of a stream. */
export interface StreamPeer {
  /** `host:port` without brackets, or "unix". */
  readonly address: string;
  /** The server name (SNI) of its ClientHello. */
  readonly serverName: string | undefined;
  /** The common name of its client certificate, if one was verified. */
  readonly commonName: string | undefined;
}

/** A call of the served method, to be accepted or rejected. */
export interface IncomingStream {
  readonly peer: StreamPeer;
  /** All values of a metadata key, lower-case. */
  metadata(key: string): readonly string[];
  /** Sends response headers at once; packets flow from now on. */
  accept(headers: Readonly<Record<string, string>>, handlers: PacketStreamHandlers): PacketStream;
  /** Ends the call with a status. */
  reject(fault: StreamFault): void;
  /** True once the call has ended. */
  readonly isGone: boolean;
  /** Calls `callback` once, when the call ends, whichever side ends it. */
  whenGone(callback: () => void): void;
}

export interface IncomingOptions {
  /** The path of the served method; calls of other paths get UNIMPLEMENTED. */
  readonly path: string;
  readonly onStream: (stream: IncomingStream) => void;
  readonly maxMessageBytes: number;
  /** Counts the bytes of incomplete messages. */
  readonly budget?: BufferBudget;
  /** A PING is sent after this time without a byte of the peer, in milliseconds. 0: never. */
  readonly keepAliveMs: number;
  /** Shortest interval of a peer's PINGs, in milliseconds. A peer that sends PINGs more often loses its session. */
  readonly minPingIntervalMs: number;
  readonly clock: Clock;
}

/** Serves one bidirectional gRPC method on an HTTP/2 server. Returns its open sessions. */
export function serveStreams(
  server: Http2Server,
  options: IncomingOptions,
): { readonly sessions: ReadonlySet<ServerHttp2Session> } {
  const sessions = new Set<ServerHttp2Session>();
  const { clock } = options;
  server.on("session", (session: ServerHttp2Session) => {
    sessions.add(session);
    // Node.js's wrapper of the SessionSocket: it counts bytes of the session, without TLS.
    const { socket: wrapped } = session as unknown as { readonly socket: Socket };
    const bytesRead = (): number => (session.destroyed ? 0 : wrapped.bytesRead);
    const bytesWritten = (): number => (session.destroyed ? 0 : wrapped.bytesWritten);
    widenWindow(session);
    const socket = sessionSocketOf(session);
    if (socket === undefined) throw new Error("a session that does not run over a SessionSocket");
    keepAlive(session, socket, { idleMs: options.keepAliveMs, clock });
    limitPings(session, { minIntervalMs: options.minPingIntervalMs, clock, bytesRead, bytesWritten });
    session.once("close", () => sessions.delete(session));
    // A peer that breaks the protocol or the connection loses the session. Its streams get their own events.
    session.on("error", () => session.destroy());
  });
  server.on("stream", (stream: ServerHttp2Stream, headers, _flags, rawHeaders: readonly string[] = []) => {
    // The close event follows, and ends the packet stream. An error without a listener would end the process.
    stream.on("error", () => undefined);
    const path = headers[constants.HTTP2_HEADER_PATH];
    const type = String(headers[constants.HTTP2_HEADER_CONTENT_TYPE] ?? "");
    if (headers[constants.HTTP2_HEADER_METHOD] !== "POST" || !type.startsWith(CONTENT_TYPE)) {
      stream.respond({ ":status": 415 }, { endStream: true });
    } else if (path !== options.path) {
      reject(stream, { code: GrpcCode.unimplemented, message: `unknown method ${path}` });
    } else {
      options.onStream(incoming(stream, rawHeaders, options));
    }
  });
  return { sessions };
}

function incoming(stream: ServerHttp2Stream, rawHeaders: readonly string[], options: IncomingOptions): IncomingStream {
  return {
    peer: peerOf(stream),
    metadata: (key) => rawHeaders.filter((_, at) => at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === key),
    get isGone() {
      return stream.destroyed || stream.closed;
    },
    whenGone: (callback) => void stream.once("close", callback),
    reject: (fault) => reject(stream, fault),
    accept(headers, handlers) {
      let status: StreamFault = { code: GrpcCode.ok, message: "" };
      if (!stream.destroyed) {
        stream.respond({ ":status": 200, "content-type": CONTENT_TYPE, ...headers }, { waitForTrailers: true });
        stream.once("wantTrailers", () => {
          stream.sendTrailers(trailersOf(status));
          // Do not wait for the end of the caller's side. Not in the same tick: the reset would overtake trailers that were not
          // sent yet.
          setImmediate(() => stream.close(constants.NGHTTP2_NO_ERROR));
        });
      }
      return new DuplexPacketStream(stream, handlers, {
        maxMessageBytes: options.maxMessageBytes,
        lostCode: GrpcCode.cancelled,
        budget: options.budget,
        backlog: sessionSocketOf(stream.session),
        ending: {
          end: (fault) => {
            if (fault !== undefined) status = fault;
            stream.end();
          },
          reset: () => stream.close(constants.NGHTTP2_CANCEL),
        },
      });
    },
  };
}

function reject(stream: ServerHttp2Stream, fault: StreamFault): void {
  if (stream.destroyed || stream.closed) return;
  stream.respond({ ":status": 200, "content-type": CONTENT_TYPE, ...trailersOf(fault) }, { endStream: true });
  // Do not wait for the end of the caller's side.
  stream.close(constants.NGHTTP2_NO_ERROR);
}

function trailersOf({ code, message }: StreamFault): Record<string, string> {
  const status = { "grpc-status": String(code) };
  return message === "" ? status : { ...status, "grpc-message": encodeGrpcMessage(message) };
}

function peerOf(stream: ServerHttp2Stream): StreamPeer {
  const transport = sessionSocketOf(stream.session)?.transport;
  const socket = transport ?? (stream.session as unknown as { readonly socket?: Socket } | undefined)?.socket;
  const tls = transport instanceof TLSSocket ? transport : undefined;
  const address = socket?.remoteAddress === undefined ? "unix" : `${socket.remoteAddress}:${socket.remotePort}`;
  const name: unknown = tls?.authorized === true ? tls.getPeerCertificate().subject?.CN : undefined;
  const serverName = (tls as { readonly servername?: unknown } | undefined)?.servername;
  return {
    address,
    serverName: typeof serverName === "string" ? serverName : undefined,
    commonName: typeof name === "string" ? name : undefined,
  };
}
