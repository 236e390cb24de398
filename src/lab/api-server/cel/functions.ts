import { noValue } from "./errors.ts";
import { type Type, typeOf } from "./types.ts";
import {
  CelObject,
  isEqual,
  isList,
  isMap,
  Moment,
  Optional,
  parseMoment,
  parseSpan,
  Span,
  TypeName,
  typeNameOf,
  type Value,
} from "./value.ts";

/** One overload of a function: its types and its implementation. A method has its receiver as first parameter. */
export interface Overload {
  readonly params: readonly Type[];
  readonly result: Type;
  readonly call: (args: readonly Value[]) => Value;
}

const table = new Map<string, Overload[]>();

/** The overloads of a function or, with `method`, of a method; empty if there is none. */
export function overloadsOf(name: string, method: boolean): readonly Overload[] {
  return table.get(method ? `.${name}` : name) ?? [];
}

/** Returns true if a value fits a parameter of a type, as far as it can be checked at run time. */
export function fits(value: Value, type: Type): boolean {
  switch (type.kind) {
    case "var":
    case "dyn":
      return true;
    case "list":
      // For a list only the first item is checked.
      return isList(value) && (value[0] === undefined || fits(value[0], type.item));
    case "map":
      return isMap(value);
    case "optional":
      return value instanceof Optional;
    case "object":
      return value instanceof CelObject;
    case "timestamp":
      return value instanceof Moment;
    case "duration":
      return value instanceof Span;
    default:
      return typeNameOf(value) === (type.kind === "null" ? "null_type" : type.kind);
  }
}

function define(signature: string, call: (...args: never[]) => Value): void {
  const [, name = "", params = "", result = ""] = /^(\S+)\((.*)\): (.+)$/.exec(signature) ?? [];
  const types = params === "" ? [] : params.split("; ").map(typeOf);
  const overload = {
    params: types,
    result: typeOf(result),
    call: (args: readonly Value[]) => call(...(args as never[])),
  };
  table.set(name, [...(table.get(name) ?? []), overload]);
}

const LIMIT = 2n ** 63n;

function int(value: bigint): bigint {
  if (value < -LIMIT || value >= LIMIT) throw noValue("integer overflow");
  return value;
}

function nonZero(value: bigint, what: string): bigint {
  if (value === 0n) throw noValue(what);
  return value;
}

function defineArithmetic(): void {
  define("_+_(int; int): int", (a: bigint, b: bigint) => int(a + b));
  define("_-_(int; int): int", (a: bigint, b: bigint) => int(a - b));
  define("_*_(int; int): int", (a: bigint, b: bigint) => int(a * b));
  define("_/_(int; int): int", (a: bigint, b: bigint) => int(a / nonZero(b, "division by zero")));
  define("_%_(int; int): int", (a: bigint, b: bigint) => a % nonZero(b, "modulus by zero"));
  define("-_(int): int", (a: bigint) => int(-a));
  define("_+_(double; double): double", (a: number, b: number) => a + b);
  define("_-_(double; double): double", (a: number, b: number) => a - b);
  define("_*_(double; double): double", (a: number, b: number) => a * b);
  define("_/_(double; double): double", (a: number, b: number) => a / b);
  define("-_(double): double", (a: number) => -a);
  define("_+_(string; string): string", (a: string, b: string) => a + b);
  define("_+_(bytes; bytes): bytes", (a: Uint8Array, b: Uint8Array) => Buffer.concat([a, b]));
  define("_+_(list<A>; list<A>): list<A>", (a: Value[], b: Value[]) => [...a, ...b]);
  define("_+_(timestamp; duration): timestamp", (a: Moment, b: Span) => new Moment(a.ns + b.ns));
  define("_+_(duration; timestamp): timestamp", (a: Span, b: Moment) => new Moment(a.ns + b.ns));
  define("_+_(duration; duration): duration", (a: Span, b: Span) => new Span(int(a.ns + b.ns)));
  define("_-_(timestamp; timestamp): duration", (a: Moment, b: Moment) => new Span(int(a.ns - b.ns)));
  define("_-_(timestamp; duration): timestamp", (a: Moment, b: Span) => new Moment(a.ns - b.ns));
  define("_-_(duration; duration): duration", (a: Span, b: Span) => new Span(int(a.ns - b.ns)));
  define("!_(bool): bool", (a: boolean) => !a);
}

