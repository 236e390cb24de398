import { sleep } from "#base/async";
import type { Logger } from "#base/log";
import type { ProxyServer, ReversePolicy } from "#features/tunnel";
import type { Listener } from "./listener.ts";

/** How often the connections that are left are counted, milliseconds. */
const LOOK_MS = 50;

export interface ShutdownParts {
  readonly proxy: Pick<ProxyServer, "backends" | "forwarder">;
  readonly reverse: ReversePolicy | undefined;
  readonly listeners: readonly Listener[];
  readonly log: Logger;
}

/**
 * Takes nothing new, and lets what is open go on for as long as `timeoutMs`. An agent's stream is ended when the last connection
 * on it has gone, not before: a Go agent drops them all when it is told that the server leaves (docs/spec/tunnel.md#11).
 */
export async function drainServer(parts: ShutdownParts, options: { readonly timeoutMs: number }): Promise<void> {
  const { proxy, reverse, listeners, log } = parts;
  for (const listener of listeners) listener.stopAccepting();
  proxy.forwarder.stop();
  reverse?.stop();
  const deadline = performance.now() + options.timeoutMs;
  for (;;) {
    const backends = proxy.backends.all;
    for (const { mux, load } of backends) if (load === 0) mux.end();
    const left = backends.reduce((sum, { load }) => sum + load, 0);
    if (left === 0 && backends.length === 0) return;
    if (performance.now() >= deadline) {
      log.warn("connections are cut: the graceful shutdown took too long", { connections: left });
      return;
    }
    await sleep(Math.max(1, Math.min(LOOK_MS, deadline - performance.now())));
  }
}
