/** A group of files for {@link interleaved}: `until` is the part of the whole queue, from 0 to 1, over which they are spread. */
export interface Share {
  readonly files: readonly string[];
  readonly until: number;
}

/**
 * Makes one queue of groups of files: each group keeps its order and is spread evenly from the beginning of the queue to its `until`. So files that mostly wait run
 * beside files that mostly compute, and the processors are in use from the first file to the last. Pure.
 */
export function interleaved(shares: readonly Share[]): readonly string[] {
  const placed = shares.flatMap(({ files, until }, group) =>
    files.map((file, at) => ({ file, group, place: ((at + 0.5) / files.length) * until })),
  );
  return placed.sort((one, other) => one.place - other.place || one.group - other.group).map(({ file }) => file);
}
