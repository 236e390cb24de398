/** The events of the local side of a connection. */
export interface LocalHandlers {
  onLocalData(pieces: readonly Uint8Array[]): void;
  /** The local side sends no more bytes; it can still receive. */
  onLocalEof(): void;
  /** The local side has ended; `error` is the reason, if it failed. Called once, and not after {@link LocalSide.destroy}. */
  onLocalGone(error: string | undefined): void;
}

/** The events of a local side that is not read through {@link LocalSide.start} yet. */
export type LocalWatcher = Pick<LocalHandlers, "onLocalEof" | "onLocalGone">;

/** The local side of a connection: a TCP socket, or the stream of a gRPC frontend. */
export interface LocalSide {
  /** Sets the handlers and starts reading. Called once. */
  start(handlers: LocalHandlers): void;
  /** Writes bytes, in order. `onWritten` is called once they have left this process; the bytes must not change before that. */
  write(pieces: readonly Uint8Array[], onWritten: () => void): void;
  /**
   * Ends writing after the bytes that were written; `error` is given if the other side failed. `onFlushed` is called once all bytes have
   * left. With an error the owner then calls {@link destroy}, so that the end does not look like one in order.
   */
  finish(error: string | undefined, onFlushed: () => void): void;
  /** Stops or continues reading. */
  pause(): void;
  resume(): void;
  /** Closes the local side at once. `reset`: with a reset, if the transport has one. */
  destroy(how: "close" | "reset"): void;
  /** True if a close is detected at once after the local side has ended its sending. If false, both look the same. */
  readonly detectsClose: boolean;
  /** A number that grows while bytes leave. A timer compares two values to detect a local side that is stuck. */
  readonly bytesWritten: number;
}

/** A local side that is read before its connection is open, so that its close is detected. */
export interface WatchedSide extends LocalSide {
  /**
   * Reads a bounded number of bytes until {@link LocalSide.start}, which passes them on. `early` are bytes that were read before; they come
   * first. Called at most once.
   */
  watch(watcher: LocalWatcher, early: readonly Uint8Array[]): void;
  /** Ends {@link watch} for good: there will be no connection. The bytes are dropped, and nobody reads further ones. */
  unwatch(): void;
}
