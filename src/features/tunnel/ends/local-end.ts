/** What the local side of a connection tells. */
export interface LocalHandlers {
  onData(pieces: readonly Uint8Array[]): void;
  /** It sends no more; it can still receive. */
  onEof(): void;
  /** It is gone, with the reason where there is one. Called once, not after {@link LocalEnd.destroy}. */
  onGone(error: string | undefined): void;
}

/** The local side of a connection: a TCP socket, or the stream of a gRPC frontend. */
export interface LocalEnd {
  /** Sets who is told; nothing is read before. Called once. */
  start(handlers: LocalHandlers): void;
  /** Bytes for it, in order; `onWritten` once they have left this process. They must not change before. */
  write(pieces: readonly Uint8Array[], onWritten: () => void): void;
  /** After what was written nothing more comes; `error` when the other side failed. `onFlushed` once all is out. */
  finish(error: string | undefined, onFlushed: () => void): void;
  /** Stops or continues reading. */
  pause(): void;
  resume(): void;
  /** Ends at once. `reset` lets the other side see that it was no orderly end, where the transport can say so. */
  destroy(how: "close" | "reset"): void;
  /** It is noticed at once when one that has ended its sending goes altogether; else the two look alike. */
  readonly tellsLeaving: boolean;
  /** Grows while bytes leave: how a timer tells slow from stuck. */
  readonly bytesWritten: number;
}
