/**
 * Sources of the project in a process of their own.
 *
 * Owns: how they are started. Does not know: what they do.
 *
 * ```ts
 * const [file, args] = bed.inside(...SOURCE_NODE, script, path);
 * ```
 */
import { join } from "node:path";

/** Node with the cache of compiled modules that test files have too; without it a start removes types and compiles anew. */
export const SOURCE_NODE = [
  process.execPath,
  `--import=${join(import.meta.dirname, "../../tools/compile-cache.mjs")}`,
] as const;
