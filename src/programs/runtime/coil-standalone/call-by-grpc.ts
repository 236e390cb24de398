import { CniCode, CniError, type CniResult, parseResult } from "#wire/cni";
import { CniRpcError, decodeAddResponse, encodeCall, methodPath } from "#wire/cnirpc";
import { decodeGrpcMessage, decodeStatus, frameMessage, GrpcCode, GrpcWireError, unframeUnary } from "#wire/grpc";
import { Http2Call, Http2Error, type Http2Response, MAX_RESPONSE_BYTES } from "#wire/http2";
import { type CallCoild, errorOf } from "../../shared/cni-plugin/index.ts";
import { type Connection, type ConnectionEvents, connect } from "./runtime.ts";

/** Time limit of a call of coild, seconds (docs/spec/pod-network.md#11). */
const DEADLINE_SECONDS = 60;

/**
 * Makes unary calls of a daemon, whose name is for errors. The call throws {@link CniError}: the daemon's own error, 11 if it cannot be reached, 999
 * if its answer is malformed.
 */
export function grpcCaller(daemon: string): CallCoild {
  return async (socket, call) => {
    const reply = await callByGrpc(daemon, { socket, path: methodPath(call.method), message: encodeCall(call) });
    return call.method === "Add" ? parseReply(reply) : undefined;
  };
}

async function callByGrpc(
  daemon: string,
  { socket, path, message }: { readonly socket: string; readonly path: string; readonly message: Uint8Array },
): Promise<Uint8Array> {
  const response = await exchange(
    daemon,
    socket,
    new Http2Call({
      path,
      authority: "localhost",
      headers: {
        te: "trailers",
        "content-type": "application/grpc",
        "user-agent": "isthmus-cni",
        "grpc-timeout": `${DEADLINE_SECONDS}S`,
      },
      body: frameMessage(message),
    }),
  );
  const status = Number(response.headers.get("grpc-status") ?? Number.NaN);
  if (status === GrpcCode.ok) return decoded(daemon, () => unframeUnary(response.body, MAX_RESPONSE_BYTES));
  throw decoded(daemon, () => {
    const packed = response.headers.get("grpc-status-details-bin");
    return errorOf({
      code: status,
      message: decodeGrpcMessage(response.headers.get("grpc-message") ?? ""),
      details: packed === undefined ? [] : decodeStatus(packed).details,
      http: response.headers.get(":status"),
    });
  });
}

/** The result in an answer to ADD. Throws {@link CniError} 999. */
function parseReply(reply: Uint8Array): CniResult {
  try {
    return parseResult(JSON.parse(new TextDecoder().decode(decodeAddResponse(reply))));
  } catch (error) {
    throw new CniError(CniCode.internal, "the answer to ADD cannot be decoded", { cause: error });
  }
}

/** Runs a decoder. If the decoder refuses its input, throws an internal error, so that the plugin does not crash. */
function decoded<T>(daemon: string, decode: () => T): T {
  try {
    return decode();
  } catch (error) {
    if (!(error instanceof GrpcWireError || error instanceof CniRpcError)) throw error;
    throw new CniError(CniCode.internal, `${daemon}'s answer cannot be decoded: ${error.message}`, { cause: error });
  }
}

/** Runs the call over a connection of its own, until the stream ends, the connection breaks or the deadline passes. */
async function exchange(daemon: string, path: string, call: Http2Call): Promise<Http2Response> {
  const { promise, resolve, reject } = Promise.withResolvers<Http2Response>();
  const later = (message: string): void => reject(new CniError(CniCode.tryAgainLater, message));
  const timer = setTimeout(
    () => later(`${daemon} did not answer within ${DEADLINE_SECONDS} s`),
    DEADLINE_SECONDS * 1000,
  );
  let connection: Connection | undefined;
  try {
    const events: ConnectionEvents = {
      data: (chunk) => {
        try {
          connection?.write(call.receive(chunk));
        } catch (error) {
          if (!(error instanceof Http2Error)) throw error;
          reject(
            new CniError(CniCode.internal, `${daemon}'s answer cannot be decoded: ${error.message}`, { cause: error }),
          );
        }
        if (call.response !== undefined) resolve(call.response);
      },
      closed: (error) =>
        later(`${daemon} closed the connection without an answer${error === undefined ? "" : `: ${error.message}`}`),
    };
    connection = await connect(path, events, daemon);
    connection.write(call.start());
    return await promise;
  } finally {
    clearTimeout(timer);
    connection?.close();
  }
}
