/** Tables of `docs/reference` of programs that have no estate. */
import { type Section, section } from "#base/estate";

/** Files that a program writes or needs. */
export const files: (...rows: readonly (readonly string[])[]) => Section = section("Files", "path", "what");
/** A program's objects in the kernel, and their marks. */
export const kernel: (...rows: readonly (readonly string[])[]) => Section = section("In the kernel", "mark", "what");
