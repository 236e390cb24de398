import { GrpcCode, type GrpcStatus } from "#wire/grpc";
import { type GrpcServerOptions, noMethod, own, statusOf } from "./grpc-server.ts";

/** The handlers and callbacks that a call inside this process shares with a call by gRPC. */
export type LocalCallOptions = Pick<GrpcServerOptions, "handlers" | "onProgress" | "onHandled" | "onBug" | "clock">;

/** The outcome of a call; without `reply` the call has failed, and `status` has the reason. */
export interface LocalReply {
  readonly reply: Uint8Array | undefined;
  readonly status: GrpcStatus;
}

/** Makes a unary call of this process itself: handlers, codes and metrics are the same as for a call by gRPC. Does not reject. */
export async function callLocally(
  options: LocalCallOptions,
  path: string,
  request: Uint8Array,
  { signal }: { readonly signal: AbortSignal },
): Promise<LocalReply> {
  const { clock, handlers } = options;
  const startMs = clock.monotonic();
  let reply: Uint8Array | undefined;
  let status: GrpcStatus = { code: GrpcCode.ok, message: "", details: [] };
  options.onProgress?.("started", path);
  try {
    const handler = own(handlers, path);
    if (handler === undefined) {
      status = noMethod(path);
    } else {
      options.onProgress?.("received", path);
      reply = await handler(request, { signal });
      options.onProgress?.("sent", path);
    }
  } catch (error) {
    status = statusOf(error, signal);
    if (status.code === GrpcCode.unknown) options.onBug(error);
  }
  options.onHandled?.(path, status.code, (clock.monotonic() - startMs) / 1000);
  return { reply, status };
}
