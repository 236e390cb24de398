import type { ByteStream } from "#base/byte-stream";
import type { CloseKind } from "./relay-table.ts";

/** The way in which a stream was closed, for the table of the relay. */
export function closeKindOf({ readableEnded, writableFinished, errored }: ByteStream): CloseKind {
  if (!readableEnded) return "reset";
  return writableFinished && errored === undefined ? "closed" : "gone";
}

/** Acts once all written bytes and the end are handed to the kernel. */
export function whenFlushed(stream: ByteStream, act: () => void): void {
  if (stream.writableFinished) act();
  else stream.once("finish", act);
}