function magnitude(value: Value): bigint | number {
  if (value instanceof Moment || value instanceof Span) return value.ns;
  return typeof value === "bigint" || typeof value === "number" ? value : Number(value === true);
}

/** Strings are ordered by code points, not by UTF-16 units. */
function compare(a: Value, b: Value): number {
  if (typeof a === "string" && typeof b === "string") return Buffer.compare(Buffer.from(a), Buffer.from(b));
  if (a instanceof Uint8Array && b instanceof Uint8Array) return Buffer.compare(a, b);
  const [left, right] = [magnitude(a), magnitude(b)];
  if (Number.isNaN(left) || Number.isNaN(right)) return Number.NaN;
  return left < right ? -1 : left > right ? 1 : 0;
}

function defineComparison(): void {
  const same = ["bool", "int", "double", "string", "bytes", "timestamp", "duration"].map((type) => `${type}; ${type}`);
  for (const pair of [...same, "int; double", "double; int"]) {
    define(`_<_(${pair}): bool`, (a: Value, b: Value) => compare(a, b) < 0);
    define(`_<=_(${pair}): bool`, (a: Value, b: Value) => compare(a, b) <= 0);
    define(`_>_(${pair}): bool`, (a: Value, b: Value) => compare(a, b) > 0);
    define(`_>=_(${pair}): bool`, (a: Value, b: Value) => compare(a, b) >= 0);
  }
  define("_==_(A; A): bool", isEqual);
  define("_!=_(A; A): bool", (a: Value, b: Value) => !isEqual(a, b));
  define("@in(A; list<A>): bool", (a: Value, list: Value[]) => list.some((item) => isEqual(a, item)));
  define("@in(A; map<A, B>): bool", (a: Value, map: Map<Value, Value>) => map.has(a));
}

/** Code points, the unit of lengths and offsets in CEL. */
function points(text: string): string[] {
  return [...text];
}

function defineSizes(): void {
  const sizes: readonly [string, (value: never) => number][] = [
    ["string", (text: string) => points(text).length],
    ["bytes", (bytes: Uint8Array) => bytes.length],
    ["list<A>", (list: Value[]) => list.length],
    ["map<A, B>", (map: Map<Value, Value>) => map.size],
  ];
  for (const [type, size] of sizes) {
    for (const name of ["size", ".size"]) define(`${name}(${type}): int`, (value: never) => BigInt(size(value)));
  }
}

function cannotConvert(value: Value, to: string): Error {
  return noValue(`type conversion error from '${typeNameOf(value)}' to '${to}'`);
}

function toInt(value: string | number): bigint {
  if (typeof value === "number") {
    if (Number.isFinite(value) && Math.abs(value) < Number(LIMIT)) return BigInt(Math.trunc(value));
    throw noValue("integer overflow");
  }
  const number = /^[-+]?\d+$/.test(value) ? BigInt(value.replace(/^\+/, "")) : LIMIT;
  if (number < -LIMIT || number >= LIMIT) throw cannotConvert(value, "int");
  return number;
}

function toDouble(value: string): number {
  const number = /^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$/.test(value) ? Number(value) : Number.NaN;
  if (Number.isNaN(number)) throw cannotConvert(value, "double");
  return number;
}

const TRUE = new Set(["1", "t", "T", "true", "TRUE", "True"]);
const FALSE = new Set(["0", "f", "F", "false", "FALSE", "False"]);

function toBool(text: string): boolean {
  if (!TRUE.has(text) && !FALSE.has(text)) throw cannotConvert(text, "bool");
  return TRUE.has(text);
}

