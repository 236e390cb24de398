import type { Clock } from "#base/clock";
import { type ProxiedConnection, ProxyHeaderReader } from "#wire/proxy-protocol";
import { type ClientHello, ClientHelloReader } from "#wire/tls-hello";
import type { UnroutedBytes } from "./unrouted-bytes.ts";

/** The first message of a client, or why there is no valid one. */
export type PeekResult =
  | { readonly kind: "hello"; readonly hello: ClientHello }
  | { readonly kind: "not_tls" | "too_large" | "timeout" | "gone" }
  | { readonly kind: "no_header"; readonly reason: string };

/**
 * Waits for the ClientHello, at most `timeoutMs`. Never rejects: the result is `gone` if the client leaves or `signal` aborts. With `onHeader` a PROXY
 * header has to come first, whose bytes are not kept.
 */
export function peekHello(
  bytes: UnroutedBytes,
  options: {
    readonly timeoutMs: number;
    readonly clock: Clock;
    readonly signal: AbortSignal;
    readonly onHeader?: ((connection: ProxiedConnection | undefined) => void) | undefined;
  },
): Promise<PeekResult> {
  const { timeoutMs, clock, signal, onHeader } = options;
  const reader = new ClientHelloReader();
  let header = onHeader === undefined ? undefined : new ProxyHeaderReader();
  return new Promise((resolve) => {
    const settle = (result: PeekResult): void => {
      cancel();
      signal.removeEventListener("abort", onAbort);
      bytes.onChunk = undefined;
      resolve(result);
    };
    const cancel = clock.after(timeoutMs, () => settle({ kind: "timeout" }));
    /** Returns what comes after the header, if that is complete. */
    const afterHeader = (chunk: Buffer): Buffer | undefined => {
      if (header === undefined) return chunk;
      const progress = header.push(chunk);
      if (progress.kind === "fault") settle({ kind: "no_header", reason: progress.reason });
      if (progress.kind !== "header") return undefined;
      header = undefined;
      bytes.keepOnly(progress.rest);
      onHeader?.(progress.connection);
      return progress.rest;
    };
    const onAbort = (): void => settle({ kind: "gone" });
    signal.addEventListener("abort", onAbort, { once: true });
    bytes.onChunk = (chunk) => {
      if (chunk === undefined) return settle({ kind: "gone" });
      const rest = afterHeader(chunk);
      if (rest === undefined || signal.aborted) return;
      const progress = reader.push(rest);
      if (progress.kind === "hello") settle(progress);
      if (progress.kind === "not-tls") settle({ kind: "not_tls" });
      if (progress.kind === "too-large") settle({ kind: "too_large" });
    };
    if (signal.aborted) onAbort();
  });
}
