import { Socket } from "node:net";
import type { Clock } from "#base/clock";
import type { NetNs } from "#kernel/netns";
import { openTcp } from "#kernel/socket";
import type { LocalTarget } from "./plan.ts";

/** A Service that does not take the connection within this time, in milliseconds, resets it. */
const CONNECT_MS = 10_000;
/** Idle connections are probed after this time, in milliseconds: an endpoint that is gone does not hold a place for ever. */
const KEEP_ALIVE_MS = 60_000;

/**
 * Joins a client with a connection to the target. The end of one side is passed on, and what fails on one side resets the other. Throws `KernelError`
 * if there is no socket; the client is then the caller's.
 */
export function relay(
  client: Socket,
  target: LocalTarget,
  { netns, clock }: { readonly netns: Pick<NetNs, "fd"> | undefined; readonly clock: Clock },
): void {
  const upstream = new Socket({ fd: openTcp(target.address.family, { netns }), allowHalfOpen: true });
  const cut = (): void => {
    for (const one of [client, upstream]) if (!one.destroyed) one.resetAndDestroy();
  };
  const stopWaiting = clock.after(CONNECT_MS, cut);
  for (const one of [client, upstream]) {
    one.setNoDelay(true);
    one.setKeepAlive(true, KEEP_ALIVE_MS);
    one.on("error", cut);
    one.once("close", () => {
      stopWaiting();
      // One that has ended in both directions has passed its end on, and the other one ends by itself.
      if (!one.readableEnded || !one.writableFinished) cut();
    });
  }
  upstream.once("connect", () => {
    stopWaiting();
    client.pipe(upstream);
    upstream.pipe(client);
  });
  upstream.connect({ host: String(target.address), port: target.port });
}