function defineConversions(): void {
  for (const type of ["bool", "int", "double", "string", "bytes", "timestamp", "duration"])
    define(`${type}(${type}): ${type}`, (value: Value) => value);
  define("int(string): int", toInt);
  define("int(double): int", toInt);
  define("int(timestamp): int", (at: Moment) => at.ns / 1_000_000_000n);
  define("double(int): double", (value: bigint) => Number(value));
  define("double(string): double", toDouble);
  define("bool(string): bool", toBool);
  define("bytes(string): bytes", (text: string) => new TextEncoder().encode(text));
  define("string(int): string", String);
  define("string(double): string", String);
  define("string(bool): string", String);
  define("string(bytes): string", (bytes: Uint8Array) => Buffer.from(bytes).toString("utf8"));
  define("timestamp(string): timestamp", parseMoment);
  define("timestamp(int): timestamp", (seconds: bigint) => new Moment(seconds * 1_000_000_000n));
  define("duration(string): duration", parseSpan);
  define("dyn(A): dyn", (value: Value) => value);
  define("type(A): type", (value: Value) => new TypeName(typeNameOf(value)));
}

/** Syntax of RE2 that JavaScript lacks, or interprets differently, is refused. */
function regex(pattern: string, flags = ""): RegExp {
  try {
    return new RegExp(pattern, `${flags}u`);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw noValue(`error parsing regexp: ${pattern}`);
  }
}

/** A position in a string, in code points, from 0 to its length. */
function position(text: readonly string[], at: bigint): number {
  if (at < 0n || at > BigInt(text.length)) throw noValue(`index out of range: ${at}`);
  return Number(at);
}

function indexIn(text: string, part: string, from: bigint): bigint {
  const all = points(text);
  const start = position(all, from);
  const found = all.slice(start).join("").indexOf(part);
  return found < 0 ? -1n : BigInt(start + points(all.slice(start).join("").slice(0, found)).length);
}

function lastIndexIn(text: string, part: string, upTo: bigint): bigint {
  const found = text.lastIndexOf(
    part,
    points(text)
      .slice(0, position(points(text), upTo))
      .join("").length,
  );
  return found < 0 ? -1n : BigInt(points(text.slice(0, found)).length);
}

function substring(text: string, from: bigint, to: bigint): string {
  const all = points(text);
  const [start, end] = [position(all, from), position(all, to)];
  if (start > end) throw noValue(`invalid substring range. start: ${from}, end: ${to}`);
  return all.slice(start, end).join("");
}

function replace(text: string, from: string, to: string, times: bigint): string {
  if (times === 0n) return text;
  // An empty text is found before each character and at the end.
  const around = from === "" ? ["", ...points(text), ""] : split(text, from, -1n);
  const most = times < 0n ? around.length : Math.min(around.length, Number(times) + 1);
  return [...around.slice(0, most - 1), around.slice(most - 1).join(from)].join(to);
}

function split(text: string, by: string, limit: bigint): string[] {
  if (limit === 0n) return [];
  const parts = by === "" ? points(text) : text.split(by);
  const most = limit < 0n ? parts.length : Number(limit);
  return parts.length <= most ? parts : [...parts.slice(0, most - 1), parts.slice(most - 1).join(by)];
}

function findAll(text: string, pattern: string, limit: bigint): string[] {
  const all = Array.from(text.matchAll(regex(pattern, "g")), ([found]) => found);
  return limit < 0n ? all : all.slice(0, Number(limit));
}

const ascii = (text: string, change: (letter: string) => string): string => text.replace(/[A-Za-z]/g, change);

