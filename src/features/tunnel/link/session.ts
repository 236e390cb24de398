import type { Clock } from "#base/clock";
import type { Session } from "../http2/session.ts";

/** How long to wait for the answer to a PING, as in Go, in milliseconds. */
const PING_TIMEOUT_MS = 20_000;

/**
 * Sends a PING to a peer that was silent for `idleMs`, measured from its last byte. If no byte comes within 20 s of the PING, destroys the
 * session. Stops when the session ends.
 */
export function keepAlive(session: Session, options: { readonly idleMs: number; readonly clock: Clock }): void {
  const { idleMs, clock } = options;
  if (idleMs <= 0) return;
  let lastReadAt = clock.monotonic();
  let isPingSent = false;
  let cancel = (): void => undefined;
  session.whenRead(() => {
    lastReadAt = clock.monotonic();
    if (!isPingSent) return;
    isPingSent = false;
    cancel();
    cancel = clock.after(idleMs, check, { unref: true });
  });
  const check = (): void => {
    if (session.isDestroyed) return;
    const leftMs = lastReadAt + idleMs + (isPingSent ? PING_TIMEOUT_MS : 0) - clock.monotonic();
    if (leftMs <= 0 && isPingSent) {
      session.destroy();
      return;
    }
    if (leftMs <= 0) {
      isPingSent = true;
      // The answer is read from the socket, which counts as a byte of the peer.
      if (!session.ping()) {
        session.destroy();
        return;
      }
    }
    cancel = clock.after(leftMs <= 0 ? PING_TIMEOUT_MS : leftMs, check, { unref: true });
  };
  check();
  session.whenClosed(() => cancel());
}

/** Strikes of a peer that pings too often, as in Go's enforcement policy; one more ends its session. */
const MAX_PING_STRIKES = 2;

/** A PING frame with its header. */
const PING_BYTES = 17;

/**
 * Ends sessions whose peer pings more often than `minIntervalMs` while no other bytes pass: GOAWAY ENHANCE_YOUR_CALM `too_many_pings`.
 * PINGs while either side sends data are not counted: Go peers measure the link with such PINGs.
 */
export function limitPings(session: Session, options: { readonly minIntervalMs: number; readonly clock: Clock }): void {
  let strikes = 0;
  let last = Number.NEGATIVE_INFINITY;
  let pings = 0;
  let read = session.bytesRead;
  /** The maximum number of bytes written besides answers to PINGs. Answers that still wait make the estimate too low, never too high. */
  let sent = session.bytesWritten;
  session.whenPing(() => {
    const now = options.clock.monotonic();
    const [readNow, sentNow] = [session.bytesRead, session.bytesWritten - PING_BYTES * pings];
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
    if (strikes > MAX_PING_STRIKES) session.expel("too_many_pings");
  });
}
