import type { Schema } from "../schema/schema.ts";
import { type ObjectType, T, type Type } from "./types.ts";

const RESERVED = new Set(
  "true false null in as break const continue else for function if import let loop package namespace return var void while".split(
    " ",
  ),
);
const ESCAPES: Readonly<Record<string, string>> = {
  __: "__underscores__",
  ".": "__dot__",
  "-": "__dash__",
  "/": "__slash__",
};

/** A property's name in expressions; undefined for a name that expressions cannot contain (Kubernetes, CEL in CRDs: escaping). */
export function escapeName(name: string): string | undefined {
  if (RESERVED.has(name)) return `__${name}__`;
  if (!/^[A-Za-z_./-][\w./-]*$/.test(name)) return undefined;
  return name.replace(/__|[.\-/]/g, (found) => ESCAPES[found] ?? found);
}

/**
 * The type of a structural schema for expressions; undefined for data without a schema, which expressions cannot use. The root of a
 * resource always has `apiVersion`, `kind`, `metadata.name` and `metadata.generateName`, and no other metadata.
 */
export function schemaType(schema: Schema, name: string, isRoot: boolean): Type | undefined {
  if (schema["x-kubernetes-int-or-string"] === true) return T.dyn;
  switch (schema.type) {
    case "array": {
      const item =
        schema.items === undefined ? undefined : schemaType(schema.items, `${name}.@idx`, isEmbedded(schema.items));
      return item === undefined ? undefined : { kind: "list", item };
    }
    case "object":
      return objectType(schema, name, isRoot);
    case "string":
      return stringType(schema.format);
    case "boolean":
      return T.bool;
    case "number":
      return T.double;
    case "integer":
      return T.int;
    default:
      return undefined;
  }
}

/** Returns true if a schema is of an object with an apiVersion, kind and metadata of its own. */
export function isEmbedded(schema: Schema): boolean {
  return schema["x-kubernetes-embedded-resource"] === true;
}

const META: Schema = { type: "object", properties: { name: { type: "string" }, generateName: { type: "string" } } };
const ROOT: Readonly<Record<string, Schema>> = {
  apiVersion: { type: "string" },
  kind: { type: "string" },
  metadata: META,
};

function objectType(schema: Schema, name: string, isRoot: boolean): Type | undefined {
  const extra = schema.additionalProperties;
  if (typeof extra === "object") {
    const value = schemaType(extra, `${name}.@elem`, isEmbedded(extra));
    return value === undefined ? undefined : { kind: "map", key: T.string, value };
  }
  const fields = new Map<string, { readonly name: string; readonly type: Type }>();
  for (const [key, property] of Object.entries({ ...schema.properties, ...(isRoot ? ROOT : {}) })) {
    const identifier = escapeName(key);
    const type = identifier === undefined ? undefined : schemaType(property, `${name}.${key}`, isEmbedded(property));
    if (identifier === undefined || type === undefined) continue;
    fields.set(identifier, { name: key, type });
    // Most reserved words are allowed after a dot.
    if (RESERVED.has(key)) fields.set(key, { name: key, type });
  }
  const type: ObjectType = { kind: "object", name, fields };
  return type;
}

function stringType(format: string | undefined): Type {
  if (format === "byte") return T.bytes;
  if (format === "duration") return T.duration;
  return format === "date" || format === "date-time" ? T.timestamp : T.string;
}
