import type { Cause } from "../errors.ts";
import { equal, isObject, type Json, type JsonObject, own } from "../object/json.ts";
import { hasFormat } from "./formats.ts";
import { type Definitions, itemSchema, memberSchema, resolve, type Schema } from "./schema.ts";

/** The maximum number of reported faults: a list with many faults must not cause a Status of megabytes. */
export const MAX_CAUSES = 50;

/**
 * Checks an object against a structural schema. Returns every fault, at most {@link MAX_CAUSES}; empty when it is valid.
 * `custom`: as for a custom resource. Only there sets and maps may not have duplicates (a Node has two addresses of type InternalIP), and
 * only there quantities are any text. `old`: values that are unchanged there are not checked (ratcheting).
 */
export function validate(
  object: JsonObject,
  schema: Schema,
  definitions: Definitions,
  { custom, old }: { readonly custom: boolean; readonly old?: JsonObject | undefined } = { custom: true },
): Cause[] {
  const causes: Cause[] = [];
  check(object, resolve(schema, definitions), "", { definitions, causes, custom }, old);
  return causes.slice(0, MAX_CAUSES);
}

interface Context {
  readonly definitions: Definitions;
  readonly causes: Cause[];
  readonly custom: boolean;
}

/** A fault of a value, worded as the real server does. */
export function invalidValue(field: string, value: Json | undefined, why: string): Cause {
  return { reason: "FieldValueInvalid", message: `Invalid value: ${show(value)}: ${why}`, field };
}

/** A fault of a value that is absent. */
export function requiredValue(field: string, why = ""): Cause {
  return { reason: "FieldValueRequired", message: `Required value${why === "" ? "" : `: ${why}`}`, field };
}

function show(value: Json | undefined): string {
  if (isObject(value)) return '"object"';
  if (Array.isArray(value)) return '"array"';
  return JSON.stringify(value ?? null).slice(0, 200);
}

function tooMany(field: string, count: number, most: number): Cause {
  const message = `Too many: ${count}: must have at most ${most} item${most === 1 ? "" : "s"}`;
  return { reason: "FieldValueTooMany", message, field };
}

/** Ranges of integers: int64, or int32 with that format. */
const INT_BITS = { int32: 31, int64: 63 } as const;

function typeOf(value: Json): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  if (typeof value === "number")
    return Number.isInteger(value) && fitsBits(value, INT_BITS.int64) ? "integer" : "number";
  return typeof value === "object" ? "object" : typeof value;
}

function fitsBits(value: number, bits: number): boolean {
  return value >= -(2 ** bits) && value < 2 ** bits;
}

function typeMatches(value: Json, schema: Schema): boolean {
  const type = typeOf(value);
  if (schema["x-kubernetes-int-or-string"] === true) {
    return type === "integer" || type === "string" || (schema.format === "quantity" && type === "number");
  }
  return schema.type === undefined || schema.type === type || (schema.type === "number" && type === "integer");
}

function check(value: Json, schema: Schema, path: string, context: Context, old?: Json): void {
  const { causes } = context;
  if (causes.length >= MAX_CAUSES || (old !== undefined && equal(value, old))) return;
  if (value === null && schema.nullable === true) return;
  if (!typeMatches(value, schema)) {
    causes.push(wrongType(value, schema, path), ...outOfRange(value, schema, path));
    return;
  }
  checkEnum(value, schema, path, causes);
  if (typeof value === "string") checkString(value, schema, path, context);
  else if (typeof value === "number") checkNumber(value, schema, path, causes);
  else if (Array.isArray(value)) checkArray(value, schema, path, context, old);
  else if (isObject(value)) checkObject(value, schema, path, context, old);
  checkJunctors(value, schema, path, context);
}

