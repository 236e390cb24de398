/** The suite's programs from source, for tests that need no build. */
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "../..");

/** Words for Node before those of a program: it takes the compiled code that test files keep, without which half of a start is the removal of types. */
export const FROM_SOURCE: readonly string[] = [
  `--import=${join(ROOT, "tools/compile-cache.mjs")}`,
  join(ROOT, "src/programs/start/start.ts"),
];
