import { type CniResult, convertResult, HIGHEST_VERSION } from "#wire/cni";
import {
  CNI_SERVICE,
  type CniArgs,
  CniRpcError,
  decodeCniArgs,
  decodeGcArgs,
  encodeAddResponse,
  encodeCniArgs,
  encodeGcArgs,
  type GcArgs,
} from "./messages.ts";

/** The methods of a container, whose message is {@link CniArgs}. */
export type ContainerMethod = "Add" | "Del" | "Check";

/** A call of the service: its method and its decoded message. */
export type CniRpcCall =
  | { readonly method: ContainerMethod | "Status"; readonly args: CniArgs }
  | { readonly method: "GC"; readonly args: GcArgs };

/**
 * The service on decoded messages, so that a call inside one process needs no bytes. ADD resolves to the CNI result, every other method to `undefined`.
 * Rejects as the implementation says.
 */
export type CniCaller = (call: CniRpcCall, options: { readonly signal: AbortSignal }) => Promise<CniResult | undefined>;

const METHODS = ["Add", "Del", "Check", "Status", "GC"] as const;

/** The path of a method of the service, such as `/pkg.cnirpc.CNI/Add`. */
export function methodPath(method: CniRpcCall["method"]): string {
  return `/${CNI_SERVICE}/${method}`;
}

/** The message of a call. */
export function encodeCall(call: CniRpcCall): Uint8Array {
  return call.method === "GC" ? encodeGcArgs(call.args) : encodeCniArgs(call.args);
}

/** Throws {@link CniRpcError}. */
function decodeCall(method: CniRpcCall["method"], message: Uint8Array): CniRpcCall {
  // STATUS needs nothing of its message, and older executables send another one.
  if (method === "Status") return { method, args: EMPTY };
  return method === "GC" ? { method, args: decodeGcArgs(message) } : { method, args: decodeCniArgs(message) };
}

const EMPTY: CniArgs = decodeCniArgs(new Uint8Array(0));

/** The service on bytes, by path, for gRPC. `malformed` makes the error for a message that cannot be decoded. */
export function byteHandlers(
  caller: CniCaller,
  malformed: (why: CniRpcError) => Error,
): Readonly<Record<string, (message: Uint8Array, options: { readonly signal: AbortSignal }) => Promise<Uint8Array>>> {
  return Object.fromEntries(
    METHODS.map((method) => [
      methodPath(method),
      async (message: Uint8Array, options: { readonly signal: AbortSignal }) => {
        const result = await caller(decoded(method, message, malformed), options);
        if (result === undefined) return new Uint8Array(0);
        return encodeAddResponse(new TextEncoder().encode(JSON.stringify(convertResult(result, HIGHEST_VERSION))));
      },
    ]),
  );
}

function decoded(
  method: CniRpcCall["method"],
  message: Uint8Array,
  malformed: (why: CniRpcError) => Error,
): CniRpcCall {
  try {
    return decodeCall(method, message);
  } catch (error) {
    if (!(error instanceof CniRpcError)) throw error;
    throw malformed(error);
  }
}
