import { isObject, type Json, type JsonObject } from "../object/json.ts";
import { ANYTHING, type Definitions, itemSchema, memberSchema, REF_PREFIX, resolve, type Schema } from "./schema.ts";

/** The definition of every object's metadata. */
export const OBJECT_META: Schema = { $ref: `${REF_PREFIX}io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta` };

/** Options of {@link prune}. */
export interface PruneOptions {
  readonly definitions: Definitions;
  /** Drops all null members, as Go's decoder does for built-in types. Default: only those for which the schema does not allow null. */
  readonly dropNulls: boolean;
}

/** Removes, in place, members that the schema does not know; returns their paths, such as `spec.foo[0].bar`. */
export function prune(object: JsonObject, schema: Schema, options: PruneOptions): string[] {
  const unknown: string[] = [];
  pruneValue(object, resolve(schema, options.definitions), "", options, unknown);
  return unknown;
}

function pruneValue(value: Json, schema: Schema, path: string, options: PruneOptions, unknown: string[]): void {
  if (Array.isArray(value)) {
    const items = itemSchema(schema, options.definitions);
    for (const [index, item] of value.entries()) pruneValue(item, items, `${path}[${index}]`, options, unknown);
    return;
  }
  if (!isObject(value)) return;
  const keepAll = schema["x-kubernetes-preserve-unknown-fields"] === true || isOpaque(schema);
  const embedded = schema["x-kubernetes-embedded-resource"] === true;
  for (const key of Object.keys(value)) {
    const member = value[key];
    if (embedded && (key === "apiVersion" || key === "kind")) continue;
    const inner =
      embedded && key === "metadata"
        ? resolve(OBJECT_META, options.definitions)
        : (memberSchema(schema, key, options.definitions) ?? (keepAll ? ANYTHING : undefined));
    const here = path === "" ? key : `${path}.${key}`;
    if (inner === undefined) {
      delete value[key];
      unknown.push(here);
    } else if (member === undefined || (member === null && dropsNull(inner, options))) delete value[key];
    else if (inner !== ANYTHING) pruneValue(member, inner, here, options, unknown);
  }
}

/** Drops a null that is not allowed, before defaults are set. */
function dropsNull(schema: Schema, { dropNulls }: PruneOptions): boolean {
  return schema !== ANYTHING && (dropNulls || schema.nullable !== true);
}

/** A schema without members: `{}` or `type: object` alone prunes them, as structural schemas do; a scalar has none. */
function isOpaque(schema: Schema): boolean {
  return schema.type !== undefined && schema.type !== "object";
}
