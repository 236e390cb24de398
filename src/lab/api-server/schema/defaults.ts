import { clone, isObject, type Json, type JsonObject, put } from "../object/json.ts";
import { type Definitions, itemSchema, memberSchema, resolve, type Schema } from "./schema.ts";

/** Fills in, in place, the `default` values of a structural schema (apiextensions structural defaulting). */
export function applyDefaults(object: JsonObject, schema: Schema, definitions: Definitions): void {
  fill(object, resolve(schema, definitions), definitions);
}

function fill(value: Json, schema: Schema, definitions: Definitions): void {
  if (Array.isArray(value)) {
    const items = itemSchema(schema, definitions);
    for (const item of value) fill(item, items, definitions);
    return;
  }
  if (!isObject(value)) return;
  for (const [key, property] of Object.entries(schema.properties ?? {})) {
    const resolved = resolve(property, definitions);
    // A default beside a reference applies to this place; a default in the definition applies to every place.
    const fallback = property.default ?? resolved.default;
    if (fallback === undefined) continue;
    const present = Object.hasOwn(value, key) ? value[key] : undefined;
    // A null that is not allowed means "use the default".
    if (present === undefined || (present === null && resolved.nullable !== true)) put(value, key, clone(fallback));
  }
  for (const key of Object.keys(value)) {
    const member = value[key];
    if (typeof member !== "object" || member === null) continue;
    const inner = memberSchema(schema, key, definitions);
    if (inner !== undefined) fill(member, inner, definitions);
  }
}
