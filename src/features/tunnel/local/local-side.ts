/** The events of the local side of a connection. */
export interface LocalHandlers {
  onData(pieces: readonly Uint8Array[]): void;
  /** It sends no more; it can still receive. */
  onEof(): void;
  /** It is gone; `error` is the reason, if there is one. Called once, and not after {@link LocalSide.destroy}. */
  onGone(error: string | undefined): void;
}

/** The local side of a connection: a TCP socket, or the stream of a gRPC frontend. */
export interface LocalSide {
  /** Sets the handlers and starts reading. Called once. */
  start(handlers: LocalHandlers): void;
  /** Writes bytes, in order. `onWritten` is called once they have left this process; they must not change before. */
  write(pieces: readonly Uint8Array[], onWritten: () => void): void;
  /** Ends writing after what was written; `error` if the other side failed. `onFlushed` is called once all of it has left. */
  finish(error: string | undefined, onFlushed: () => void): void;
  /** Stops or continues reading. */
  pause(): void;
  resume(): void;
  /** Closes at once. `reset`: with a reset, where the transport has one. */
  destroy(how: "close" | "reset"): void;
  /** A local side that has ended its sending and then closes is detected at once. Otherwise the two look alike. */
  readonly detectsClose: boolean;
  /** Grows while bytes leave. A timer compares two values to detect a local side that is stuck. */
  readonly bytesWritten: number;
}
