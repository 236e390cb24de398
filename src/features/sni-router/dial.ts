import { connect, type Socket } from "node:net";
import { unlessAborted, withDeadline } from "#base/async";
import type { Clock } from "#base/clock";
import { type Names, nodeLookup } from "#base/names";
import { formatHostPort, type HostPort } from "#wire/http-connect";
import { SniRouterError } from "./errors.ts";

/** The shortest time limit of one attempt, in milliseconds. */
const MIN_ATTEMPT_MS = 1000;
/** TCP keepalive, as in Go: it detects peers that have vanished, in milliseconds. */
export const TCP_KEEPALIVE_MS = 15_000;

/** Options of {@link connectFirst}. */
export interface DialOptions {
  /** Limit of the time of all attempts together, in milliseconds. */
  readonly timeoutMs: number;
  readonly clock: Clock;
  readonly names: Names;
  readonly signal: AbortSignal;
  readonly onFailure: (backend: HostPort, error: unknown) => void;
}

/**
 * Tries the backends one after the other, until one answers. The remaining backends share the remaining time. Resolves with a paused socket
 * that can be half-closed. Rejects with {@link SniRouterError} `no-backend`, or with the signal's reason; no socket stays open.
 */
export async function connectFirst(
  backends: readonly HostPort[],
  { timeoutMs, clock, names, signal, onFailure }: DialOptions,
): Promise<{ readonly socket: Socket; readonly backend: HostPort }> {
  const end = clock.monotonic() + timeoutMs;
  for (const [at, backend] of backends.entries()) {
    const leftMs = end - clock.monotonic();
    if (leftMs <= 0) break;
    const shareMs = Math.min(leftMs, Math.max(MIN_ATTEMPT_MS, leftMs / (backends.length - at)));
    try {
      const socket = await withDeadline(shareMs, (until) => connectOne(backend, names, shareMs, until), {
        signal,
        clock,
      });
      return { socket, backend };
    } catch (error) {
      signal.throwIfAborted();
      onFailure(backend, error);
    }
  }
  const all = backends.map(formatHostPort).join(", ");
  throw new SniRouterError("no-backend", `none of the ${all} backends accepted a connection within ${timeoutMs} ms`);
}

async function connectOne(
  { host, port }: HostPort,
  names: Names,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Socket> {
  const socket = connect({
    host,
    port,
    lookup: nodeLookup(names, signal),
    allowHalfOpen: true,
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: TCP_KEEPALIVE_MS,
    // If a name has several addresses, the first address gets half of the time.
    autoSelectFamilyAttemptTimeout: Math.max(250, Math.floor(timeoutMs / 2)),
  });
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  // The listener stays: an error must always have a listener. After the connection is made, the close event is handled.
  socket.on("error", reject);
  socket.once("connect", () => {
    socket.pause();
    resolve();
  });
  try {
    await unlessAborted(promise, { signal });
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}
