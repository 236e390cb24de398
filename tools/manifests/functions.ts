import { createHash } from "node:crypto";
import { stringify } from "yaml";
import { ChartError } from "./error.ts";
import type { Place } from "./tokens.ts";

/** A value of a template: JSON, with maps as objects. */
export type Value = null | boolean | number | string | readonly Value[] | { readonly [key: string]: Value };

/** From here on Go prints a number of a values file with an exponent. */
const MAX_PRINTED = 1_000_000;

type TemplateFunction = (args: readonly Value[], place: Place) => Value;

/** Those of Go and of Helm that are known here; each gives what Helm's gives. */
export const FUNCTIONS: Readonly<Record<string, TemplateFunction>> = {
  toYaml: one((value) =>
    stringify(value, {
      sortMapEntries: true,
      // Kubernetes reads `on` and `y` as true.
      version: "1.1",
      lineWidth: 0,
      indentSeq: false,
      aliasDuplicateObjects: false,
    }).trimEnd(),
  ),
  quote: one((value, place) => JSON.stringify(printed(value, place))),
  trim: one((value, place) => textOf(value, place).trim()),
  sha256sum: one((value, place) => createHash("sha256").update(textOf(value, place)).digest("hex")),
  not: one((value) => !isTrue(value)),
  fail: one((value, place) => fault(place, textOf(value, place))),
  eq: two((left, right, place) => isEqual(left, right, place)),
  ne: two((left, right, place) => !isEqual(left, right, place)),
  default: two((fallback, value) => (isTrue(value) ? value : fallback)),
  indent: two((count, value, place) => indented(count, value, place)),
  nindent: two((count, value, place) => `\n${indented(count, value, place)}`),
  contains: two((part, value, place) => textOf(value, place).includes(textOf(part, place))),
  join: two((separator, value, place) =>
    itemsOf(value, place)
      .map(([, item]) => printed(item, place))
      .join(textOf(separator, place)),
  ),
  dict: (args, place) => {
    const entries: [string, Value][] = [];
    for (let at = 0; at < args.length; at += 2) {
      entries.push([textOf(args[at] ?? null, place), args[at + 1] ?? fault(place, "dict needs a value for each key")]);
    }
    return Object.fromEntries(entries);
  },
};

function one(apply: (value: Value, place: Place) => Value): TemplateFunction {
  return ([value, ...more], place) =>
    value === undefined || more.length > 0 ? fault(place, "the function needs one argument") : apply(value, place);
}

function two(apply: (first: Value, second: Value, place: Place) => Value): TemplateFunction {
  return ([first, second, ...more], place) =>
    first === undefined || second === undefined || more.length > 0
      ? fault(place, "the function needs two arguments")
      : apply(first, second, place);
}

/** Throws {@link ChartError} (`render`). */
export function fault(place: Place, what: string): never {
  throw new ChartError("render", `${place.file}:${place.line}: ${what}`);
}

/** As in Go: what is empty is false. */
export function isTrue(value: Value): boolean {
  if (value === null || typeof value !== "object") return Boolean(value);
  return (Array.isArray(value) ? value : Object.keys(value)).length > 0;
}

/** Go compares basic values of one kind. Numbers of templates and of values files are of two kinds there. */
function isEqual(left: Value, right: Value, place: Place): boolean {
  if (typeof left !== typeof right || (typeof left !== "string" && typeof left !== "boolean"))
    fault(place, "only two texts, or two of true and false, can be compared");
  return left === right;
}

/** A member of a map. One that is not there is a fault, where Helm would print an empty text. */
export function fieldOf(value: Value, name: string, place: Place): Value {
  if (value === null || typeof value !== "object" || Array.isArray(value))
    return fault(place, `.${name} is asked of what is no map`);
  const field = Object.hasOwn(value, name) ? (value as Readonly<Record<string, Value>>)[name] : undefined;
  return field ?? fault(place, `there is no .${name}`);
}

/** Items of a list with their numbers, of a map with their keys in order. */
export function itemsOf(value: Value, place: Place): (readonly [Value, Value])[] {
  if (Array.isArray(value)) return (value as readonly Value[]).map((item, at) => [at, item]);
  if (value === null || typeof value !== "object") return fault(place, "range needs a list or a map");
  return Object.entries(value as Readonly<Record<string, Value>>).sort(([a], [b]) => (a < b ? -1 : 1));
}

function textOf(value: Value, place: Place): string {
  return typeof value === "string" ? value : fault(place, "a text is due");
}

/** The text of a value where a template prints it. */
export function printed(value: Value, place: Place): string {
  if (value === null || typeof value === "object")
    return fault(place, "a list, a map or nothing is printed; toYaml is due");
  if (typeof value === "number" && (!Number.isInteger(value) || Math.abs(value) >= MAX_PRINTED))
    return fault(place, `${value} is printed otherwise by Helm; write it as text`);
  return String(value);
}

function indented(count: Value, value: Value, place: Place): string {
  if (typeof count !== "number" || count < 0 || count > 80) return fault(place, "the indentation is 0 to 80");
  return textOf(value, place).replaceAll(/^/gm, " ".repeat(count));
}
