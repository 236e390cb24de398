/**
 * The input of programs that read manifests: a file, or standard input.
 *
 * Owns: the limit of its size. Does not know: what is in it.
 *
 * ```ts
 * const text = await readInput("-");
 * ```
 */
export { readInput } from "./input.ts";
