import { equal, isObject, type Json, type JsonObject } from "../object/json.ts";
import { noValue } from "./errors.ts";
import type { ObjectType, Type } from "./types.ts";

/** A value of an expression. An int is a `bigint`, a double a `number`. */
export type Value =
  | null
  | boolean
  | bigint
  | number
  | string
  | Uint8Array
  | Moment
  | Span
  | TypeName
  | Optional
  | CelObject
  | readonly Value[]
  | ReadonlyMap<Value, Value>;

/** A point in time, to the nanosecond. */
export class Moment {
  readonly ns: bigint;

  constructor(ns: bigint) {
    this.ns = ns;
  }
}

/** A length of time, to the nanosecond. */
export class Span {
  readonly ns: bigint;

  constructor(ns: bigint) {
    this.ns = ns;
  }
}

/** A type as a value, the result of `type()`. */
export class TypeName {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

/** A value that may be absent. */
export class Optional {
  readonly value: Value | undefined;

  constructor(value: Value | undefined) {
    this.value = value;
  }
}

/** An object of the API; members are converted when they are read. */
export class CelObject {
  readonly json: JsonObject;
  readonly type: ObjectType;

  constructor(json: JsonObject, type: ObjectType) {
    this.json = json;
    this.type = type;
  }

  /** The member by its CEL identifier; undefined when it is absent or null. */
  get(identifier: string): Value | undefined {
    const field = this.type.fields.get(identifier);
    const member = field !== undefined && Object.hasOwn(this.json, field.name) ? this.json[field.name] : undefined;
    return field === undefined || member === undefined || member === null ? undefined : toValue(member, field.type);
  }
}

/** True for a list, for which TypeScript's `Array.isArray` fails with read-only arrays. */
export function isList(value: Value): value is readonly Value[] {
  return Array.isArray(value);
}

/** True for a map. */
export function isMap(value: Value): value is ReadonlyMap<Value, Value> {
  return value instanceof Map;
}

/** Converts JSON to a value of the type of its schema. Throws CelError `evaluation` for data that only an older schema allowed. */
export function toValue(json: Json, type: Type): Value {
  if (json === null) return null;
  switch (type.kind) {
    case "object":
      if (isObject(json)) return new CelObject(json, type);
      break;
    case "list":
      if (Array.isArray(json)) return json.map((item) => toValue(item, type.item));
      break;
    case "map":
      if (isObject(json)) {
        const members = Object.entries(json).filter((entry): entry is [string, Json] => entry[1] !== undefined);
        return new Map(members.map(([key, member]) => [key, toValue(member, type.value)]));
      }
      break;
    case "int":
      if (typeof json === "number" && Number.isInteger(json)) return BigInt(json);
      break;
    case "double":
      if (typeof json === "number") return json;
      break;
    case "bool":
      if (typeof json === "boolean") return json;
      break;
    case "dyn":
      if (typeof json === "number") return Number.isInteger(json) ? BigInt(json) : json;
      if (typeof json === "string" || typeof json === "boolean") return json;
      break;
    default:
      if (typeof json === "string") return textValue(json, type.kind);
  }
  throw noValue(`invalid data, expected a value of type ${type.kind}`);
}

function textValue(text: string, kind: Type["kind"]): Value {
  switch (kind) {
    case "bytes":
      return Buffer.from(text, "base64");
    case "timestamp":
      return parseMoment(text.includes("T") || text.includes("t") ? text : `${text}T00:00:00Z`);
    case "duration":
      return parseSpan(text);
    default:
      return text;
  }
}

/** RFC 3339, to the nanosecond. Throws CelError `evaluation`. */
export function parseMoment(text: string): Moment {
  const match = /^(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)$/.exec(text);
  const ms = match === null ? Number.NaN : Date.parse(`${match[1]}${match[3]}`.toUpperCase());
  if (Number.isNaN(ms)) throw noValue(`invalid timestamp ${JSON.stringify(text)}`);
  return new Moment(BigInt(ms) * 1_000_000n + BigInt((match?.[2] ?? "").slice(1).padEnd(9, "0")));
}

const UNITS: Readonly<Record<string, bigint>> = {
  ns: 1n,
  us: 1000n,
  µs: 1000n,
  ms: 1_000_000n,
  s: 1_000_000_000n,
  m: 60_000_000_000n,
  h: 3_600_000_000_000n,
};

/** Parses a duration like Go's time.ParseDuration: `1h30m`, `-1.5s`. Throws CelError `evaluation`. */
export function parseSpan(text: string): Span {
  const match = /^([-+]?)((?:\d+(?:\.\d{1,9})?(?:ns|us|\u00b5s|ms|s|m|h))+|0)$/.exec(text);
  if (match === null) throw noValue(`invalid duration ${JSON.stringify(text)}`);
  let ns = 0n;
  for (const [, whole = "", part = "", unit = ""] of (match[2] ?? "").matchAll(
    /(\d+)(?:\.(\d+))?(ns|us|\u00b5s|ms|s|m|h)/g,
  )) {
    const size = UNITS[unit] ?? 0n;
    ns += BigInt(whole) * size + (BigInt(part.padEnd(9, "0")) * size) / 1_000_000_000n;
  }
  return new Span(match[1] === "-" ? -ns : ns);
}

/** CEL's equality: of numbers by value, of all other values by type and content. */
export function isEqual(a: Value, b: Value): boolean {
  if (a === b) return true;
  if (typeof a === "bigint" || typeof a === "number") {
    // A double and an int are equal if their values are equal.
    return (typeof b === "bigint" || typeof b === "number") && a <= b && a >= b;
  }
  if (a === null || b === null || typeof a !== "object" || typeof b !== "object") return false;
  if (a instanceof CelObject) return b instanceof CelObject && equal(a.json, b.json);
  if (a instanceof Moment) return b instanceof Moment && a.ns === b.ns;
  if (a instanceof Span) return b instanceof Span && a.ns === b.ns;
  if (a instanceof TypeName) return b instanceof TypeName && a.name === b.name;
  if (a instanceof Uint8Array) return b instanceof Uint8Array && Buffer.compare(a, b) === 0;
  if (a instanceof Optional) return b instanceof Optional && optionalsEqual(a, b);
  if (isList(a)) return isList(b) && a.length === b.length && a.every((item, index) => isEqual(item, b[index] ?? null));
  return isMap(b) && mapsEqual(a as ReadonlyMap<Value, Value>, b);
}

function optionalsEqual(a: Optional, b: Optional): boolean {
  if (a.value === undefined || b.value === undefined) return a.value === b.value;
  return isEqual(a.value, b.value);
}

function mapsEqual(a: ReadonlyMap<Value, Value>, b: ReadonlyMap<Value, Value>): boolean {
  if (a.size !== b.size) return false;
  for (const [key, value] of a) {
    const other = b.get(key);
    if (other === undefined || !isEqual(value, other)) return false;
  }
  return true;
}

/** The name of a value's type in `type()`. */
export function typeNameOf(value: Value): string {
  if (value === null) return "null_type";
  switch (typeof value) {
    case "boolean":
      return "bool";
    case "bigint":
      return "int";
    case "number":
      return "double";
    case "string":
      return "string";
    default:
  }
  if (isList(value)) return "list";
  if (isMap(value)) return "map";
  if (value instanceof Uint8Array) return "bytes";
  if (value instanceof Moment) return "google.protobuf.Timestamp";
  if (value instanceof Span) return "google.protobuf.Duration";
  if (value instanceof Optional) return "optional_type";
  return value instanceof CelObject ? value.type.name : "type";
}
