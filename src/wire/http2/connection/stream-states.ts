import { Http2Code } from "./frames.ts";

/**
 * The states of a stream (RFC 9113 section 5.1), as data. The two reserved states do not exist: push is switched off, and a PUSH_PROMISE ends
 * the connection.
 */
export type StreamState = "idle" | "open" | "half-closed-local" | "half-closed-remote" | "closed";

/** Frames. HEADERS and DATA with END_STREAM are two events, the second of which is the end. */
export type StreamEvent =
  | "send-headers"
  | "send-data"
  | "send-end"
  | "send-reset"
  | "receive-headers"
  | "receive-data"
  | "receive-end"
  | "receive-reset"
  | "receive-window-update";

/**
 * The way in which a frame is answered that the state does not allow. `connection` is an error of the connection, `stream` is one of the stream. `ignored`:
 * the frame is lawful, or was when it was sent, and changes nothing. `bug`: this side must not send it.
 */
export type StreamVerdict =
  | { readonly kind: "connection" | "stream"; readonly code: number }
  | { readonly kind: "ignored" | "bug" };

export type StreamRow = readonly [next: StreamState, verdict?: StreamVerdict];
export type StreamTable = Readonly<Record<StreamState, Readonly<Record<StreamEvent, StreamRow>>>>;

const PROTOCOL: StreamVerdict = { kind: "connection", code: Http2Code.protocolError };
const CLOSED: StreamVerdict = { kind: "stream", code: Http2Code.streamClosed };
const IGNORED: StreamVerdict = { kind: "ignored" };
const BUG: StreamVerdict = { kind: "bug" };

/** Total: each event has a row in each state. */
export const STREAM_TABLE: StreamTable = {
  idle: {
    "send-headers": ["open"],
    "send-data": ["idle", BUG],
    "send-end": ["idle", BUG],
    "send-reset": ["idle", BUG],
    "receive-headers": ["open"],
    "receive-data": ["idle", PROTOCOL],
    "receive-end": ["idle", PROTOCOL],
    "receive-reset": ["idle", PROTOCOL],
    "receive-window-update": ["idle", PROTOCOL],
  },
  open: {
    "send-headers": ["open"],
    "send-data": ["open"],
    "send-end": ["half-closed-local"],
    "send-reset": ["closed"],
    "receive-headers": ["open"],
    "receive-data": ["open"],
    "receive-end": ["half-closed-remote"],
    "receive-reset": ["closed"],
    "receive-window-update": ["open"],
  },
  "half-closed-local": {
    "send-headers": ["half-closed-local", BUG],
    "send-data": ["half-closed-local", BUG],
    "send-end": ["half-closed-local", BUG],
    "send-reset": ["closed"],
    "receive-headers": ["half-closed-local"],
    "receive-data": ["half-closed-local"],
    "receive-end": ["closed"],
    "receive-reset": ["closed"],
    "receive-window-update": ["half-closed-local"],
  },
  "half-closed-remote": {
    "send-headers": ["half-closed-remote"],
    "send-data": ["half-closed-remote"],
    "send-end": ["closed"],
    "send-reset": ["closed"],
    "receive-headers": ["half-closed-remote", CLOSED],
    "receive-data": ["half-closed-remote", CLOSED],
    "receive-end": ["half-closed-remote", CLOSED],
    "receive-reset": ["closed"],
    "receive-window-update": ["half-closed-remote"],
  },
  closed: {
    "send-headers": ["closed", BUG],
    "send-data": ["closed", BUG],
    "send-end": ["closed", BUG],
    "send-reset": ["closed", BUG],
    "receive-headers": ["closed", CLOSED],
    "receive-data": ["closed", CLOSED],
    "receive-end": ["closed", CLOSED],
    "receive-reset": ["closed", IGNORED],
    "receive-window-update": ["closed", IGNORED],
  },
};