function wrongType(value: Json, schema: Schema, path: string): Cause {
  const isFormat = typeof value === "number" && (schema.format === "int32" || schema.format === "int64");
  const found = isFormat ? "float64" : typeOf(value);
  const wanted =
    schema["x-kubernetes-int-or-string"] === true ? "integer,string" : isFormat ? schema.format : schema.type;
  const why = `${path} in body must be of type ${wanted}: "${found}"`;
  return { ...invalidValue(path, isScalar(value) ? found : value, why), reason: "FieldValueTypeInvalid" };
}

/** A number that is not an integer of its format. The real server reports it for the whole object. */
function outOfRange(value: Json, schema: Schema, path: string): Cause[] {
  if (typeof value !== "number" || schema.type !== "integer") return [];
  const format = schema.format === "int32" || schema.format === "int64" ? schema.format : undefined;
  if (Number.isInteger(value) && fitsBits(value, INT_BITS[format ?? "int64"])) return [];
  const wanted = format === undefined ? "integer (default format)" : `integer with format ${format}`;
  return [invalidValue("<nil>", "", `Checked value must be of type ${wanted} in ${path}`)];
}

function isScalar(value: Json): boolean {
  return typeof value !== "object" || value === null;
}

function checkEnum(value: Json, schema: Schema, path: string, causes: Cause[]): void {
  if (schema.enum === undefined || schema.enum.some((allowed) => equal(allowed, value))) return;
  const allowed = schema.enum.map((item) => JSON.stringify(item)).join(", ");
  causes.push({
    reason: "FieldValueNotSupported",
    message: `Unsupported value: ${show(value)}: supported values: ${allowed}`,
    field: path,
  });
}

function checkString(value: string, schema: Schema, path: string, { causes, custom }: Context): void {
  const length = schema.minLength !== undefined || schema.maxLength !== undefined ? [...value].length : 0;
  if (schema.minLength !== undefined && length < schema.minLength) {
    causes.push(invalidValue(path, value, `${path} in body should be at least ${schema.minLength} chars long`));
  }
  if (schema.maxLength !== undefined && length > schema.maxLength) {
    const message = `Too long: may not be more than ${schema.maxLength} bytes`;
    causes.push({ reason: "FieldValueTooLong", message, field: path });
  }
  if (schema.pattern !== undefined && !patternOf(schema.pattern).test(value)) {
    causes.push(invalidValue(path, value, `${path} in body should match '${schema.pattern}'`));
  }
  if (schema.format !== undefined && !hasFormat(schema.format, value, custom)) {
    const why = `${path} in body must be of type ${schema.format}: ${show(value)}`;
    causes.push({ ...invalidValue(path, value, why), reason: "FieldValueTypeInvalid" });
  }
}

/** Patterns come from CRDs, checked when the CRD is accepted. */
const patterns = new Map<string, RegExp>();
const MAX_PATTERNS = 1000;

function patternOf(source: string): RegExp {
  const known = patterns.get(source);
  if (known !== undefined) return known;
  if (patterns.size >= MAX_PATTERNS) patterns.clear();
  const made = new RegExp(source);
  patterns.set(source, made);
  return made;
}

function checkNumber(value: number, schema: Schema, path: string, causes: Cause[]): void {
  causes.push(...outOfRange(value, schema, path));
  const { minimum, maximum, multipleOf } = schema;
  if (minimum !== undefined && (schema.exclusiveMinimum === true ? value <= minimum : value < minimum)) {
    const than = schema.exclusiveMinimum === true ? "greater than" : "greater than or equal to";
    causes.push(invalidValue(path, value, `${path} in body should be ${than} ${minimum}`));
  }
  if (maximum !== undefined && (schema.exclusiveMaximum === true ? value >= maximum : value > maximum)) {
    const than = schema.exclusiveMaximum === true ? "less than" : "less than or equal to";
    causes.push(invalidValue(path, value, `${path} in body should be ${than} ${maximum}`));
  }
  if (multipleOf !== undefined && !Number.isInteger(value / multipleOf)) {
    causes.push(invalidValue(path, value, `${path} in body should be a multiple of ${multipleOf}`));
  }
}

