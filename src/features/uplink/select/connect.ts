import type { AbortOptions } from "#base/async";
import { openTcp } from "#kernel/socket";
import { type BufferPool, Upstream } from "../relay/index.ts";
import type { Pair } from "./happy-eyeballs.ts";

/** How sockets to destinations are made. */
export interface ConnectOptions {
  /** SO_MARK, so that rules of transparent mode let them pass. Needs CAP_NET_ADMIN. */
  readonly mark?: number | undefined;
}

/**
 * Connects to an address and resolves with the paused socket. Rejects with the system's error, or with the signal's reason when it
 * aborts first; the socket is then closed.
 */
export async function connectUpstream(
  { address, source }: Pair,
  port: number,
  pool: BufferPool,
  { signal, mark }: AbortOptions & ConnectOptions,
): Promise<Upstream> {
  const path = { address, port };
  if (source === undefined && mark === undefined) return await connected(Upstream.connect(path, pool), { signal });
  // Node would choose the port when it binds: some 28,000 connections for a source in all, and a search that takes milliseconds long
  // before that. Chosen when it connects, there are as many for each destination.
  const bound = source === undefined ? {} : { source, bindAddressNoPort: true };
  return await connected(Upstream.adopt(openTcp(address.family, { ...bound, mark }), path, pool), { signal });
}

function connected(upstream: Upstream, { signal }: AbortOptions): Promise<Upstream> {
  return new Promise((resolve, reject) => {
    const { socket } = upstream;
    const settle = (): void => {
      signal?.removeEventListener("abort", onAbort);
      socket.off("connect", onConnect);
      socket.off("error", onError);
    };
    const onConnect = (): void => {
      settle();
      resolve(upstream);
    };
    const onError = (error: Error): void => {
      settle();
      socket.destroy();
      reject(error);
    };
    const onAbort = (): void => onError(signal?.reason);
    socket.once("connect", onConnect);
    socket.once("error", onError);
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted === true) onAbort();
  });
}
