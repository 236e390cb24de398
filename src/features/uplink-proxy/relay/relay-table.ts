/**
 * The life of a relay (docs/spec/uplink-proxy.md#7, #6.4), as data.
 *
 * - `unanswered`: both directions are open, and no byte of the destination has come. The upstream can be replaced.
 * - `unanswered-client-ended`: the same after the client has ended its sending.
 * - `open`: both directions are open, and bytes of the destination have come.
 * - `client-ended`: the client has ended its sending; the destination has answered and may continue to send.
 * - `upstream-ended`: the destination has ended its sending; the client may continue to send.
 * - `both-ended`: both sides have ended their sending; the sockets close by themselves.
 * - `client-closed`, `upstream-closed`: one socket is closed, the other is not yet.
 * - `closed`: both sockets are closed.
 */
export type RelayState =
  | "unanswered"
  | "unanswered-client-ended"
  | "open"
  | "client-ended"
  | "upstream-ended"
  | "both-ended"
  | "client-closed"
  | "upstream-closed"
  | "closed";

/** The way a socket was closed: in order; lost before it had ended its sending; or lost after that. */
export type CloseKind = "closed" | "reset" | "gone";

/** `…-ended`: that side has ended its sending (FIN). The rest: its socket is closed, see {@link CloseKind}. */
export type RelayEvent = "first-byte" | "client-ended" | "upstream-ended" | `${"client" | "upstream"}-${CloseKind}`;

/**
 * - `report-first-byte`, `report-closed`: call the listener.
 * - `end-client`, `end-upstream`: FIN, behind the bytes that wait.
 * - `reset-client`, `reset-upstream`: RST at once.
 * - `flush-then-reset-upstream`: RST once all bytes of the client are handed to the kernel.
 * - `discard-client`: continue to read and drop the bytes; closing could take the answer from the client.
 */
export type RelayAction =
  | "report-first-byte"
  | "report-closed"
  | "end-client"
  | "end-upstream"
  | "reset-client"
  | "reset-upstream"
  | "flush-then-reset-upstream"
  | "discard-client";

export type RelayRow = readonly [next: RelayState, ...actions: readonly RelayAction[]];
type RelayRows = Readonly<Record<RelayEvent, RelayRow>>;

/** Rows that the states with two open sockets share. An event that cannot happen in a state leaves it. */
function withBothSockets(state: RelayState): RelayRows {
  return {
    "first-byte": [state],
    "client-ended": [state],
    "upstream-ended": [state],
    "client-closed": ["client-closed"],
    "client-reset": ["client-closed", "reset-upstream"],
    "client-gone": ["client-closed", "flush-then-reset-upstream"],
    "upstream-closed": ["upstream-closed"],
    "upstream-reset": ["upstream-closed", "reset-client"],
    "upstream-gone": ["upstream-closed", "discard-client"],
  };
}

const CLOSED: RelayRow = ["closed", "report-closed"];

/** Total: every event in every state has its row. */
export const RELAY_TABLE: Readonly<Record<Exclude<RelayState, "closed">, RelayRows>> = {
  unanswered: {
    ...withBothSockets("unanswered"),
    "first-byte": ["open", "report-first-byte"],
    "client-ended": ["unanswered-client-ended", "end-upstream"],
    "upstream-ended": ["upstream-ended", "end-client"],
  },
  "unanswered-client-ended": {
    ...withBothSockets("unanswered-client-ended"),
    "first-byte": ["client-ended", "report-first-byte"],
    "upstream-ended": ["both-ended", "end-client"],
  },
  open: {
    ...withBothSockets("open"),
    "client-ended": ["client-ended", "end-upstream"],
    "upstream-ended": ["upstream-ended", "end-client"],
  },
  "client-ended": { ...withBothSockets("client-ended"), "upstream-ended": ["both-ended", "end-client"] },
  "upstream-ended": { ...withBothSockets("upstream-ended"), "client-ended": ["both-ended", "end-upstream"] },
  "both-ended": withBothSockets("both-ended"),
  "client-closed": {
    ...withBothSockets("client-closed"),
    // Bytes of the client are still on their way to the destination, which may answer.
    "first-byte": ["client-closed", "report-first-byte"],
    "client-reset": ["client-closed"],
    "client-gone": ["client-closed"],
    "upstream-closed": CLOSED,
    "upstream-reset": CLOSED,
    "upstream-gone": CLOSED,
  },
  "upstream-closed": {
    ...withBothSockets("upstream-closed"),
    "client-closed": CLOSED,
    "client-reset": CLOSED,
    "client-gone": CLOSED,
    "upstream-reset": ["upstream-closed"],
    "upstream-gone": ["upstream-closed"],
  },
};

const REPLACEABLE: ReadonlySet<RelayState> = new Set(["unanswered", "unanswered-client-ended"]);
const OPEN: ReadonlySet<RelayState> = new Set(["unanswered", "open"]);

/** No byte of the destination has come, and its socket is open: another upstream may take its place. */
export function isReplaceable(state: RelayState): boolean {
  return REPLACEABLE.has(state);
}

/** Neither side has ended its sending. */
export function isOpenBothWays(state: RelayState): boolean {
  return OPEN.has(state);
}
