import { constants, type Http2Session } from "node:http2";
import type { Clock } from "#base/clock";
import type { SessionSocket } from "./session-socket.ts";

/** Receive window of a stream: enough for a fast link with a round trip of a millisecond. */
export const STREAM_WINDOW_BYTES = 4 * 1024 * 1024;
/** Receive window of a session; a frontend's session has many streams. */
export const SESSION_WINDOW_BYTES = 16 * 1024 * 1024;
/** Memory that Node.js may use for a session, in MiB. Node.js's default of 10 MiB ends sessions with many streams. */
export const SESSION_MEMORY_MIB = 1024;

/** HTTP/2 settings of every session of the tunnel, both sides. */
export const SESSION_SETTINGS = {
  initialWindowSize: STREAM_WINDOW_BYTES,
  // Several packets of 64 KiB with their heads. Frames slightly smaller than a packet reduce the throughput by a tenth.
  maxFrameSize: 256 * 1024,
  enablePush: false,
} as const;

/** How long to wait for the answer to a PING, as in Go, in milliseconds. */
const PING_TIMEOUT_MS = 20_000;

/**
 * Sends a PING to a peer that was silent for `idleMs`, measured from its last byte. If no byte comes within 20 s of the PING, destroys the
 * session. Stops when the session ends.
 */
export function keepAlive(
  session: Http2Session,
  socket: Pick<SessionSocket, "whenRead">,
  options: { readonly idleMs: number; readonly clock: Clock },
): void {
  const { idleMs, clock } = options;
  if (idleMs <= 0) return;
  let lastReadAt = clock.monotonic();
  let isPingSent = false;
  let cancel = (): void => undefined;
  socket.whenRead(() => {
    lastReadAt = clock.monotonic();
    if (!isPingSent) return;
    isPingSent = false;
    cancel();
    cancel = clock.after(idleMs, check, { unref: true });
  });
  const check = (): void => {
    if (session.destroyed) return;
    const leftMs = lastReadAt + idleMs + (isPingSent ? PING_TIMEOUT_MS : 0) - clock.monotonic();
    if (leftMs <= 0 && isPingSent) {
      session.destroy();
      return;
    }
    if (leftMs <= 0) {
      isPingSent = true;
      // The answer needs no callback: it is read from the socket, which counts as a byte of the peer.
      if (!session.ping(() => undefined)) {
        session.destroy();
        return;
      }
    }
    cancel = clock.after(leftMs <= 0 ? PING_TIMEOUT_MS : leftMs, check, { unref: true });
  };
  check();
  session.once("close", () => cancel());
}

/** Strikes of a peer that pings too often, as in Go's enforcement policy; one more ends its session. */
const MAX_PING_STRIKES = 2;

/** A PING frame with its header. */
const PING_BYTES = 17;

/**
 * Ends sessions whose peer pings more often than `minIntervalMs` while no other bytes pass: GOAWAY ENHANCE_YOUR_CALM `too_many_pings`.
 * PINGs while either side sends data are not counted: Go peers measure the link with such PINGs.
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
  /** The maximum number of bytes written besides answers to PINGs. Answers that still wait make the estimate too low, never too high. */
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

/** Enlarges the receive window of the session. Node allows this only once the session is connected. */
export function widenWindow(session: Http2Session): void {
  session.setLocalWindowSize(SESSION_WINDOW_BYTES);
}
