import { ExpectedError } from "#base/errors";
import { callGrpc } from "./grpc-client.ts";
import type { GrpcHandler } from "./grpc-server.ts";

/** A method beside `pkg.cnirpc.CNI`, for audits: the state of a node's memory and kernel, as JSON. */
export const INSPECT_PATH = "/isthmus.dev.Node/Inspect";

/** The answer of a coild is malformed. */
export class InspectionError extends ExpectedError<"bad-answer"> {
  override readonly name = "InspectionError";
}

/** Serves {@link INSPECT_PATH}; `state` returns plain data, all read at the same moment. */
export function inspectHandler(state: () => unknown): GrpcHandler {
  return async () => new TextEncoder().encode(JSON.stringify(state()));
}

/** Requests the state of the coilds at these sockets; `T` is its type. Rejects with `GrpcCallError` or {@link InspectionError}. */
export function inspectNodes<T>(sockets: readonly string[], options: { readonly signal: AbortSignal }): Promise<T[]> {
  return Promise.all(sockets.map((socket) => inspectNode<T>(socket, options)));
}

async function inspectNode<T>(socket: string, options: { readonly signal: AbortSignal }): Promise<T> {
  const answer = await callGrpc(socket, INSPECT_PATH, new Uint8Array(0), options);
  try {
    return JSON.parse(new TextDecoder().decode(answer)) as T;
  } catch (error) {
    throw new InspectionError("bad-answer", `the answer of coild at ${socket} is not JSON`, { cause: error });
  }
}
