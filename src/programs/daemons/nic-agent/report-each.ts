import type { AbortOptions } from "#base/async";
import { ExpectedError } from "#base/errors";

/**
 * Reports each object; `report` resolves to true if it has written something. One that fails does not hold up the others: the first failure is thrown after all were
 * tried. Resolves to the number of writes.
 */
export async function reportEach<T>(
  objects: Iterable<T>,
  report: (object: T) => Promise<boolean | undefined>,
  { signal }: AbortOptions,
): Promise<number> {
  let writes = 0;
  let first: ExpectedError | undefined;
  for (const object of objects) {
    try {
      if ((await report(object)) === true) writes += 1;
    } catch (error) {
      if (signal?.aborted === true || !(error instanceof ExpectedError)) throw error;
      first ??= error;
    }
  }
  if (first !== undefined) throw first;
  return writes;
}
