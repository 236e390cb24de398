import type { AbortOptions } from "#base/async";
import { callGrpc } from "#features/cni";
import { decodeSandboxIds, LIST_ALL_SANDBOXES, LIST_SANDBOXES } from "#wire/cri";
import type { SandboxState } from "./judge.ts";

/** A runtime with thousands of sandboxes answers within a second; one that hangs is asked again at the next look. In milliseconds. */
const ANSWER_MS = 10_000;

/**
 * Asks a container runtime at its CRI socket which sandboxes it has, running or not. Rejects with `GrpcCallError` or `CriError` if it does not tell: then nothing
 * is known of any.
 */
export async function sandboxesOfRuntime(
  criSocket: string,
  { signal }: AbortOptions,
): Promise<(containerId: string) => SandboxState> {
  const answer = await callGrpc(criSocket, LIST_SANDBOXES, LIST_ALL_SANDBOXES, {
    signal,
    timeoutMs: ANSWER_MS,
    peer: "the container runtime",
  });
  const ids = new Set(decodeSandboxIds(answer));
  return (containerId) => (ids.has(containerId) ? "alive" : "gone");
}
