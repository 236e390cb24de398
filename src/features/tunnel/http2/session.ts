import type { Header, SpentLimits } from "#wire/http2";
import type { WindowPool } from "../mux/window-pool.ts";
import type { Transport, TransportPeer } from "./transport.ts";

/** Settings of a session that its user chooses. */
export interface SessionSettings {
  /** Receive window of a stream, in bytes: the most that is held for a stream that is not read. */
  readonly streamWindowBytes: number;
  /**
   * The window with which a session begins; it grows up to {@link streamWindowBytes} while the link needs that. Default: `streamWindowBytes`.
   */
  readonly firstWindowBytes?: number;
  /** Above this, a window grows only as far as {@link windows} has room. Default: no bound. */
  readonly nearWindowBytes?: number;
  readonly windows?: WindowPool | undefined;
  /** Maximum of streams that the peer may have open at once. */
  readonly maxConcurrentStreams?: number;
  /** While users hold more received bytes, a session waits for them with all its streams. Default: twice the session's window. */
  readonly maxUnconsumedBytes?: number;
  /** Maximum of streams that the peer may reset in a second; the burst is ten times this number. Default: 33. */
  readonly resetsPerSecond?: number;
  /** Returns the part of its limits of floods that a peer has used up on connections before. Default: nothing. */
  readonly spentBy?: ((peer: TransportPeer) => SpentLimits) | undefined;
}

/** The way in which a stream has ended. */
export type StreamEnd =
  /** Both sides have ended it in order. */
  | { readonly kind: "done" }
  /** The peer, or this side, has reset it. */
  | { readonly kind: "reset" }
  /** The connection was lost. `reason` is the error's text, if there was an error. */
  | { readonly kind: "lost"; readonly reason: string | undefined };

/** The events of a stream. None is called after {@link CallEvents.onClosed}. */
export interface CallEvents {
  /** Bytes of the peer in the order of the wire. The callee may keep them. */
  onData(chunk: Uint8Array): void;
  /** The peer's trailers. */
  onTrailers(trailers: readonly Header[]): void;
  /** The peer has ended its sending side. */
  onEnd(): void;
  /** Called once. */
  onClosed(end: StreamEnd): void;
}

/** One stream of a session. */
export interface Call {
  /** The session's round trip without load, in milliseconds; `undefined` if it was not measured: only where windows can grow it is. */
  readonly roundTripMs?: number | undefined;
  /** Sets the receiver of the events, and starts the flow of data. Called at most once. */
  start(events: CallEvents): void;
  /**
   * Queues bytes, which must not change, behind those that were queued before. `onTaken` is called, later and in order, when few bytes of the
   * session are left for the kernel; never, if the stream or the connection is lost before. Returns false, and queues nothing, if this side
   * has ended.
   */
  send(pieces: readonly Uint8Array[], bytes: number, onTaken: () => void): boolean;
  /** Ends this side after all bytes that were queued. On a server, `trailers` follow them. Only the first call counts. */
  end(trailers?: readonly Header[]): void;
  /** Ends the stream at once with RST_STREAM CANCEL. */
  reset(): void;
  /** Stops and starts `onData`. The peer may send as much as the stream's window meanwhile. */
  pause(): void;
  resume(): void;
  /** True once the stream has ended. */
  readonly isGone: boolean;
  /** Calls `callback` once, when the stream ends, whichever side ends it; it needs no {@link start}. */
  whenGone(callback: (end: StreamEnd) => void): void;
}

/** A stream that the peer has opened. */
export interface IncomingCall extends Call {
  readonly session: Session;
  /** Sends response headers. `isEnd`: and ends the stream in order, without waiting for the end of the peer's side. */
  respond(headers: readonly Header[], options: { readonly isEnd: boolean }): void;
}

/** One HTTP/2 connection. */
export interface Session {
  readonly transport: Pick<Transport, "peer">;
  readonly isDestroyed: boolean;
  /** Bytes of HTTP/2, without TLS. 0 once the session has ended. */
  readonly bytesRead: number;
  readonly bytesWritten: number;
  /** The part of its limits of floods that the peer has used up. */
  readonly spent: SpentLimits;
  /** Each sets one callback. */
  whenRead(callback: () => void): void;
  /** The peer has sent a PING, which is answered. */
  whenPing(callback: () => void): void;
  whenClosed(callback: () => void): void;
  /** The connection ends for a fault of the peer in HTTP/2: the name of the code, and a text. `isFlood`: it has sent more than a limit allows. */
  whenFailed(callback: (why: string, isFlood: boolean) => void): void;
  /** Sends a PING. Returns false if too many wait for their answers. */
  ping(): boolean;
  /** Sends GOAWAY NO_ERROR: the peer is to open no further stream here, and its streams go on (RFC 9113 section 6.8). */
  announceLeaving(): void;
  /** Sends GOAWAY with a text, and closes the connection. `code`: of RFC 9113 section 7; default ENHANCE_YOUR_CALM. */
  expel(text: string, code?: number): void;
  /** Closes the connection at once. */
  destroy(): void;
}

/** A session that opens streams. */
export interface ClientSession extends Session {
  /** Opens a stream. `onResponse` is called with the response headers, unless the stream ends before. */
  request(headers: readonly Header[], onResponse: (headers: readonly Header[]) => void): Call;
  /** Calls `callback` once, at the server's GOAWAY. */
  whenLeaving(callback: () => void): void;
}

/** The first value of a header. */
export function headerOf(headers: readonly Header[], name: string): string | undefined {
  return headers.find(([one]) => one === name)?.[1];
}
