import { sleep } from "#base/async";
import { isAbortError } from "#base/errors";
import type { Logger } from "#base/log";
import type { ServerSet } from "#features/tunnel";

/** How often the open connections are counted, milliseconds. */
const LOOK_MS = 50;
/** Dials that were on their way when DRAIN was sent still arrive: draining ends after so long without a connection, milliseconds. */
const QUIET_MS = 1000;

/**
 * Sends DRAIN to every server, and waits until there was no connection for a second, `timeoutMs` is over (0: never), or `hurry`
 * aborts (docs/spec/tunnel.md#11).
 */
export async function drainAgent(
  servers: Pick<ServerSet, "drain" | "connections" | "isReady">,
  log: Logger,
  options: { readonly timeoutMs: number; readonly hurry: AbortSignal },
): Promise<void> {
  servers.drain();
  log.info("draining: servers send no new dials; connections go on", { connections: servers.connections });
  const started = performance.now();
  let busyAt = started;
  while (!options.hurry.aborted) {
    const now = performance.now();
    if (servers.connections > 0) busyAt = now;
    // 0, as in Konnectivity: only a second signal ends it.
    if (options.timeoutMs > 0) {
      if (now - started >= options.timeoutMs) {
        log.warn("connections are closed: draining took too long", { connections: servers.connections });
        return;
      }
      if (!servers.isReady || now - busyAt >= QUIET_MS) return;
    }
    await sleep(LOOK_MS, { signal: options.hurry }).catch((error: unknown) => {
      if (!isAbortError(error)) throw error;
    });
  }
}
