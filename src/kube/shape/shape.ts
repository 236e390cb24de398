/**
 * `name`: the name of an object: up to 253 letters, digits, dots, dashes and underscores; `ascii`: up to 253 printable characters of ASCII,
 * or none. Fields that the shape does not name are ignored.
 */
export type Shape =
  | "string"
  | "ascii"
  | "number"
  | "boolean"
  | "name"
  | { readonly list: Shape }
  | { readonly map: Shape }
  | { readonly fields: Readonly<Record<string, Shape>>; readonly required?: readonly string[] };

const NAME = /^[A-Za-z0-9._-]{1,253}$/;
const ASCII = /^[\x20-\x7e]{0,253}$/;

/**
 * The first value that does not fit, with its path; `undefined` if all fit. A null field counts as absent, as for API servers, and is
 * removed, so that readers have one form of absence.
 */
export function fitShape(value: unknown, shape: Shape, path = ""): string | undefined {
  if (typeof shape === "string") return fitScalar(value, shape, path);
  if ("list" in shape) {
    if (!Array.isArray(value)) return wrong(value, "not a list", path);
    for (const [at, item] of value.entries()) {
      const fault = fitShape(item, shape.list, `${path}[${at}]`);
      if (fault !== undefined) return fault;
    }
    return undefined;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return wrong(value, "not an object", path);
  const record = value as Record<string, unknown>;
  return "map" in shape ? fitMap(record, shape.map, path) : fitFields(record, shape, path);
}

function fitFields(
  record: Record<string, unknown>,
  { fields, required = [] }: Extract<Shape, { readonly fields: unknown }>,
  path: string,
): string | undefined {
  for (const [key, shape] of Object.entries(fields)) {
    const at = path === "" ? key : `${path}.${key}`;
    const value = Object.hasOwn(record, key) ? record[key] : undefined;
    if (value === undefined || value === null) {
      if (required.includes(key)) return `${at} is missing`;
      if (value === null) delete record[key];
      continue;
    }
    const fault = fitShape(value, shape, at);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

function fitMap(record: Record<string, unknown>, shape: Shape, path: string): string | undefined {
  for (const [key, value] of Object.entries(record)) {
    if (value === null) {
      delete record[key];
      continue;
    }
    const fault = fitShape(value, shape, `${path}[${JSON.stringify(key.slice(0, 60))}]`);
    if (fault !== undefined) return fault;
  }
  return undefined;
}

const SCALARS = {
  string: { is: (value: unknown) => typeof value === "string", not: "not a text" },
  number: { is: (value: unknown) => typeof value === "number", not: "not a number" },
  boolean: { is: (value: unknown) => typeof value === "boolean", not: "neither true nor false" },
  ascii: { is: (value: unknown) => typeof value === "string" && ASCII.test(value), not: "not a text of ASCII" },
  name: { is: (value: unknown) => typeof value === "string" && NAME.test(value), not: "not a name" },
} as const;

function fitScalar(value: unknown, shape: keyof typeof SCALARS, path: string): string | undefined {
  const { is, not } = SCALARS[shape];
  return is(value) ? undefined : wrong(value, not, path);
}

function wrong(value: unknown, what: string, path: string): string {
  return `${path === "" ? "the object" : path}: ${(JSON.stringify(value) ?? "nothing").slice(0, 60)} is ${what}`;
}

/** Pure: the field of a value of any kind; `undefined` if the value is no object, or has no such field of its own. */
export function field(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null && Object.hasOwn(value, name)
    ? (value as Readonly<Record<string, unknown>>)[name]
    : undefined;
}
