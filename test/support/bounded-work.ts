/**
 * Work of a parser on its worst input: a few milliseconds where it grows with the input, hours where it grows with its square or cube. A test
 * must not hang for hours.
 *
 * Owns: {@link boundedWork}. Does not know: the parser.
 *
 * ```ts
 * assert.ok(Number.isNaN(boundedWork(() => parseQuantity(`${"0".repeat(65_536)}\n`))));
 * ```
 */
import { runInNewContext } from "node:vm";

/** Far more than any machine needs for work that is linear, and far less than for one that is not. */
const LIMIT_MS = 10_000;

/** The result of synchronous work, which is ended when it does not come to an end, also in the middle of a regular expression. */
export function boundedWork<T>(work: () => T): T {
  return runInNewContext("work()", { work }, { timeout: LIMIT_MS }) as T;
}
