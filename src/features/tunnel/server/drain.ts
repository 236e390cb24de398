import { sleep } from "#base/async";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import type { Listener } from "./listener.ts";
import type { ProxyServer } from "./proxy-server.ts";
import type { ReversePolicy } from "./reverse-policy.ts";

/** How often the open connections are counted, in milliseconds. */
const POLL_MS = 50;

export interface DrainParts {
  readonly proxy: Pick<ProxyServer, "backends" | "forwarder">;
  readonly reverse: Pick<ReversePolicy, "stop"> | undefined;
  readonly listeners: readonly Pick<Listener, "stopAccepting">[];
  readonly log: Logger;
  readonly clock: Clock;
}

/**
 * Stops accepting sessions and dials, and lets connections continue for at most `timeoutMs`. An agent's stream is ended when its last
 * connection has ended, not before: at GOAWAY a Go agent drops all its connections (docs/spec/tunnel.md#11).
 */
export async function drainServer(parts: DrainParts, options: { readonly timeoutMs: number }): Promise<void> {
  const { proxy, reverse, listeners, log, clock } = parts;
  for (const listener of listeners) listener.stopAccepting();
  proxy.forwarder.stop();
  reverse?.stop();
  const deadline = clock.monotonic() + options.timeoutMs;
  for (;;) {
    const backends = proxy.backends.all;
    for (const { mux, load } of backends) if (load === 0) mux.end();
    const left = backends.reduce((sum, { load }) => sum + load, 0);
    if (left === 0 && backends.length === 0) return;
    if (clock.monotonic() >= deadline) {
      log.warn(
        "open connections are closed, because the graceful shutdown took longer than --graceful-shutdown-timeout",
        { connections: left },
      );
      return;
    }
    await sleep(Math.max(1, Math.min(POLL_MS, deadline - clock.monotonic())), { clock });
  }
}
