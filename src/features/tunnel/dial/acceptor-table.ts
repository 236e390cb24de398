/**
 * The states of a connection on the side that connects to the endpoint (docs/spec/tunnel.md#5.3, #5.6, #9.4), as data.
 *
 * - `dialing`: this side connects to the endpoint.
 * - `open`: bytes pass in both directions.
 * - `peer-done`: the peer has ended its sending (FIN), and so was the write side of the endpoint.
 * - `endpoint-done`: the endpoint has ended its sending; FIN is sent to the peer.
 * - `closing`: CLOSE_REQ has come, or both directions have ended. Received bytes are still written to the endpoint, then CLOSE_RSP
 *   is sent.
 * - `lingering`: CLOSE_RSP is sent. Received bytes are still written to the endpoint.
 * - `closed`: the connection has ended completely.
 */
export type AcceptorState = "dialing" | "open" | "peer-done" | "endpoint-done" | "closing" | "lingering" | "closed";

/**
 * - From the endpoint: `connected`, `failed` (the dial), `eof`, `gone` (reset, write error), `flushed` (all bytes for it were
 *   written).
 * - From the link: `cancelled` (DIAL_CLS), `peer-close` (CLOSE_REQ), `peer-fin`, `link-lost`, `slow` (the endpoint does not take
 *   bytes).
 * - From a timer: `stuck` (no progress in `closing` or `lingering`).
 */
export type AcceptorEvent =
  | "connected"
  | "failed"
  | "cancelled"
  | "peer-close"
  | "peer-fin"
  | "link-lost"
  | "slow"
  | "eof"
  | "gone"
  | "flushed"
  | "stuck";

/**
 * - `accept`: DIAL_RSP, and both directions start. `refuse`: DIAL_RSP with the error. `abort-dial`: a socket that still connects is
 *   destroyed.
 * - `send-fin`, `send-close`: FIN, CLOSE_RSP after the bytes that wait. `send-failure`: CLOSE_RSP with the error, also after them.
 * - `cut`: CLOSE_RSP with the error at once; the bytes that wait are dropped.
 * - `stop-reading`: the endpoint is read no more. `end-endpoint`: its write side is shut down after the bytes that wait.
 *   `drop-endpoint`: it is closed at once.
 */
export type AcceptorAction =
  | "accept"
  | "refuse"
  | "abort-dial"
  | "stop-reading"
  | "send-fin"
  | "send-close"
  | "send-failure"
  | "cut"
  | "end-endpoint"
  | "drop-endpoint";

export type AcceptorRow = readonly [next: AcceptorState, ...actions: readonly AcceptorAction[]];
export type AcceptorTable = Readonly<
  Record<Exclude<AcceptorState, "closed">, Readonly<Record<AcceptorEvent, AcceptorRow>>>
>;

/** The table for a link with or without `half-close/1`. It is total: every event in every state has a row. */
export function acceptorTable({ halfClose }: { readonly halfClose: boolean }): AcceptorTable {
  return halfClose ? WITH_HALF_CLOSE : WITHOUT_HALF_CLOSE;
}

function makeTable({ halfClose }: { readonly halfClose: boolean }): AcceptorTable {
  const eof: AcceptorRow = halfClose ? ["endpoint-done", "send-fin"] : ["lingering", "send-close", "end-endpoint"];
  const failed: AcceptorRow = ["closed", "send-failure", "drop-endpoint"];
  const slow: AcceptorRow = ["closed", "cut", "drop-endpoint"];
  /** Rows that the states of an established connection share. An event that cannot happen changes nothing. */
  const stay = (state: AcceptorState) =>
    ({
      connected: [state],
      failed: [state],
      cancelled: [state],
      "peer-fin": [state],
      eof: [state],
      flushed: [state],
      stuck: [state],
      "peer-close": ["closing", "stop-reading", "end-endpoint"],
      "link-lost": ["closed", "drop-endpoint"],
      gone: failed,
      slow,
    }) as const;
  return {
    dialing: {
      ...stay("dialing"),
      connected: ["open", "accept"],
      failed: ["closed", "refuse"],
      cancelled: ["closed", "abort-dial"],
      "peer-close": ["dialing"],
      "link-lost": ["closed", "abort-dial"],
      gone: ["dialing"],
      slow: ["dialing"],
    },
    open: { ...stay("open"), eof, "peer-fin": ["peer-done", "end-endpoint"] },
    "peer-done": {
      ...stay("peer-done"),
      eof: ["lingering", "send-close"],
      "peer-close": ["closing", "stop-reading"],
    },
    "endpoint-done": { ...stay("endpoint-done"), "peer-fin": ["closing", "end-endpoint"] },
    closing: {
      ...stay("closing"),
      "peer-close": ["closing"],
      flushed: ["closed", "send-close", "drop-endpoint"],
      stuck: failed,
    },
    lingering: {
      ...stay("lingering"),
      "peer-close": ["lingering"],
      gone: ["closed", "drop-endpoint"],
      slow,
      flushed: ["closed", "drop-endpoint"],
      stuck: ["closed", "drop-endpoint"],
    },
  };
}

const WITH_HALF_CLOSE = makeTable({ halfClose: true });
const WITHOUT_HALF_CLOSE = makeTable({ halfClose: false });