function checkArray(
  value: readonly Json[],
  schema: Schema,
  path: string,
  context: Context,
  old: Json | undefined,
): void {
  const { causes, definitions } = context;
  if (schema.minItems !== undefined && value.length < schema.minItems) {
    causes.push(invalidValue(path, value.length, `${path} in body should have at least ${schema.minItems} items`));
  }
  if (schema.maxItems !== undefined && value.length > schema.maxItems) {
    causes.push(tooMany(path, value.length, schema.maxItems));
  }
  if (context.custom) checkUnique(value, schema, path, causes);
  const items = itemSchema(schema, definitions);
  for (const [index, item] of value.entries())
    check(item, items, `${path}[${index}]`, context, oldItem(schema, old, item));
}

function checkUnique(value: readonly Json[], schema: Schema, path: string, causes: Cause[]): void {
  const listType = schema["x-kubernetes-list-type"];
  if (listType !== "set" && listType !== "map" && schema.uniqueItems !== true) return;
  const keys = schema["x-kubernetes-list-map-keys"] ?? [];
  const seen = new Set<string>();
  for (const [index, item] of value.entries()) {
    const identity = listType === "map" && isObject(item) ? keys.map((key) => item[key] ?? null) : item;
    const text = JSON.stringify(identity);
    if (seen.has(text)) {
      causes.push({
        reason: "FieldValueDuplicate",
        message: `Duplicate value: ${show(item)}`,
        field: `${path}[${index}]`,
      });
    }
    seen.add(text);
  }
}

/** The old item with the same keys, if the list has keys. */
function oldItem(schema: Schema, old: Json | undefined, item: Json): Json | undefined {
  const keys = schema["x-kubernetes-list-map-keys"] ?? [];
  if (schema["x-kubernetes-list-type"] !== "map" || !Array.isArray(old) || !isObject(item)) return undefined;
  return old.find((other) => isObject(other) && keys.every((key) => equal(other[key], item[key])));
}

function checkObject(value: JsonObject, schema: Schema, path: string, context: Context, old: Json | undefined): void {
  const { causes, definitions } = context;
  for (const name of schema.required ?? []) {
    if (!Object.hasOwn(value, name) || value[name] === undefined) causes.push(requiredValue(join(path, name)));
  }
  const count = Object.keys(value).length;
  if (schema.minProperties !== undefined && count < schema.minProperties) {
    causes.push(invalidValue(path, value, `${path} in body should have at least ${schema.minProperties} properties`));
  }
  if (schema.maxProperties !== undefined && count > schema.maxProperties) {
    causes.push(tooMany(path, count, schema.maxProperties));
  }
  for (const key of Object.keys(value)) {
    const member = value[key];
    if (member === undefined) continue;
    const inner = memberSchema(schema, key, definitions);
    if (inner !== undefined) check(member, inner, join(path, key), context, isObject(old) ? own(old, key) : undefined);
  }
}

function join(path: string, key: string): string {
  return path === "" ? key : `${path}.${key}`;
}

function checkJunctors(value: Json, schema: Schema, path: string, context: Context): void {
  const faultsOf = (part: Schema): Cause[] => {
    const causes: Cause[] = [];
    check(value, part, path, { ...context, causes });
    return causes;
  };
  for (const part of schema.allOf ?? []) context.causes.push(...faultsOf(part));
  if (schema.anyOf?.every((part) => faultsOf(part).length > 0) === true) {
    context.causes.push(invalidValue(path, value, `${path} in body must validate at least one schema (anyOf)`));
  }
  if (schema.oneOf !== undefined && schema.oneOf.filter((part) => faultsOf(part).length === 0).length !== 1) {
    context.causes.push(invalidValue(path, value, `${path} in body must validate one and only one schema (oneOf)`));
  }
  if (schema.not !== undefined && faultsOf(schema.not).length === 0) {
    context.causes.push(invalidValue(path, value, `${path} in body must not validate the schema (not)`));
  }
}
