import {
  constants,
  createServer,
  type Http2Session,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from "node:http2";
import { unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import { claimSocketPath, listenOnPath } from "#base/unix-socket";
import {
  encodeGrpcMessage,
  encodeStatus,
  frameMessage,
  GrpcCode,
  type GrpcStatus,
  GrpcWireError,
  type GrpcWireErrorCode,
  parseGrpcTimeout,
  unframeUnary,
} from "#wire/grpc";
import { converse } from "./grpc-conversation.ts";
import { SessionPlaces } from "./session-places.ts";

/** Answers one message. A rejection with a `status` becomes that status, any other `internal`. */
export type GrpcHandler = (request: Uint8Array, options: { readonly signal: AbortSignal }) => Promise<Uint8Array>;

/** The maximum size of a call's request, in bytes. */
export const MAX_REQUEST_BYTES = 4 * 1024 * 1024;
/** The maximum number of connections. Beyond it the one that has been without a call for longest gives its place up. */
export const MAX_CONNECTIONS = 1024;
/** The deadline of a call that has none of its own, in milliseconds. */
const DEFAULT_DEADLINE_MS = 60_000;
/** The time that connections have to close when the server ends, in milliseconds. */
const CLOSE_GRACE_MS = 1000;

export interface GrpcServerOptions {
  /** Unary methods by path, such as `/pkg.cnirpc.CNI/Add`. */
  readonly handlers: Readonly<Record<string, GrpcHandler>>;
  /** Bidirectional streams by path, in which each message gets one answer. They end when the server ends. */
  readonly conversations?: Readonly<Record<string, GrpcHandler>>;
  readonly socketPath: string;
  /** Called when a call starts, and after each of its messages was received or sent, for metrics. */
  readonly onProgress?: (event: "started" | "received" | "sent", path: string) => void;
  /** Called at the end of each call, for metrics and logs. */
  readonly onHandled?: (path: string, code: number, seconds: number) => void;
  /** Called for a bug in a handler: a rejection that is neither an expected error nor an abort. */
  readonly onBug: (error: unknown) => void;
  readonly clock: Clock;
}

/**
 * Serves gRPC on a UNIX socket of mode 0600. A socket file without a listener is replaced. Throws `SocketPathError` if another process
 * listens on the socket, or if the path is not a socket. Disposing waits for running calls.
 */
export async function serveGrpc(options: GrpcServerOptions): Promise<AsyncDisposable> {
  const { socketPath } = options;
  await claimSocketPath(socketPath, { deleteExisting: true });
  const places = new SessionPlaces(MAX_CONNECTIONS);
  const calls = new Set<Promise<void>>();
  const ending = new AbortController();
  const server = createServer({ settings: { maxConcurrentStreams: 256, initialWindowSize: 1024 * 1024 } });
  server.on("session", (session) => {
    session.once("close", () => places.leave(session));
    // A peer that breaks the protocol loses its session; Node.js has closed it by now.
    session.on("error", () => session.destroy());
    places.take(session)?.destroy();
  });
  server.on("stream", (stream, headers) => {
    const { session } = stream;
    if (session !== undefined) places.begin(session);
    const call = answer(stream, headers, options, ending.signal).finally(() => {
      calls.delete(call);
      if (session !== undefined) places.end(session);
    });
    calls.add(call);
  });
  const listening = await listenOnPath(server, socketPath, { umask: 0o177 });
  return {
    async [Symbol.asyncDispose]() {
      const closed = new Promise<void>((resolve) => listening.close(resolve));
      ending.abort(new DOMException("coild is stopping", "AbortError"));
      await Promise.allSettled(calls);
      await closeSessions([...places], options.clock);
      await closed;
    },
  };
}

/** Waits until the last answers are sent, up to a limit. */
async function closeSessions(sessions: readonly Http2Session[], clock: Clock): Promise<void> {
  const cancel = clock.after(CLOSE_GRACE_MS, () => {
    for (const session of sessions) session.destroy();
  });
  await Promise.all(
    sessions.map((session) => {
      const closed = new Promise<void>((resolve) => session.once("close", resolve));
      session.close();
      return closed;
    }),
  );
  cancel();
}

async function answer(
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  options: GrpcServerOptions,
  ending: AbortSignal,
): Promise<void> {
  const { clock } = options;
  const startMs = clock.monotonic();
  const path = String(headers[":path"]);
  const controller = new AbortController();
  let { signal } = controller;
  const deadlineMs = parseGrpcTimeout(String(headers["grpc-timeout"] ?? "")) ?? DEFAULT_DEADLINE_MS;
  const cancelDeadline = clock.after(Math.min(deadlineMs, DEFAULT_DEADLINE_MS * 10), () =>
    controller.abort(new DOMException("the caller's deadline has passed", "TimeoutError")),
  );
  stream.on("close", () => controller.abort(new DOMException("the caller closed the connection", "AbortError")));
  stream.on("error", (error) => controller.abort(error));
  let status: GrpcStatus = { code: GrpcCode.ok, message: "", details: [] };
  let reply: Uint8Array | undefined;
  options.onProgress?.("started", path);
  try {
    const handler = own(options.handlers, path);
    const conversation = own(options.conversations ?? {}, path);
    if (handler !== undefined) {
      const request = unframeUnary(await readAll(stream, signal), MAX_REQUEST_BYTES);
      options.onProgress?.("received", path);
      reply = await handler(request, { signal });
    } else if (conversation !== undefined) {
      signal = AbortSignal.any([signal, ending]);
      await converse(stream, (request) => conversation(request, { signal }), { headers: HEADERS, signal });
    } else {
      status = noMethod(path);
    }
  } catch (error) {
    status = statusOf(error, signal);
    if (status.code === GrpcCode.unknown) options.onBug(error);
  } finally {
    cancelDeadline();
  }
  if (send(stream, reply, status) && reply !== undefined) options.onProgress?.("sent", path);
  options.onHandled?.(path, status.code, (clock.monotonic() - startMs) / 1000);
}

/** The status of a call to an unknown method. */
export function noMethod(path: string): GrpcStatus {
  return plain(GrpcCode.unimplemented, `there is no method ${path}`);
}

/** The handler of that path; ignores properties that every object inherits. */
export function own(handlers: Readonly<Record<string, GrpcHandler>>, path: string): GrpcHandler | undefined {
  return Object.hasOwn(handlers, path) ? handlers[path] : undefined;
}

const HEADERS = { ":status": 200, "content-type": "application/grpc" };

/** Ends the call; further data of the caller is discarded. Returns false if the caller has closed the stream. */
function send(stream: ServerHttp2Stream, reply: Uint8Array | undefined, status: GrpcStatus): boolean {
  if (stream.destroyed || stream.closed) return false;
  const trailers = {
    "grpc-status": String(status.code),
    ...(status.message === "" ? {} : { "grpc-message": encodeGrpcMessage(status.message) }),
    ...(status.details.length === 0 ? {} : { "grpc-status-details-bin": encodeStatus(status) }),
  };
  if (reply === undefined && !stream.headersSent) {
    stream.respond({ ...HEADERS, ...trailers }, { endStream: true });
    stopReading(stream);
    return true;
  }
  stream.once("wantTrailers", () => {
    stream.sendTrailers(trailers);
    // Node.js sends trailers after this tick of the event loop; a reset before that would replace them.
    setImmediate(stopReading, stream);
  });
  if (!stream.headersSent) stream.respond(HEADERS, { waitForTrailers: true });
  stream.end(reply === undefined ? undefined : frameMessage(reply));
  return true;
}

/** RST_STREAM with NO_ERROR, after the answer (RFC 9113 section 8.1); a stream that holds unread data would not close. */
function stopReading(stream: ServerHttp2Stream): void {
  if (stream.readableEnded) return;
  stream.close(constants.NGHTTP2_NO_ERROR);
  stream.resume();
}

/** The whole body. Rejects with the signal's reason, also for a caller that stops in the middle, or `too-large`. */
function readAll(stream: ServerHttp2Stream, signal: AbortSignal): Promise<Uint8Array> {
  const body = new Promise<Uint8Array>((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    stream.on("data", (chunk: Buffer) => {
      size += chunk.length;
      if (size <= MAX_REQUEST_BYTES + 5) {
        chunks.push(chunk);
        return;
      }
      chunks.length = 0;
      reject(new GrpcWireError("too-large", `a request exceeds ${MAX_REQUEST_BYTES} bytes`));
    });
    stream.once("end", () => resolve(Buffer.concat(chunks)));
  });
  return unlessAborted(body, { signal });
}

/** The answer to a request that breaks the protocol (grpc/grpc doc/statuscodes.md, doc/compression.md). */
const WIRE_CODES: Readonly<Record<GrpcWireErrorCode, number>> = {
  malformed: GrpcCode.invalidArgument,
  "too-large": GrpcCode.resourceExhausted,
  compressed: GrpcCode.unimplemented,
};

/** Maps an error to a gRPC status; a bug is `unknown`. */
export function statusOf(error: unknown, signal: AbortSignal): GrpcStatus {
  const own = (error as { readonly status?: GrpcStatus } | null)?.status;
  if (error instanceof ExpectedError && own !== undefined) return own;
  if (error instanceof GrpcWireError) return plain(WIRE_CODES[error.code], error.message);
  if (signal.aborted && error === signal.reason) {
    const late = error instanceof Error && error.name === "TimeoutError";
    return plain(late ? GrpcCode.deadlineExceeded : GrpcCode.cancelled, describeError(error));
  }
  if (error instanceof ExpectedError) return plain(GrpcCode.internal, describeError(error));
  return plain(GrpcCode.unknown, describeError(error));
}

function plain(code: number, message: string): GrpcStatus {
  return { code, message, details: [] };
}
