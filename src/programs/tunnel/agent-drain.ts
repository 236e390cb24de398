import { sleep } from "#base/async";
import { isAbortError } from "#base/errors";
import type { Logger } from "#base/log";
import type { ServerSet } from "#features/tunnel";

/** How often the connections that are left are counted, milliseconds. */
const LOOK_MS = 50;
/** Dials that were under way when DRAIN was sent still come in: nobody may be there for so long, milliseconds. */
const QUIET_MS = 1000;

/**
 * Tells every server not to send more, and waits until there has been no connection for a second, `timeoutMs` is over (0: never),
 * or `hurry` aborts (docs/spec/tunnel.md#11).
 */
export async function drainAgent(
  servers: Pick<ServerSet, "drain" | "connections" | "isReady">,
  log: Logger,
  options: { readonly timeoutMs: number; readonly hurry: AbortSignal },
): Promise<void> {
  servers.drain();
  log.info("draining: servers are told; connections go on", { connections: servers.connections });
  const started = performance.now();
  let busyAt = started;
  while (!options.hurry.aborted) {
    const now = performance.now();
    if (servers.connections > 0) busyAt = now;
    // As upstream: then only a second signal ends it.
    if (options.timeoutMs > 0) {
      if (now - started >= options.timeoutMs) {
        log.warn("connections are cut: draining took too long", { connections: servers.connections });
        return;
      }
      if (!servers.isReady || now - busyAt >= QUIET_MS) return;
    }
    await sleep(LOOK_MS, { signal: options.hurry }).catch((error: unknown) => {
      if (!isAbortError(error)) throw error;
    });
  }
}
