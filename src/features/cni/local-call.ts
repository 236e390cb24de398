import { GrpcCode, type GrpcStatus } from "#wire/grpc";
import { type GrpcServerOptions, statusOf } from "./grpc-server.ts";

/** The callbacks that a call inside this process shares with a call by gRPC. */
export type LocalCallOptions = Pick<GrpcServerOptions, "onProgress" | "onHandled" | "onBug" | "clock">;

/** The outcome of a call. */
export type LocalReply<T> = { readonly value: T } | { readonly status: GrpcStatus };

/**
 * Runs a unary call of this process itself, on objects: codes and metrics are those of a call by gRPC of the method `path`. Does not reject: a failure
 * has a status.
 */
export async function callLocally<T>(
  options: LocalCallOptions,
  path: string,
  work: (options: { readonly signal: AbortSignal }) => Promise<T>,
  { signal }: { readonly signal: AbortSignal },
): Promise<LocalReply<T>> {
  const { clock } = options;
  const startMs = clock.monotonic();
  const ended = (code: number): void => options.onHandled?.(path, code, (clock.monotonic() - startMs) / 1000);
  options.onProgress?.("started", path);
  options.onProgress?.("received", path);
  try {
    const value = await work({ signal });
    options.onProgress?.("sent", path);
    ended(GrpcCode.ok);
    return { value };
  } catch (error) {
    const status = statusOf(error, signal);
    if (status.code === GrpcCode.unknown) options.onBug(error);
    ended(status.code);
    return { status };
  }
}
