import type { AbortOptions } from "#base/async";
import { ExpectedError } from "#base/errors";
import { callGrpc, GrpcCallError } from "./grpc-client.ts";
import type { GrpcHandler } from "./grpc-server.ts";

/** A method beside `pkg.cnirpc.CNI`, for audits: the state of a node's memory and kernel, as JSON. */
export const INSPECT_PATH = "/isthmus.dev.Node/Inspect";

/** As {@link INSPECT_PATH}, what pods have of NAT clients and routers. It takes longer, so it is not of one moment. */
export const INSPECT_EGRESS_PATH = "/isthmus.dev.Node/InspectEgress";

/** As {@link INSPECT_PATH}, on the socket of `nic-agent`: the NICs of VPCs in its journal, and what is there of them. */
export const INSPECT_NICS_PATH = "/isthmus.dev.Node/InspectNics";

/** Time for the answer, milliseconds: with a hundred clients whose Egress is originatingOnly iptables runs for seconds. */
const INSPECT_EGRESS_MS = 60_000;

/** The answer of a coild or nic-agent is malformed. */
export class InspectionError extends ExpectedError<"bad-answer"> {
  override readonly name = "InspectionError";
}

/** Serves {@link INSPECT_PATH}; `state` returns plain data, or a promise of it. */
export function inspectHandler(state: (options: AbortOptions) => unknown): GrpcHandler {
  return async (_request, options) => new TextEncoder().encode(JSON.stringify(await state(options)));
}

/** Requests the state of the coilds at these sockets; `T` is its type. Rejects with `GrpcCallError` or {@link InspectionError}. */
export function inspectNodes<T>(sockets: readonly string[], options: { readonly signal: AbortSignal }): Promise<T[]> {
  return Promise.all(sockets.map(async (socket) => (await inspect(socket, INSPECT_PATH, options)) as T));
}

/**
 * Requests what pods have of NAT clients and routers at this coild; `undefined`: it is of a version that cannot tell. Rejects with `GrpcCallError` or
 * {@link InspectionError}.
 */
export async function inspectEgress(socket: string, options: { readonly signal: AbortSignal }): Promise<unknown> {
  return await unlessUnknown(() => inspect(socket, INSPECT_EGRESS_PATH, { ...options, timeoutMs: INSPECT_EGRESS_MS }));
}

/**
 * Requests what a node has of NICs at this nic-agent; `undefined`: it is of a version that cannot tell. Rejects with `GrpcCallError` or
 * {@link InspectionError}.
 */
export async function inspectNicAgent(socket: string, options: { readonly signal: AbortSignal }): Promise<unknown> {
  return await unlessUnknown(() => inspect(socket, INSPECT_NICS_PATH, options));
}

async function unlessUnknown(ask: () => Promise<unknown>): Promise<unknown> {
  try {
    return await ask();
  } catch (error) {
    if (!(error instanceof GrpcCallError) || error.code !== "unimplemented") throw error;
    return undefined;
  }
}

async function inspect(
  socket: string,
  method: string,
  options: { readonly signal: AbortSignal; readonly timeoutMs?: number },
): Promise<unknown> {
  const answer = await callGrpc(socket, method, new Uint8Array(0), options);
  try {
    return JSON.parse(new TextDecoder().decode(answer)) as unknown;
  } catch (error) {
    throw new InspectionError("bad-answer", `the answer of the agent at ${socket} is not JSON`, { cause: error });
  }
}