function defineStrings(): void {
  define(".contains(string; string): bool", (text: string, part: string) => text.includes(part));
  define(".startsWith(string; string): bool", (text: string, part: string) => text.startsWith(part));
  define(".endsWith(string; string): bool", (text: string, part: string) => text.endsWith(part));
  for (const name of ["matches", ".matches"])
    define(`${name}(string; string): bool`, (text: string, pattern: string) => regex(pattern).test(text));
  define(".charAt(string; int): string", (text: string, at: bigint) => points(text)[position(points(text), at)] ?? "");
  define(".indexOf(string; string): int", (text: string, part: string) => indexIn(text, part, 0n));
  define(".indexOf(string; string; int): int", indexIn);
  define(".lastIndexOf(string; string): int", (text: string, part: string) =>
    lastIndexIn(text, part, BigInt(points(text).length)),
  );
  define(".lastIndexOf(string; string; int): int", lastIndexIn);
  define(".substring(string; int): string", (text: string, from: bigint) =>
    substring(text, from, BigInt(points(text).length)),
  );
  define(".substring(string; int; int): string", substring);
  define(".replace(string; string; string): string", (text: string, from: string, to: string) =>
    replace(text, from, to, -1n),
  );
  define(".replace(string; string; string; int): string", replace);
  define(".split(string; string): list<string>", (text: string, by: string) => split(text, by, -1n));
  define(".split(string; string; int): list<string>", split);
  define(".lowerAscii(string): string", (text: string) => ascii(text, (letter) => letter.toLowerCase()));
  define(".upperAscii(string): string", (text: string) => ascii(text, (letter) => letter.toUpperCase()));
  define(".trim(string): string", (text: string) => text.trim());
  define(".find(string; string): string", (text: string, pattern: string) => regex(pattern).exec(text)?.[0] ?? "");
  define(".findAll(string; string): list<string>", (text: string, pattern: string) => findAll(text, pattern, -1n));
  define(".findAll(string; string; int): list<string>", findAll);
  define(".join(list<string>): string", (list: string[]) => list.join(""));
  define(".join(list<string>; string): string", (list: string[], by: string) => list.join(by));
}

function extreme(list: readonly Value[], sign: 1 | -1, name: string): Value {
  const [first, ...rest] = list;
  if (first === undefined) throw noValue(`${name} called on empty list`);
  return rest.reduce((best, item) => (compare(item, best) * sign > 0 ? item : best), first);
}

function isSorted(list: readonly Value[]): boolean {
  return list.every((item, index) => index === 0 || compare(list[index - 1] ?? null, item) <= 0);
}

function defineLists(): void {
  define(".indexOf(list<A>; A): int", (list: Value[], item: Value) =>
    BigInt(list.findIndex((each) => isEqual(each, item))),
  );
  define(".lastIndexOf(list<A>; A): int", (list: Value[], item: Value) =>
    BigInt(list.findLastIndex((each) => isEqual(each, item))),
  );
  for (const type of ["int", "double", "string", "bool", "timestamp", "duration"]) {
    define(`.isSorted(list<${type}>): bool`, isSorted);
    define(`.min(list<${type}>): ${type}`, (list: Value[]) => extreme(list, -1, "min"));
    define(`.max(list<${type}>): ${type}`, (list: Value[]) => extreme(list, 1, "max"));
  }
  define(".sum(list<int>): int", (list: bigint[]) => list.reduce((sum, item) => int(sum + item), 0n));
  define(".sum(list<double>): double", (list: number[]) => list.reduce((sum, item) => sum + item, 0));
}

function defineOptionals(): void {
  define(".hasValue(optional<A>): bool", (optional: Optional) => optional.value !== undefined);
  define(".value(optional<A>): A", (optional: Optional) => {
    if (optional.value === undefined) throw noValue("optional.none() dereference");
    return optional.value;
  });
  define(".orValue(optional<A>; A): A", (optional: Optional, other: Value) => optional.value ?? other);
  define(".or(optional<A>; optional<A>): optional<A>", (optional: Optional, other: Optional) =>
    optional.value === undefined ? other : optional,
  );
  define("optional.of(A): optional<A>", (value: Value) => new Optional(value));
  define("optional.none(): optional<A>", () => new Optional(undefined));
}

for (const each of [
  defineArithmetic,
  defineComparison,
  defineSizes,
  defineConversions,
  defineStrings,
  defineLists,
  defineOptionals,
])
  each();
