import { badRequest } from "../errors.ts";
import { equal, isObject, type Json, type JsonObject, own, put } from "../object/json.ts";
import { ANYTHING, type Definitions, itemSchema, memberSchema, resolve, type Schema } from "../schema/index.ts";

const DELETE_PRIMITIVES = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER = "$setElementOrder/";
const RETAIN_KEYS = "$retainKeys";
const DIRECTIVE = "$patch";

/**
 * Applies a strategic merge patch (apimachinery pkg/util/strategicpatch): lists whose schema has a merge key are merged by
 * it, with the directives `$patch`, `$retainKeys`, `$setElementOrder/` and `$deleteFromPrimitiveList/`. The inputs stay as
 * they are. Throws ApiError `BadRequest` for a malformed directive.
 */
export function applyStrategicPatch(
  target: JsonObject,
  patch: JsonObject,
  schema: Schema,
  definitions: Definitions,
): JsonObject {
  return mergeObject(target, patch, resolve(schema, definitions), definitions);
}

function mergeObject(target: JsonObject, patch: JsonObject, schema: Schema, definitions: Definitions): JsonObject {
  const directive = patch[DIRECTIVE];
  if (directive === "replace") return mergeObject({}, omit(patch, DIRECTIVE), schema, definitions);
  if (directive === "delete") return {};
  if (directive !== undefined && directive !== "merge")
    throw badRequest(`unknown patch type found: ${JSON.stringify(directive)}`);
  const result = retain(target, patch[RETAIN_KEYS]);
  for (const key of Object.keys(patch)) {
    const value = patch[key];
    if (value === undefined || key === DIRECTIVE || key === RETAIN_KEYS) continue;
    if (key.startsWith(DELETE_PRIMITIVES)) {
      deletePrimitives(result, key.slice(DELETE_PRIMITIVES.length), value);
    } else if (key.startsWith(ELEMENT_ORDER)) {
      const field = key.slice(ELEMENT_ORDER.length);
      // If the patch also has values for this list, the order is applied when they are merged.
      if (!Object.hasOwn(patch, field)) {
        const inner = memberSchema(schema, field, definitions) ?? ANYTHING;
        reorder(result, field, value, inner["x-kubernetes-patch-merge-key"]);
      }
    } else if (value === null) delete result[key];
    else {
      const inner = memberSchema(schema, key, definitions) ?? ANYTHING;
      put(result, key, mergeMember(own(result, key), value, inner, definitions));
      if (Object.hasOwn(patch, ELEMENT_ORDER + key)) {
        reorder(result, key, patch[ELEMENT_ORDER + key], inner["x-kubernetes-patch-merge-key"], own(target, key));
      }
    }
  }
  return result;
}

function omit(object: JsonObject, key: string): JsonObject {
  const { [key]: _dropped, ...rest } = object;
  return rest;
}

function retain(target: JsonObject, keys: Json | undefined): JsonObject {
  if (keys === undefined) return { ...target };
  if (!Array.isArray(keys)) throw badRequest("$retainKeys must be a list of field names");
  return Object.fromEntries(Object.entries(target).filter(([key]) => keys.includes(key)));
}

function mergeMember(current: Json | undefined, value: Json, schema: Schema, definitions: Definitions): Json {
  if (isObject(value)) return mergeObject(isObject(current) ? current : {}, value, schema, definitions);
  if (!Array.isArray(value)) return value;
  const merges = schema["x-kubernetes-patch-strategy"]?.includes("merge") === true;
  if (!merges) return value.filter((item) => !isDirective(item, "delete")).map((item) => strip(item));
  return mergeList(Array.isArray(current) ? current : [], value, schema, definitions);
}

function isDirective(item: Json, directive: string): boolean {
  return isObject(item) && item[DIRECTIVE] === directive;
}

/** A value that is inserted unchanged, without its directives. */
function strip(value: Json): Json {
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).filter(
      ([key]) =>
        key !== DIRECTIVE &&
        key !== RETAIN_KEYS &&
        !key.startsWith(ELEMENT_ORDER) &&
        !key.startsWith(DELETE_PRIMITIVES),
    ),
  );
}

function mergeList(current: readonly Json[], patch: readonly Json[], schema: Schema, definitions: Definitions): Json[] {
  const key = schema["x-kubernetes-patch-merge-key"];
  if (key === undefined) {
    const added = patch.filter((item) => !current.some((old) => equal(old, item)));
    return [...current, ...added.filter((item, index) => added.findIndex((other) => equal(other, item)) === index)];
  }
  if (patch.some((item) => isDirective(item, "replace"))) {
    return patch.filter((item) => !isDirective(item, "replace")).map((item) => strip(item));
  }
  const items = itemSchema(schema, definitions);
  let result = [...current];
  for (const item of patch) {
    if (!isObject(item)) throw badRequest(`cannot merge a list by ${key}: found an item that is not an object`);
    const id = item[key];
    if (id === undefined)
      throw badRequest(`map: ${JSON.stringify(item).slice(0, 200)} does not contain declared merge key: ${key}`);
    const same = (old: Json): boolean => isObject(old) && equal(old[key], id);
    if (item[DIRECTIVE] === "delete") {
      result = result.filter((old) => !same(old));
      continue;
    }
    const found = result.findIndex(same);
    const old = found < 0 ? undefined : result[found];
    const merged = mergeObject(isObject(old) ? old : {}, item, items, definitions);
    if (found < 0) result.push(merged);
    else result[found] = merged;
  }
  return result;
}

function deletePrimitives(result: JsonObject, field: string, values: Json): void {
  if (!Array.isArray(values)) throw badRequest(`${DELETE_PRIMITIVES}${field} must be a list`);
  const current = own(result, field);
  if (!Array.isArray(current)) return;
  put(
    result,
    field,
    current.filter((item) => !values.some((value) => equal(value, item))),
  );
}

/** Puts the items named by `order` in that order; other items stay after the item that they followed. */
function reorder(
  result: JsonObject,
  field: string,
  order: Json | undefined,
  key: string | undefined,
  before?: Json,
): void {
  if (!Array.isArray(order)) throw badRequest(`${ELEMENT_ORDER}${field} must be a list`);
  const current = own(result, field);
  if (!Array.isArray(current)) return;
  const idOf = (item: Json): string => JSON.stringify((key !== undefined && isObject(item) ? item[key] : item) ?? null);
  const rank = new Map(order.map((item, index) => [idOf(item), index] as const));
  const named = current.filter((item) => rank.has(idOf(item)));
  named.sort((a, b) => (rank.get(idOf(a)) ?? 0) - (rank.get(idOf(b)) ?? 0));
  const previous = Array.isArray(before) ? before.map(idOf) : current.map(idOf);
  const sorted = [...named];
  for (const item of current) {
    if (rank.has(idOf(item))) continue;
    const position = previous.indexOf(idOf(item));
    const predecessor = position > 0 ? previous[position - 1] : undefined;
    const after = position < 0 ? sorted.length - 1 : sorted.findIndex((other) => idOf(other) === predecessor);
    sorted.splice(after + 1, 0, item);
  }
  put(result, field, sorted);
}
