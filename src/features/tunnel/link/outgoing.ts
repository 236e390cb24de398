import type { Socket } from "node:net";
import { unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import { decodeGrpcMessage, GrpcCode } from "#wire/grpc";
import type { Header } from "#wire/http2";
import { openSession } from "../http2/open-session.ts";
import { type Call, type ClientSession, headerOf } from "../http2/session.ts";
import { DEFAULT_SETTINGS } from "../http2/windows.ts";
import type { BufferBudget } from "../mux/budget.ts";
import type { WindowPool } from "../mux/window-pool.ts";
import { CallPacketStream, MAX_MESSAGE_BYTES, type PacketStream, type PacketStreamHandlers } from "./packet-stream.ts";
import { keepAlive, type Pulse } from "./session.ts";

export type LinkErrorCode = "unreachable" | "refused" | "timeout" | "protocol";

/** A stream could not be opened. `unreachable`: there was no connection; `refused`: the server answered with a gRPC status. */
export class LinkError extends ExpectedError<LinkErrorCode> {
  override readonly name = "LinkError";
}

/** A stream after its response headers. */
export interface OpenedStream {
  /** Response headers; of a repeated header all values, with ", " between them (RFC 9110 section 5.3). */
  readonly headers: Readonly<Record<string, string>>;
  readonly pulse: Pulse;
  /** Starts the flow of packets. `budget` counts the bytes of incomplete messages. Called once. */
  start(handlers: PacketStreamHandlers, options?: { readonly budget?: BufferBudget }): PacketStream;
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
  /** The bytes that all receive windows of this process may share beyond those of near links. Default: no bound. */
  readonly windows?: WindowPool | undefined;
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
  const session = openSession(options.socket, { ...DEFAULT_SETTINGS, windows: options.windows });
  const timeout = AbortSignal.timeout(Math.ceil(options.timeoutMs));
  const signal = AbortSignal.any([abort.signal, timeout]);
  try {
    const { call, headers } = await unlessAborted(answered(session, options), { signal });
    const pulse = keepAlive(session, { idleMs: options.keepAliveMs, clock: options.clock });
    return opened(session, { call, headers, pulse }, options);
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

/** Calls the method. Resolves with the headers of an answer that accepts the call. */
function answered(
  session: ClientSession,
  { path, authority, metadata }: OutgoingOptions,
): Promise<{ readonly call: Call; readonly headers: readonly Header[] }> {
  const { promise, resolve, reject } = Promise.withResolvers<{ call: Call; headers: readonly Header[] }>();
  const request: readonly Header[] = [
    [":method", "POST"],
    [":scheme", "http"],
    [":path", path],
    [":authority", authority],
    ["content-type", "application/grpc"],
    ["te", "trailers"],
    ...Object.entries(metadata),
  ];
  const call = session.request(request, (headers) => {
    const refusal = refusalOf(headers);
    if (refusal === undefined) resolve({ call, headers });
    else reject(refusal);
  });
  call.whenGone((end) => {
    const lost = end.kind === "lost" && end.reason !== undefined;
    const reason = lost ? `the HTTP/2 session ended: ${end.reason}` : "the server closed the stream before it answered";
    reject(new LinkError("unreachable", reason));
  });
  return promise;
}

function refusalOf(headers: readonly Header[]): LinkError | undefined {
  const status = headerOf(headers, ":status");
  if (status !== "200") return new LinkError("protocol", `the server answered with HTTP status ${status}`);
  const grpc = headerOf(headers, "grpc-status");
  if (grpc === undefined || grpc === "0") return undefined;
  const message = decodeGrpcMessage(headerOf(headers, "grpc-message") ?? "");
  return new LinkError("refused", `the server refused (gRPC status ${grpc}): ${message}`);
}

function joined(headers: readonly Header[]): Record<string, string> {
  const all = new Map<string, string>();
  for (const [name, value] of headers) {
    const before = all.get(name);
    all.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  return Object.fromEntries(all);
}

function opened(
  session: ClientSession,
  { call, headers, pulse }: { readonly call: Call; readonly headers: readonly Header[]; readonly pulse: Pulse },
  options: OutgoingOptions,
): OpenedStream {
  return {
    pulse,
    headers: joined(headers),
    onLeaving: (callback) => session.whenLeaving(callback),
    discard: () => {
      call.reset();
      session.destroy();
    },
    start(handlers, { budget } = {}) {
      let status: string | undefined;
      return new CallPacketStream(
        call,
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
          budget,
          maxMessageBytes: options.maxMessageBytes ?? MAX_MESSAGE_BYTES,
          onTrailers: (trailers) => {
            const code = headerOf(trailers, "grpc-status") ?? "0";
            const message = decodeGrpcMessage(headerOf(trailers, "grpc-message") ?? "");
            if (code !== "0") status = `gRPC status ${code}: ${message}`;
          },
        },
      );
    },
  };
}
