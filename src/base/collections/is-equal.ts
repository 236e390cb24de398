/** A value such as an `IpAddress`, whose fields are private. */
interface WithEquals {
  equals(other: unknown): boolean;
}

/**
 * Compares two values of data by content: numbers, texts and other primitives, arrays, plain objects, maps, sets and bytes, and objects of one class
 * that has `equals`. The order of keys does not count, and a key whose value is `undefined` is no key, as in JSON. Objects of any other class are equal
 * only if they are the same object: their private fields cannot be compared.
 */
export function isEqual(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (prototypeOf(a) !== prototypeOf(b)) return false;
  if (hasEquals(a)) return a.equals(b);
  if (Array.isArray(a)) return isEqualList(a, b as readonly unknown[]);
  if (a instanceof Uint8Array) return Buffer.compare(a, b as Uint8Array) === 0;
  if (a instanceof Map) return isEqualMap(a, b as ReadonlyMap<unknown, unknown>);
  if (a instanceof Set) return isEqualSet(a, b as ReadonlySet<unknown>);
  return prototypeOf(a) === Object.prototype && isEqualRecord(a as Fields, b as Fields);
}

type Fields = Readonly<Record<string, unknown>>;

/** Objects without a prototype, as parsers make them, are plain objects too. */
function prototypeOf(value: object): unknown {
  return Object.getPrototypeOf(value) ?? Object.prototype;
}

function hasEquals(value: object): value is WithEquals {
  return prototypeOf(value) !== Object.prototype && "equals" in value && typeof value.equals === "function";
}

function isEqualList(a: readonly unknown[], b: readonly unknown[]): boolean {
  return a.length === b.length && a.every((one, at) => isEqual(one, b[at]));
}

function isEqualMap(a: ReadonlyMap<unknown, unknown>, b: ReadonlyMap<unknown, unknown>): boolean {
  if (a.size !== b.size) return false;
  for (const [key, value] of a) if (!b.has(key) || !isEqual(value, b.get(key))) return false;
  return true;
}

/** Members are compared as the set does. */
function isEqualSet(a: ReadonlySet<unknown>, b: ReadonlySet<unknown>): boolean {
  return a.size === b.size && [...a].every((one) => b.has(one));
}

function isEqualRecord(a: Fields, b: Fields): boolean {
  for (const key of Object.keys(a)) if (!isEqual(a[key], Object.hasOwn(b, key) ? b[key] : undefined)) return false;
  for (const key of Object.keys(b)) if (b[key] !== undefined && !Object.hasOwn(a, key)) return false;
  return true;
}
