/** Schemas of built-in kinds and CRDs as data, and the operations on them: validate, default, prune. */

export { loadBuiltinDefinitions } from "./builtin.ts";
export { applyDefaults } from "./defaults.ts";
export { OBJECT_META, prune } from "./prune.ts";
export { ANYTHING, type Definitions, itemSchema, memberSchema, REF_PREFIX, resolve, type Schema } from "./schema.ts";
export { invalidValue, requiredValue, validate } from "./validate.ts";
