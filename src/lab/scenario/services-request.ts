import type { AbortOptions } from "#base/async";
import { describeError } from "#base/errors";
import type { IpAddress } from "#base/ip";
import type { NetNsRef } from "#kernel/netns";
import { type BackendAnswer, BackendError, parseBackendAnswer, SLOW_PATH, WHO_PATH } from "#lab/backend";
import { connectInside, InsideError, request } from "#lab/inside";

/** A backend's answer, or the reason why there is none. */
export type BackendResult =
  | { readonly answer: BackendAnswer }
  | { readonly why: "refused" | "silent" | "failed"; readonly error: string };

/**
 * Makes one connection and reads one answer completely; `slowMs` is the duration of the answer. A failure is a result. Rejects with the
 * signal's reason, and with `KernelError` if the namespace is gone.
 */
export async function requestBackend(
  from: NetNsRef,
  place: { readonly address: IpAddress; readonly port: number },
  options: AbortOptions & { readonly timeoutMs: number; readonly slowMs?: number },
): Promise<BackendResult> {
  const { slowMs } = options;
  const path = slowMs === undefined ? WHO_PATH : `${SLOW_PATH}?ms=${slowMs}`;
  try {
    const socket = await connectInside(from, place, options);
    const timeoutMs = options.timeoutMs + (slowMs ?? 0);
    const { status, body } = await request(socket, { path, host: "backend" }, { ...options, timeoutMs });
    if (status !== 200) return { why: "failed", error: `status ${status}` };
    return { answer: parseBackendAnswer(body) };
  } catch (error) {
    if (!(error instanceof InsideError || error instanceof BackendError)) throw error;
    const text = describeError(error);
    if (error.code === "timeout") return { why: "silent", error: text };
    return { why: text.includes("ECONNREFUSED") ? "refused" : "failed", error: text };
  }
}
