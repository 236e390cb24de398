import { BUILTIN_SCHEMAS } from "./builtin.gen.ts";
import { NEWER_SCHEMAS } from "./newer.ts";
import type { Schema } from "./schema.ts";

/** Parses the definitions of the built-in kinds; a new map for each server, which adds those of its CRDs. */
export function loadBuiltinDefinitions(): Map<string, Schema> {
  const older = BUILTIN_SCHEMAS.map((line) => JSON.parse(line) as [string, Schema]);
  return new Map([...older, ...Object.entries(structuredClone(NEWER_SCHEMAS))]);
}
