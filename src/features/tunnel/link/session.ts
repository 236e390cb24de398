import { constants, type Http2Session } from "node:http2";
import type { Clock } from "#base/clock";
import type { SessionSocket } from "./session-socket.ts";

/** What a stream may send before we take it: enough for a fast link with a millisecond of round trip. */
export const STREAM_WINDOW_BYTES = 4 * 1024 * 1024;
/** The same for a whole session; frontends have many streams. */
export const SESSION_WINDOW_BYTES = 16 * 1024 * 1024;
/** Memory of a session that Node may use, MiB; its default of 10 ends sessions with many streams. */
export const SESSION_MEMORY_MIB = 1024;

/** HTTP/2 settings of every session of the tunnel, both sides. */
export const SESSION_SETTINGS = {
  initialWindowSize: STREAM_WINDOW_BYTES,
  // Several packets of 64 KiB with their heads: a frame that a packet only just does not fit costs a tenth of the throughput.
  maxFrameSize: 256 * 1024,
  enablePush: false,
} as const;

/** How long the answer to a PING may take, as in Go, milliseconds. */
const PING_TIMEOUT_MS = 20_000;

/**
 * Pings a peer that has been silent for `idleMs`, to the moment; one of which nothing comes within 20 s of that loses its session. Ends
 * with the session.
 */
export function keepAlive(
  session: Http2Session,
  socket: Pick<SessionSocket, "whenRead">,
  options: { readonly idleMs: number; readonly clock: Clock },
): void {
  const { idleMs, clock } = options;
  if (idleMs <= 0) return;
  let lastReadAt = clock.monotonic();
  let isAsked = false;
  let cancel = (): void => undefined;
  socket.whenRead(() => {
    lastReadAt = clock.monotonic();
    if (!isAsked) return;
    isAsked = false;
    cancel();
    cancel = clock.after(idleMs, look, { unref: true });
  });
  const look = (): void => {
    if (session.destroyed) return;
    const leftMs = lastReadAt + idleMs + (isAsked ? PING_TIMEOUT_MS : 0) - clock.monotonic();
    if (leftMs <= 0 && isAsked) {
      session.destroy();
      return;
    }
    if (leftMs <= 0) {
      isAsked = true;
      // What comes of it is read, and that counts.
      if (!session.ping(() => undefined)) {
        session.destroy();
        return;
      }
    }
    cancel = clock.after(leftMs <= 0 ? PING_TIMEOUT_MS : leftMs, look, { unref: true });
  };
  look();
  session.once("close", () => cancel());
}

/** Strikes after which a peer that pings too often is told to stop, as in Go's enforcement policy. */
const MAX_PING_STRIKES = 2;

/** A PING frame with its header. */
const PING_BYTES = 17;

/**
 * Ends sessions whose peer pings more often than `minIntervalMs` while nothing else moves: GOAWAY ENHANCE_YOUR_CALM
 * `too_many_pings`. Pings that come with data, or while we send data, are a Go peer's measurement of the link and are free.
 */
export function limitPings(
  session: Http2Session,
  options: {
    readonly minIntervalMs: number;
    readonly clock: Clock;
    readonly bytesRead: () => number;
    readonly bytesWritten: () => number;
  },
): void {
  let strikes = 0;
  let last = Number.NEGATIVE_INFINITY;
  let pings = 0;
  let read = options.bytesRead();
  /** The most that was ever written besides answers to PINGs; some of those may still wait, so what is seen is never too much. */
  let sent = options.bytesWritten();
  session.on("ping", () => {
    const now = options.clock.monotonic();
    const [readNow, sentNow] = [options.bytesRead(), options.bytesWritten() - PING_BYTES * pings];
    const withData = readNow - read > 2 * PING_BYTES || sentNow > sent;
    read = readNow;
    sent = Math.max(sent, sentNow);
    pings += 1;
    if (withData) {
      strikes = 0;
      return;
    }
    if (now - last < options.minIntervalMs) strikes += 1;
    last = now;
    if (strikes <= MAX_PING_STRIKES) return;
    session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM, 0, Buffer.from("too_many_pings"));
    session.destroy();
  });
}

/** Enlarges the session's own window; Node offers this only once the session is connected. */
export function widen(session: Http2Session): void {
  session.setLocalWindowSize(SESSION_WINDOW_BYTES);
}
