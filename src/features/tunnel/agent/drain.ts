import { pause, sleep } from "#base/async";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import { GrpcCode } from "#wire/grpc";
import type { ServerSet } from "./server-set.ts";

/** The interval at which the open connections are counted, in milliseconds. */
const POLL_MS = 50;
/** Draining ends after this time without a connection, in milliseconds. Dials that were under way when DRAIN was sent still arrive. */
const QUIET_MS = 1000;

/**
 * Sends DRAIN to every server, and waits until there was no connection for a second, `timeoutMs` is over (0: there is no limit), or `hurry`
 * aborts (docs/spec/tunnel.md#11).
 */
export async function drainAgent(
  servers: Pick<ServerSet, "drain" | "connections" | "isReady">,
  { clock, log }: { readonly clock: Clock; readonly log: Logger },
  options: { readonly timeoutMs: number; readonly hurry: AbortSignal },
): Promise<void> {
  servers.drain();
  log.info("draining: servers send no new dials; open connections continue", { connections: servers.connections });
  const started = clock.monotonic();
  let busyAt = started;
  while (!options.hurry.aborted) {
    const now = clock.monotonic();
    if (servers.connections > 0) busyAt = now;
    // With a time limit of 0, as in Konnectivity, only a second signal ends draining.
    if (options.timeoutMs > 0) {
      if (now - started >= options.timeoutMs) {
        log.warn("open connections are closed, because draining took longer than --drain-timeout", {
          connections: servers.connections,
        });
        return;
      }
      if (!servers.isReady || now - busyAt >= QUIET_MS) return;
    }
    await pause(POLL_MS, { signal: options.hurry, clock });
  }
}

/** The time that the queued bytes of a link may take to leave at the end, in milliseconds. */
const CLOSE_MS = 1000;
/** The interval at which the remaining links are counted, in milliseconds. */
const CLOSE_POLL_MS = 20;

/** Ends each stream after the bytes that wait to be sent. Streams that take longer than a second are destroyed. */
export async function closeAgent(
  servers: Pick<ServerSet, "links" | "close" | "isReady">,
  { clock }: { readonly clock: Clock },
): Promise<void> {
  const links = servers.links;
  servers.close();
  const deadline = clock.monotonic() + CLOSE_MS;
  while (servers.isReady && clock.monotonic() < deadline) await sleep(CLOSE_POLL_MS, { clock });
  for (const { mux } of links) mux.destroy({ code: GrpcCode.unavailable, message: "the agent is stopping" });
}
