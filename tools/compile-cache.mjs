/**
 * Keeps the compiled code of the modules that a test loads, in `.state/compile-cache`: `node --import=./tools/compile-cache.mjs FILE`. Half
 * of a test file's time is otherwise the removal of types from, and the compilation of, the modules that it imports. NODE_COMPILE_CACHE is
 * not used, because the programs that a test starts would inherit it and would not use the cache of the build.
 *
 * This file is JavaScript: types in it would be removed before there is a cache, and what removes them takes 55 ms of the processor to load.
 */
import { enableCompileCache } from "node:module";
import { join } from "node:path";

enableCompileCache(join(import.meta.dirname, "../.state/compile-cache"));
