/**
 * The states of a gRPC frontend's stream (docs/spec/tunnel.md#5.1), as data. One stream carries one connection.
 *
 * - `idle`: no dial yet. `dialing`, `open`: its connection. `ended`: its connection has ended, or its dial has failed.
 */
export type FrontendState = "idle" | "dialing" | "open" | "ended";

/** The packets of a client. `own`: with the id of the stream's dial or connection; `other`: with another id. */
export type FrontendEvent =
  | "DIAL_REQ"
  | "DIAL_CLS own"
  | "DIAL_CLS other"
  | "DATA own"
  | "DATA other"
  | "CLOSE_REQ own"
  | "CLOSE_REQ other"
  | "END"
  | "GONE";

/**
 * - `dial`: start the dial. `refuse-dial`: DIAL_RSP with an error, for a stream that has or had its connection.
 * - `cancel`: the dial is cancelled. `forward`: bytes to the agent. `close`: the connection ends after the bytes.
 * - `mismatch`: CLOSE_RSP for both ids, and the connection ends. `answer-data`, `answer-close`: CLOSE_RSP with an error.
 * - `finish`: the stream ends once the connection has ended completely. `abandon`: the client's stream is gone.
 */
export type FrontendAction =
  | "ignore"
  | "dial"
  | "refuse-dial"
  | "cancel"
  | "forward"
  | "close"
  | "mismatch"
  | "answer-data"
  | "answer-close"
  | "finish"
  | "abandon";

/** The state changes with the dial, its success and the end of the connection. Packets only cause actions. */
export const FRONTEND_TABLE: Readonly<Record<FrontendState, Readonly<Record<FrontendEvent, FrontendAction>>>> = {
  idle: {
    DIAL_REQ: "dial",
    "DIAL_CLS own": "ignore",
    "DIAL_CLS other": "ignore",
    "DATA own": "answer-data",
    "DATA other": "answer-data",
    "CLOSE_REQ own": "answer-close",
    "CLOSE_REQ other": "answer-close",
    END: "finish",
    GONE: "abandon",
  },
  dialing: {
    DIAL_REQ: "refuse-dial",
    "DIAL_CLS own": "cancel",
    "DIAL_CLS other": "ignore",
    "DATA own": "answer-close",
    "DATA other": "answer-close",
    "CLOSE_REQ own": "answer-close",
    "CLOSE_REQ other": "answer-close",
    END: "cancel",
    GONE: "abandon",
  },
  open: {
    DIAL_REQ: "refuse-dial",
    // The client sent DIAL_CLS before the success of its dial arrived.
    "DIAL_CLS own": "close",
    "DIAL_CLS other": "ignore",
    "DATA own": "forward",
    "DATA other": "mismatch",
    "CLOSE_REQ own": "close",
    "CLOSE_REQ other": "answer-close",
    END: "finish",
    GONE: "abandon",
  },
  ended: {
    DIAL_REQ: "refuse-dial",
    "DIAL_CLS own": "ignore",
    "DIAL_CLS other": "ignore",
    "DATA own": "ignore",
    "DATA other": "ignore",
    "CLOSE_REQ own": "ignore",
    "CLOSE_REQ other": "ignore",
    END: "finish",
    GONE: "abandon",
  },
};
