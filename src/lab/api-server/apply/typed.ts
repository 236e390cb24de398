import { equal, isObject, type Json, type JsonObject, own, put } from "../object/json.ts";
import { ANYTHING, type Definitions, itemSchema, memberSchema, type Schema } from "../schema/index.ts";
import { FieldSet } from "./field-set.ts";

/** The way a value is merged: member by member, item by item by a key, or as a whole. */
export type Shape = "struct" | "keyed-list" | "set" | "leaf";

/** The shape of a value according to its schema. */
export function shapeOf(value: Json | undefined, schema: Schema): Shape {
  if (isObject(value)) return schema["x-kubernetes-map-type"] === "atomic" ? "leaf" : "struct";
  if (!Array.isArray(value)) return "leaf";
  const type = schema["x-kubernetes-list-type"];
  if (type === "map") return value.every((item) => isObject(item)) ? "keyed-list" : "leaf";
  return type === "set" ? "set" : "leaf";
}

/** The path element of each item, in order; undefined if two items have the same element, so that they cannot be distinguished. */
export function elementsOf(
  list: readonly Json[],
  shape: "keyed-list" | "set",
  schema: Schema,
  definitions: Definitions,
): Map<string, Json> | undefined {
  const items = new Map<string, Json>();
  const keys = [...(schema["x-kubernetes-list-map-keys"] ?? [])].sort();
  const inner = itemSchema(schema, definitions);
  for (const item of list) {
    const element = shape === "set" ? `v:${JSON.stringify(item)}` : keyElement(item, keys, inner, definitions);
    if (items.has(element)) return undefined;
    items.set(element, item);
  }
  return items;
}

/** The path of the first list in which two items have the same key; undefined if there is none. */
export function repeatedIn(value: Json, schema: Schema, definitions: Definitions, path = ""): string | undefined {
  const shape = shapeOf(value, schema);
  if (shape === "struct" && isObject(value)) {
    for (const [key, member] of Object.entries(value)) {
      const inner = memberSchema(schema, key, definitions) ?? ANYTHING;
      const found = member === undefined ? undefined : repeatedIn(member, inner, definitions, `${path}.${key}`);
      if (found !== undefined) return found;
    }
  } else if ((shape === "keyed-list" || shape === "set") && Array.isArray(value)) {
    const items = elementsOf(value, shape, schema, definitions);
    if (items === undefined) return path;
    const inner = itemSchema(schema, definitions);
    for (const [index, item] of value.entries()) {
      const found = repeatedIn(item, inner, definitions, `${path}[${index}]`);
      if (found !== undefined) return found;
    }
  }
  return undefined;
}

function keyElement(item: Json, keys: readonly string[], schema: Schema, definitions: Definitions): string {
  const id: JsonObject = {};
  if (!isObject(item)) return `v:${JSON.stringify(item)}`;
  for (const key of keys) {
    // If the item lacks a key field, the default of the schema is used, for example `protocol` of a port.
    const value = own(item, key) ?? memberSchema(schema, key, definitions)?.default;
    if (value !== undefined) id[key] = value;
  }
  return `k:${JSON.stringify(id)}`;
}

/** The fields that a value sets: its leaves, its map entries and its list items. */
export function toFieldSet(value: Json, schema: Schema, definitions: Definitions): FieldSet {
  const set = new FieldSet();
  const shape = shapeOf(value, schema);
  if (shape === "struct" && isObject(value)) {
    for (const key of Object.keys(value)) {
      const member = value[key];
      if (member === undefined) continue;
      const known = schema.properties !== undefined && Object.hasOwn(schema.properties, key);
      const inner = memberSchema(schema, key, definitions) ?? ANYTHING;
      addTo(set, `f:${key}`, member, inner, definitions, !known);
    }
  } else if ((shape === "keyed-list" || shape === "set") && Array.isArray(value)) {
    const inner = itemSchema(schema, definitions);
    for (const [element, item] of elementsOf(value, shape, schema, definitions) ?? []) {
      addTo(set, element, item, inner, definitions, true);
    }
  }
  return set;
}

function addTo(
  set: FieldSet,
  element: string,
  value: Json,
  schema: Schema,
  definitions: Definitions,
  always: boolean,
): void {
  const child = toFieldSet(value, schema, definitions);
  set.insertChild(element, child);
  if (always || child.isEmpty()) set.insert(element);
}

/** The differences between two values. */
export interface Comparison {
  readonly added: FieldSet;
  readonly modified: FieldSet;
  readonly removed: FieldSet;
}

/** Compares member by member; lists by their schema. */
export function compare(before: Json, after: Json, schema: Schema, definitions: Definitions): Comparison {
  const result: Comparison = { added: new FieldSet(), modified: new FieldSet(), removed: new FieldSet() };
  const shape = shapeOf(after, schema);
  if (shape === "struct" && isObject(before) && isObject(after)) {
    const known = schema.properties;
    for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
      const always = known === undefined || !Object.hasOwn(known, key);
      const inner = memberSchema(schema, key, definitions) ?? ANYTHING;
      compareMember(result, `f:${key}`, own(before, key), own(after, key), inner, definitions, always);
    }
  } else if (shape === "keyed-list" || shape === "set") {
    const inner = itemSchema(schema, definitions);
    const old = elementsOf(Array.isArray(before) ? before : [], shape, schema, definitions) ?? new Map<string, Json>();
    const now = elementsOf(Array.isArray(after) ? after : [], shape, schema, definitions) ?? new Map<string, Json>();
    for (const element of new Set([...old.keys(), ...now.keys()])) {
      compareMember(result, element, old.get(element), now.get(element), inner, definitions, true);
    }
  }
  return result;
}

