import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
} from "node:http2";
import type { Socket } from "node:net";
import { unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import { decodeGrpcMessage, GrpcCode } from "#wire/grpc";
import {
  DuplexPacketStream,
  MAX_MESSAGE_BYTES,
  type PacketStream,
  type PacketStreamHandlers,
} from "./packet-stream.ts";
import { keepAlive, SESSION_MEMORY_MIB, SESSION_SETTINGS, widenWindow } from "./session.ts";
import { SessionSocket, sessionSocketOf } from "./session-socket.ts";

export type LinkErrorCode = "unreachable" | "refused" | "timeout" | "protocol";

/** A stream could not be opened. `unreachable`: there was no connection; `refused`: the server answered with a gRPC status. */
export class LinkError extends ExpectedError<LinkErrorCode> {
  override readonly name = "LinkError";
}

/** A stream after its response headers. */
export interface OpenedStream {
  readonly headers: IncomingHttpHeaders;
  /** Starts the flow of packets. Called once. */
  start(handlers: PacketStreamHandlers): PacketStream;
  /** Calls `callback` once, when the server sends GOAWAY. The stream continues. */
  onLeaving(callback: () => void): void;
  /** Ends a stream that was not started, and its session. */
  discard(): void;
}

export interface OutgoingOptions {
  /** A connected socket (TLS with ALPN h2, or plain for a UNIX socket). The session owns it. */
  readonly socket: Socket;
  readonly path: string;
  readonly authority: string;
  readonly metadata: Readonly<Record<string, string>>;
  /** Limit of the time from the call to the response headers, in milliseconds. */
  readonly timeoutMs: number;
  readonly keepAliveMs: number;
  readonly maxMessageBytes?: number;
  readonly clock: Clock;
}

/**
 * Calls a bidirectional gRPC method on a session of its own and waits for the response headers. Rejects with {@link LinkError}; nothing is
 * left open after a rejection. An abort rejects with the signal's reason.
 */
export async function openStream(
  options: OutgoingOptions,
  abort: { readonly signal: AbortSignal },
): Promise<OpenedStream> {
  const { socket } = options;
  const transport = new SessionSocket(socket);
  const session = connect(`http://${options.authority}`, {
    createConnection: () => transport,
    settings: SESSION_SETTINGS,
    maxSessionMemory: SESSION_MEMORY_MIB,
  });
  // The stream reports the failure with its own event, so this listener does nothing. Without a listener, an error would end the process.
  session.on("error", () => undefined);
  const timeout = AbortSignal.timeout(Math.ceil(options.timeoutMs));
  const signal = AbortSignal.any([abort.signal, timeout]);
  try {
    const stream = session.request(
      {
        ":method": "POST",
        ":path": options.path,
        "content-type": "application/grpc",
        te: "trailers",
        ...options.metadata,
      },
      { endStream: false },
    );
    const headers = await responseOf(stream, signal);
    widenWindow(session);
    keepAlive(session, transport, { idleMs: options.keepAliveMs, clock: options.clock });
    return opened(session, stream, headers, options);
  } catch (error) {
    session.destroy();
    abort.signal.throwIfAborted();
    if (timeout.aborted) {
      throw new LinkError("timeout", `the server did not answer within ${options.timeoutMs} ms`, { cause: error });
    }
    if (error instanceof LinkError) throw error;
    throw new LinkError("unreachable", `the HTTP/2 session ended: ${describeError(error)}`, { cause: error });
  }
}

function responseOf(stream: ClientHttp2Stream, signal: AbortSignal): Promise<IncomingHttpHeaders> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingHttpHeaders>();
  stream.on("error", reject);
  stream.once("close", () => reject(new LinkError("unreachable", "the server closed the stream before it answered")));
  stream.once("response", (headers) => {
    const status = headers[":status"];
    const grpc = headers["grpc-status"];
    if (status !== 200) reject(new LinkError("protocol", `the server answered with HTTP status ${status}`));
    else if (grpc !== undefined && grpc !== "0") {
      const message = decodeGrpcMessage(String(headers["grpc-message"] ?? ""));
      reject(new LinkError("refused", `the server refused (gRPC status ${grpc}): ${message}`));
    } else resolve(headers);
  });
  return unlessAborted(promise, { signal });
}

function opened(
  session: ClientHttp2Session,
  stream: ClientHttp2Stream,
  headers: IncomingHttpHeaders,
  options: OutgoingOptions,
): OpenedStream {
  return {
    headers,
    onLeaving: (callback) => session.once("goaway", callback),
    discard: () => {
      stream.close(constants.NGHTTP2_CANCEL);
      session.destroy();
    },
    start(handlers) {
      let status: string | undefined;
      stream.once("trailers", (trailers) => {
        const code = String(trailers["grpc-status"] ?? "0");
        if (code !== "0") status = `gRPC status ${code}: ${decodeGrpcMessage(String(trailers["grpc-message"] ?? ""))}`;
      });
      return new DuplexPacketStream(
        stream,
        {
          ...handlers,
          onClosed: (fault) => {
            // The session has no other stream.
            session.destroy();
            const reported = status === undefined ? fault : { code: GrpcCode.unavailable, message: status };
            handlers.onClosed(reported);
          },
        },
        {
          maxMessageBytes: options.maxMessageBytes ?? MAX_MESSAGE_BYTES,
          backlog: sessionSocketOf(session),
          ending: {
            end: () => stream.end(),
            reset: () => stream.close(constants.NGHTTP2_CANCEL),
          },
        },
      );
    },
  };
}
