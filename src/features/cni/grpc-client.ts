import { connect } from "node:http2";
import { connect as connectSocket } from "node:net";
import { type AbortOptions, unlessAborted, withDeadline } from "#base/async";
import { ExpectedError } from "#base/errors";
import { decodeGrpcMessage, frameMessage, GrpcCode, GrpcWireError, unframeUnary } from "#wire/grpc";
import { MAX_REQUEST_BYTES } from "./grpc-server.ts";

/** `unreachable`: no process answers on the socket. `unimplemented`: it has no such method. `failed`: the call ended with another status than OK. */
export type GrpcCallErrorCode = "unreachable" | "unimplemented" | "failed";

/** A call that did not succeed. */
export class GrpcCallError extends ExpectedError<GrpcCallErrorCode> {
  override readonly name = "GrpcCallError";
}

/**
 * Makes one unary call over a connection of its own; `peer` names who is called, for errors (default `coild`). Rejects with {@link GrpcCallError}, and with the
 * deadline's error after `timeoutMs` (default 10 s).
 */
export async function callGrpc(
  socketPath: string,
  method: string,
  request: Uint8Array,
  options: AbortOptions & { readonly timeoutMs?: number; readonly peer?: string } = {},
): Promise<Uint8Array> {
  const { timeoutMs = 10_000, peer = "coild" } = options;
  return withDeadline(timeoutMs, (signal) => exchange(peer, socketPath, method, request, signal), options);
}

async function exchange(
  peer: string,
  socketPath: string,
  method: string,
  request: Uint8Array,
  signal: AbortSignal,
): Promise<Uint8Array> {
  const unreachable = (error: Error): GrpcCallError =>
    new GrpcCallError("unreachable", `cannot reach ${peer} at ${socketPath}: ${error.message}`, { cause: error });
  signal.throwIfAborted();
  const { promise, resolve, reject } = Promise.withResolvers<Uint8Array>();
  const session = connect("http://localhost", { createConnection: () => connectSocket(socketPath) });
  session.on("error", (error: Error) => reject(unreachable(error)));
  try {
    const stream = session.request({
      ":method": "POST",
      ":path": method,
      te: "trailers",
      "content-type": "application/grpc",
    });
    const chunks: Buffer[] = [];
    let status: Record<string, unknown> = {};
    stream.on("response", (headers) => {
      status = { ...status, ...headers };
    });
    stream.on("trailers", (headers) => {
      status = { ...status, ...headers };
    });
    stream.on("data", (chunk: Buffer) => chunks.push(chunk));
    stream.on("error", (error: Error) => reject(unreachable(error)));
    stream.on("end", () => {
      if (status["grpc-status"] !== "0") {
        const message = decodeGrpcMessage(String(status["grpc-message"] ?? ""));
        reject(
          new GrpcCallError(
            status["grpc-status"] === String(GrpcCode.unimplemented) ? "unimplemented" : "failed",
            `${method} failed with gRPC status ${status["grpc-status"] ?? "none"}: ${message}`,
          ),
        );
        return;
      }
      try {
        resolve(unframeUnary(Buffer.concat(chunks), MAX_REQUEST_BYTES * 16));
      } catch (error) {
        if (!(error instanceof GrpcWireError)) throw error;
        reject(new GrpcCallError("failed", `${method}: ${error.message}`, { cause: error }));
      }
    });
    stream.end(frameMessage(request));
    return await unlessAborted(promise, { signal });
  } finally {
    session.destroy();
  }
}