function compareMember(
  result: Comparison,
  element: string,
  before: Json | undefined,
  after: Json | undefined,
  schema: Schema,
  definitions: Definitions,
  always: boolean,
): void {
  if (before === after) return;
  if (before === undefined || after === undefined) {
    const value = before ?? after;
    if (value !== undefined)
      addTo(before === undefined ? result.added : result.removed, element, value, schema, definitions, always);
    return;
  }
  const shapes = [shapeOf(before, schema), shapeOf(after, schema)];
  if (shapes[0] !== shapes[1] || shapes[0] === "leaf") {
    if (!equal(before, after)) result.modified.insert(element);
    return;
  }
  const inner = compare(before, after, schema, definitions);
  result.added.insertChild(element, inner.added);
  result.modified.insertChild(element, inner.modified);
  result.removed.insertChild(element, inner.removed);
}

/** Merges `config` into `live`; fields that only `live` has stay. */
export function mergeTyped(live: Json | undefined, config: Json, schema: Schema, definitions: Definitions): Json {
  const shape = shapeOf(config, schema);
  if (shape === "struct" && isObject(live) && isObject(config)) {
    const result: JsonObject = { ...live };
    for (const key of Object.keys(config)) {
      const value = config[key];
      if (value !== undefined) {
        put(
          result,
          key,
          mergeTyped(own(live, key), value, memberSchema(schema, key, definitions) ?? ANYTHING, definitions),
        );
      }
    }
    return result;
  }
  if ((shape === "keyed-list" || shape === "set") && Array.isArray(live) && Array.isArray(config)) {
    const old = elementsOf(live, shape, schema, definitions);
    const now = elementsOf(config, shape, schema, definitions);
    if (old !== undefined && now !== undefined)
      return mergeItems(old, now, itemSchema(schema, definitions), definitions);
  }
  return config;
}

/** Items of the configuration in its order; items that only the live list has stay near their old place. */
function mergeItems(
  live: ReadonlyMap<string, Json>,
  config: ReadonlyMap<string, Json>,
  schema: Schema,
  definitions: Definitions,
): Json[] {
  const result: Json[] = [];
  const wanted = [...config];
  let next = 0;
  const emit = (): void => {
    const [element, item] = wanted[next] ?? ["", null];
    result.push(mergeTyped(live.get(element), item, schema, definitions));
    next += 1;
  };
  for (const [element, item] of live) {
    if (!config.has(element)) {
      result.push(item);
      continue;
    }
    while (next < wanted.length && !live.has(wanted[next]?.[0] ?? "")) emit();
    if (next < wanted.length) emit();
  }
  while (next < wanted.length) emit();
  return result;
}

/** A copy of `value` without the fields that are in `gone` and not in `kept`. */
export function removeFields(
  value: Json,
  gone: FieldSet,
  kept: FieldSet,
  schema: Schema,
  definitions: Definitions,
): Json {
  const shape = shapeOf(value, schema);
  const descend = (element: string, member: Json, inner: Schema): Json | undefined => {
    if (!gone.hasElement(element)) return member;
    if (!kept.hasElement(element)) return undefined;
    const below = gone.child(element);
    return below === undefined
      ? member
      : removeFields(member, below, kept.child(element) ?? new FieldSet(), inner, definitions);
  };
  if (shape === "struct" && isObject(value)) {
    const result: JsonObject = {};
    for (const key of Object.keys(value)) {
      const member = value[key];
      if (member === undefined) continue;
      const rest = descend(`f:${key}`, member, memberSchema(schema, key, definitions) ?? ANYTHING);
      if (rest !== undefined) put(result, key, rest);
    }
    return result;
  }
  if ((shape === "keyed-list" || shape === "set") && Array.isArray(value)) {
    const items = elementsOf(value, shape, schema, definitions);
    if (items === undefined) return value;
    const inner = itemSchema(schema, definitions);
    const keys = schema["x-kubernetes-list-map-keys"] ?? [];
    return Array.from(items, ([element, item]) => withKeys(descend(element, item, inner), item, keys)).filter(
      (item) => item !== undefined,
    );
  }
  return value;
}

/** An item that stays keeps its key fields, regardless of their owner: without them it would be another item. */
function withKeys(rest: Json | undefined, item: Json, keys: readonly string[]): Json | undefined {
  if (!isObject(rest) || !isObject(item) || keys.every((key) => rest[key] === item[key])) return rest;
  const own = Object.entries(item).filter(([key]) => keys.includes(key));
  return { ...Object.fromEntries(own), ...rest };
}
