import type { LoadOptions, NftChange } from "./types.ts";

/** Splits changes, and element lists inside them, into transactions of at most `size` elements; order is kept. */
export function* chunkChanges(changes: Iterable<NftChange>, size: number): Generator<NftChange[]> {
  let chunk: NftChange[] = [];
  let room = size;
  for (const change of changes) {
    if (change.kind !== "element") {
      chunk.push(change);
      continue;
    }
    for (let at = 0; at < change.elements.length; ) {
      const elements = change.elements.slice(at, at + room);
      chunk.push({ ...change, elements });
      at += elements.length;
      room -= elements.length;
      if (room > 0) continue;
      yield chunk;
      chunk = [];
      room = size;
    }
  }
  if (chunk.length > 0) yield chunk;
}

/** Implements {@link Nft.load} by `run`; waits for `turn` after each transaction. */
export async function loadInChunks(
  run: (chunk: readonly NftChange[]) => void,
  changes: Iterable<NftChange>,
  turn: () => Promise<void>,
  { chunkSize = 500, signal }: LoadOptions = {},
): Promise<void> {
  for (const chunk of chunkChanges(changes, chunkSize)) {
    signal?.throwIfAborted();
    run(chunk);
    await turn();
  }
}
