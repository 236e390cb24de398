/**
 * The states of a connection on the side that dials (docs/spec/tunnel.md#5.1, #5.6, #6, #9.4), as data.
 *
 * - `dialing`: DIAL_REQ is sent.
 * - `superseded`: the same, but the local side has got its connection over another link.
 * - `open`: bytes pass in both directions.
 * - `local-done`: the local side has ended its sending; FIN is sent.
 * - `local-done-quietly`: the same without FIN: the link has no half-close, and CLOSE_REQ would end the other direction too.
 * - `peer-done`: the peer has ended its sending (FIN).
 * - `waiting`: CLOSE_REQ is sent, or both directions have ended. The peer's bytes are delivered until its CLOSE_RSP comes.
 * - `finishing`: the connection has ended on the link. Received bytes are still delivered to the local side.
 * - `closed`: the connection has ended completely.
 */
export type DiallerState =
  | "dialing"
  | "superseded"
  | "open"
  | "local-done"
  | "local-done-quietly"
  | "peer-done"
  | "waiting"
  | "finishing"
  | "closed";

/**
 * - From the link: `accepted` (DIAL_RSP), `refused` (DIAL_RSP with an error), `aborted` (DIAL_CLS), `peer-fin`, `peer-closed`
 *   (CLOSE_RSP), `link-lost`, `slow` (the local side does not take bytes).
 * - From the local side: `local-eof`, `local-close` (it closes the connection after its sent bytes), `local-gone`,
 *   `flushed` (all bytes for it were written), `superseded` (it has got its connection over another link).
 * - From timers: `dial-timeout`, `idle` (no byte for the half-close timeout after the local side has ended its sending), `stuck`
 *   (no progress in `waiting` or `finishing`).
 */
export type DiallerEvent =
  | "accepted"
  | "refused"
  | "aborted"
  | "dial-timeout"
  | "link-lost"
  | "peer-fin"
  | "peer-closed"
  | "slow"
  | "local-eof"
  | "local-close"
  | "local-gone"
  | "flushed"
  | "superseded"
  | "idle"
  | "stuck";

/**
 * - `announce`: the observer is notified that the connection is open. `fail`: it is notified why the dial failed.
 * - `cancel-dial`: DIAL_CLS. `send-fin`, `send-close`: FIN, CLOSE_REQ after the bytes that wait. `abandon`: CLOSE_REQ at once; the
 *   bytes that wait are dropped, and later bytes of the peer discarded. `leave`: CLOSE_REQ after the bytes that wait; later bytes
 *   of the peer are discarded.
 * - `end-local`: the write side of the local side is shut down after the bytes that wait. `drop-local`: it is closed at once.
 */
export type DiallerAction =
  | "announce"
  | "fail"
  | "cancel-dial"
  | "send-fin"
  | "send-close"
  | "abandon"
  | "leave"
  | "end-local"
  | "drop-local";

/** Abilities of the local side and the link, which decide a few rows. */
export interface DiallerTraits {
  /** True if the link has `half-close/1`. */
  readonly linkHalfClose: boolean;
  /** True if the local side, such as a socket, can end each direction by itself. */
  readonly localHalfClose: boolean;
}

export type DiallerRow = readonly [next: DiallerState, ...actions: readonly DiallerAction[]];
export type DiallerTable = Readonly<
  Record<Exclude<DiallerState, "closed">, Readonly<Record<DiallerEvent, DiallerRow>>>
>;

/** The table for connections with these traits. It is total: every event in every state has a row. */
export function diallerTable({ linkHalfClose, localHalfClose }: DiallerTraits): DiallerTable {
  return TABLES[`${linkHalfClose}-${localHalfClose}`];
}

function makeTable({ linkHalfClose, localHalfClose }: DiallerTraits): DiallerTable {
  const eof: DiallerRow = linkHalfClose ? ["local-done", "send-fin"] : ["local-done-quietly"];
  const fin: DiallerRow = localHalfClose ? ["peer-done", "end-local"] : ["waiting", "send-close"];
  const ended: DiallerRow = ["finishing", "end-local"];
  const lostLocal: DiallerRow = ["closed", "abandon"];
  /** The local side had ended its sending before it closed. */
  const left: DiallerRow = ["closed", "leave"];
  const idle: DiallerRow = ["waiting", "send-close"];
  const slow: DiallerRow = ["closed", "abandon", "drop-local"];
  /** Rows that the states of an established connection share. An event that cannot happen changes nothing. */
  const stay = (state: DiallerState) =>
    ({
      accepted: [state],
      refused: [state],
      aborted: [state],
      "dial-timeout": [state],
      flushed: [state],
      superseded: [state],
      idle: [state],
      stuck: [state],
      "peer-fin": [state],
      "local-eof": [state],
      "link-lost": ended,
      "peer-closed": ended,
      "local-close": ["waiting", "send-close"],
      "local-gone": lostLocal,
      slow,
    }) as const;
  return {
    dialing: {
      ...stay("dialing"),
      accepted: ["open", "announce"],
      refused: ["closed", "fail"],
      aborted: ["closed", "fail"],
      "dial-timeout": ["closed", "cancel-dial", "fail"],
      "link-lost": ["closed", "fail"],
      "peer-closed": ["dialing"],
      slow: ["dialing"],
      "local-eof": ["closed", "cancel-dial", "drop-local"],
      "local-close": ["closed", "cancel-dial", "drop-local"],
      "local-gone": ["closed", "cancel-dial"],
      superseded: ["superseded"],
    },
    superseded: {
      ...stay("superseded"),
      accepted: ["closed", "abandon"],
      refused: ["closed"],
      aborted: ["closed"],
      "link-lost": ["closed"],
      "peer-closed": ["superseded"],
      slow: ["superseded"],
      "local-close": ["superseded"],
      // Its owner waits no longer.
      "local-gone": ["closed", "cancel-dial"],
    },
    open: { ...stay("open"), "local-eof": eof, "peer-fin": fin },
    "local-done": { ...stay("local-done"), "peer-fin": ["waiting", "end-local"], "local-gone": left, idle },
    "local-done-quietly": { ...stay("local-done-quietly"), "local-gone": left, idle },
    "peer-done": {
      ...stay("peer-done"),
      "local-eof": ["waiting", "send-fin"],
      "peer-closed": ["finishing"],
      "link-lost": ["finishing"],
    },
    waiting: {
      ...stay("waiting"),
      "local-close": ["waiting"],
      "local-gone": left,
      "peer-fin": ["waiting", "end-local"],
      stuck: slow,
    },
    finishing: {
      ...stay("finishing"),
      "local-close": ["finishing"],
      "peer-closed": ["finishing"],
      "link-lost": ["finishing"],
      "local-gone": ["closed"],
      flushed: ["closed", "drop-local"],
      slow: ["closed", "drop-local"],
      stuck: ["closed", "drop-local"],
    },
  };
}

const TABLES = {
  "true-true": makeTable({ linkHalfClose: true, localHalfClose: true }),
  "true-false": makeTable({ linkHalfClose: true, localHalfClose: false }),
  "false-true": makeTable({ linkHalfClose: false, localHalfClose: true }),
  "false-false": makeTable({ linkHalfClose: false, localHalfClose: false }),
} as const;
