import type { Clock } from "#base/clock";
import { type ClientHello, ClientHelloReader } from "#wire/tls-hello";
import type { UnroutedBytes } from "./unrouted-bytes.ts";

/** The first message of a client, or why there is no valid one. */
export type PeekResult =
  | { readonly kind: "hello"; readonly hello: ClientHello }
  | { readonly kind: "not_tls" | "too_large" | "timeout" | "gone" };

/** Waits for the ClientHello, at most `timeoutMs`. Never rejects: the result is `gone` if the client leaves or `signal` aborts. */
export function peekHello(
  bytes: UnroutedBytes,
  options: { readonly timeoutMs: number; readonly clock: Clock; readonly signal: AbortSignal },
): Promise<PeekResult> {
  const { timeoutMs, clock, signal } = options;
  const reader = new ClientHelloReader();
  return new Promise((resolve) => {
    const settle = (result: PeekResult): void => {
      cancel();
      signal.removeEventListener("abort", onAbort);
      bytes.onChunk = undefined;
      resolve(result);
    };
    const cancel = clock.after(timeoutMs, () => settle({ kind: "timeout" }));
    const onAbort = (): void => settle({ kind: "gone" });
    signal.addEventListener("abort", onAbort, { once: true });
    bytes.onChunk = (chunk) => {
      if (chunk === undefined) return settle({ kind: "gone" });
      const progress = reader.push(chunk);
      if (progress.kind === "hello") settle(progress);
      if (progress.kind === "not-tls") settle({ kind: "not_tls" });
      if (progress.kind === "too-large") settle({ kind: "too_large" });
    };
    if (signal.aborted) onAbort();
  });
}
