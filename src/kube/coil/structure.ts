import { Cidr } from "#base/ip";
import type { SchemaNode } from "#kube/crd";
import { type FieldFault, invalid, notSupported, required, tooLong } from "#kube/crd";

/**
 * The faults of a value against a schema: of its shape (types, required and unknown members), and of its values (ranges, lengths, sets).
 */
export interface StructureFaults {
  /** If there are faults of the shape, rules must not read the value. */
  readonly shape: readonly FieldFault[];
  readonly values: readonly FieldFault[];
  /** The faults among these of lists, objects and texts that are longer than they may be: rules must not spend their time on them. */
  readonly sizes: readonly FieldFault[];
  /** Members that the schema does not know, as paths. An API server drops them, or refuses them with `fieldValidation=Strict`. */
  readonly unknown: readonly string[];
}

/** The maximum number of faults of one object, so that the answer about a long list stays short. */
const MAX_FAULTS = 50;
const INT32 = 2 ** 31;

/**
 * Checks a value as an API server with the schema's CRD does. `path` is the path of the value, empty for a whole object. Pure; any value
 * may be given.
 */
export function checkStructure(schema: SchemaNode, value: unknown, path: string): StructureFaults {
  const found: Found = { shape: [], values: [], sizes: [], unknown: [] };
  check(schema, value, path, found);
  return {
    shape: found.shape.slice(0, MAX_FAULTS),
    values: found.values.slice(0, MAX_FAULTS),
    sizes: found.sizes.slice(0, MAX_FAULTS),
    unknown: found.unknown.slice(0, MAX_FAULTS),
  };
}

interface Found {
  readonly shape: FieldFault[];
  readonly values: FieldFault[];
  readonly sizes: FieldFault[];
  readonly unknown: string[];
}

function tooBig(fault: FieldFault, found: Found): void {
  found.values.push(fault);
  found.sizes.push(fault);
}

function check(schema: SchemaNode, value: unknown, path: string, found: Found): void {
  if (found.shape.length >= MAX_FAULTS || found.values.length >= MAX_FAULTS) return;
  const wanted = wrongType(schema, value);
  if (wanted !== undefined) {
    found.shape.push(
      invalid(path === "" ? "<root>" : path, brief(value), `must be of type ${wanted}, not ${typeName(value)}`),
    );
    return;
  }
  if (typeof value === "string") checkText(schema, value, path, found);
  else if (typeof value === "number") checkNumber(schema, value, path, found);
  else if (Array.isArray(value)) checkList(schema, value, path, found);
  else if (isRecord(value)) checkMembers(schema, value, path, found);
}

function checkMembers(schema: SchemaNode, value: Readonly<Record<string, unknown>>, path: string, found: Found): void {
  const at = (key: string): string => (path === "" ? key : `${path}.${key}`);
  for (const name of schema.required ?? []) {
    if (!Object.hasOwn(value, name) || value[name] === undefined) found.shape.push(required(at(name), ""));
  }
  const { properties, additionalProperties, maxProperties = Number.POSITIVE_INFINITY } = schema;
  const count = Object.keys(value).length;
  if (count > maxProperties) {
    tooBig(invalid(path, `${count} members`, `must have at most ${maxProperties} members`), found);
    return;
  }
  for (const [key, member] of Object.entries(value)) {
    const known = properties !== undefined && Object.hasOwn(properties, key) ? properties[key] : additionalProperties;
    if (known !== undefined) check(known, member, at(key), found);
    else if (properties !== undefined && schema["x-kubernetes-preserve-unknown-fields"] !== true) {
      found.unknown.push(at(key));
    }
  }
}

function checkList(schema: SchemaNode, value: readonly unknown[], path: string, found: Found): void {
  const { minItems = 0, maxItems = Number.POSITIVE_INFINITY, items } = schema;
  if (value.length < minItems) {
    found.values.push(
      required(path, minItems === 1 ? "at least one item is needed" : `at least ${minItems} items are needed`),
    );
  }
  if (value.length > maxItems) {
    tooBig(invalid(path, `${value.length} items`, `must have at most ${maxItems} items`), found);
  }
  if (items === undefined) return;
  for (const [index, item] of value.slice(0, maxItems).entries()) check(items, item, `${path}[${index}]`, found);
}

function checkText(schema: SchemaNode, value: string, path: string, found: Found): void {
  if (schema.enum !== undefined && !schema.enum.includes(value)) {
    found.values.push(
      notSupported(
        path,
        value,
        schema.enum.filter((one) => one !== ""),
      ),
    );
  }
  if (schema.maxLength !== undefined && [...value].length > schema.maxLength) {
    tooBig(tooLong(path, schema.maxLength), found);
  } else if (schema.pattern !== undefined && !new RegExp(schema.pattern).test(value)) {
    found.values.push(invalid(path, value, `must match ${schema.pattern}`));
  }
  if (schema.format === "cidr" && Cidr.tryParse(value) === undefined) {
    found.values.push(invalid(path, value, "must be a CIDR"));
  }
}

function checkNumber(schema: SchemaNode, value: number, path: string, found: Found): void {
  if (schema.format === "int32" && (value < -INT32 || value >= INT32)) {
    found.values.push(invalid(path, value, "must fit 32 bits"));
  } else if (schema.minimum !== undefined && value < schema.minimum) {
    found.values.push(invalid(path, value, `must be at least ${schema.minimum}`));
  } else if (schema.maximum !== undefined && value > schema.maximum) {
    found.values.push(invalid(path, value, `must be at most ${schema.maximum}`));
  }
}

/** The type that a value should have; `undefined` if it has it. */
function wrongType(schema: SchemaNode, value: unknown): string | undefined {
  const name = typeName(value);
  if (schema["x-kubernetes-int-or-string"] === true) {
    return name === "integer" || name === "string" ? undefined : "integer or string";
  }
  return schema.type === undefined || schema.type === name ? undefined : schema.type;
}

function typeName(value: unknown): string {
  if (value === null || value === undefined) return "null";
  if (Array.isArray(value)) return "array";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "number";
  return typeof value;
}

/** The text of a value for a message. A list or object is not printed, because it can have any size. */
function brief(value: unknown): unknown {
  if (typeof value === "string") return value.slice(0, 200);
  return typeof value === "object" && value !== null ? typeName(value) : value;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
