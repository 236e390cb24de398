/** JSON as data. Stored objects are shared: treat every value as read-only and build changed copies. */
export type Json = null | boolean | number | string | Json[] | JsonObject;
export interface JsonObject {
  [key: string]: Json | undefined;
}

/** True for a JSON object (not null, not an array). */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The value as an object; an empty object for any other value. */
export function asObject(value: unknown): JsonObject {
  return isObject(value) ? value : {};
}

/** The value as an array; an empty array for any other value. */
export function asArray(value: Json | undefined): Json[] {
  return Array.isArray(value) ? value : [];
}

/** The value as a string; empty for any other value. */
export function asString(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}

/** Reads only own properties, so that `constructor` and `__proto__` are never found on a plain object. */
export function own(object: JsonObject, key: string): Json | undefined {
  return Object.hasOwn(object, key) ? object[key] : undefined;
}

/** Follows object keys; undefined as soon as one is absent. */
export function at(value: Json | undefined, ...path: readonly string[]): Json | undefined {
  let here = value;
  for (const key of path) {
    if (!isObject(here)) return undefined;
    here = own(here, key);
  }
  return here;
}

/** Sets a key even when it is `__proto__`, which plain assignment would turn into the prototype. */
export function put(object: JsonObject, key: string, value: Json): void {
  if (key === "__proto__")
    Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
  else object[key] = value;
}

/** A deep copy; undefined members are left out. */
export function clone<T extends Json>(value: T): T;
export function clone(value: Json): Json {
  if (Array.isArray(value)) return value.map((item) => clone(item));
  if (!isObject(value)) return value;
  const copy: JsonObject = {};
  for (const key of Object.keys(value)) {
    const member = value[key];
    if (member !== undefined) put(copy, key, clone(member));
  }
  return copy;
}

/** Deep equality; an undefined member equals an absent one. */
export function equal(a: Json | undefined, b: Json | undefined): boolean {
  if (a === b) return true;
  if (Array.isArray(a)) {
    return Array.isArray(b) && a.length === b.length && a.every((item, index) => equal(item, b[index]));
  }
  if (!isObject(a) || !isObject(b)) return false;
  let count = 0;
  for (const key of Object.keys(a)) {
    if (a[key] === undefined) continue;
    count += 1;
    if (!equal(a[key], own(b, key))) return false;
  }
  for (const key of Object.keys(b)) if (b[key] !== undefined) count -= 1;
  return count === 0;
}

/** A copy with `value` at `path`, making objects on the way; `undefined` removes. Siblings are shared. */
export function withPath(object: JsonObject, path: readonly string[], value: Json | undefined): JsonObject {
  const [key, ...rest] = path;
  if (key === undefined) return object;
  const copy: JsonObject = { ...object };
  if (rest.length === 0) {
    if (value === undefined) delete copy[key];
    else put(copy, key, value);
    return copy;
  }
  const inner = own(object, key);
  if (value === undefined && !isObject(inner)) return object;
  put(copy, key, withPath(asObject(inner), rest, value));
  return copy;
}
