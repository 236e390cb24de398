import type { Json, JsonObject } from "../object/json.ts";

/** A structural schema with OpenAPI's names, for built-in kinds and CRDs. */
export interface Schema {
  $ref?: string;
  type?: string;
  format?: string;
  description?: string;
  title?: string;
  default?: Json;
  properties?: { [name: string]: Schema };
  additionalProperties?: Schema | boolean;
  items?: Schema;
  required?: string[];
  enum?: Json[];
  nullable?: boolean;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: boolean;
  exclusiveMaximum?: boolean;
  multipleOf?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  uniqueItems?: boolean;
  minProperties?: number;
  maxProperties?: number;
  allOf?: Schema[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  not?: Schema;
  "x-kubernetes-preserve-unknown-fields"?: boolean;
  "x-kubernetes-int-or-string"?: boolean;
  "x-kubernetes-embedded-resource"?: boolean;
  "x-kubernetes-list-type"?: string;
  "x-kubernetes-list-map-keys"?: string[];
  "x-kubernetes-map-type"?: string;
  "x-kubernetes-patch-strategy"?: string;
  "x-kubernetes-patch-merge-key"?: string;
  "x-kubernetes-group-version-kind"?: { group: string; version: string; kind: string }[];
  "x-kubernetes-validations"?: JsonObject[];
}

/** Named schemas: built-in definitions and, while they are served, those of CRDs. */
export type Definitions = ReadonlyMap<string, Schema>;

/** The prefix of every reference inside the server. */
export const REF_PREFIX = "#/definitions/";

/** A schema without constraints: any value, nothing pruned, nothing merged by key. */
export const ANYTHING: Schema = { "x-kubernetes-preserve-unknown-fields": true };

/**
 * Resolves `$ref` and a single-element `allOf` around one (how OpenAPI 3 attaches a description to a reference).
 * Members beside the reference take precedence. An unknown reference is {@link ANYTHING}.
 */
export function resolve(schema: Schema, definitions: Definitions): Schema {
  if (schema.$ref === undefined) return schema;
  const target = definitions.get(schema.$ref.slice(REF_PREFIX.length));
  if (target === undefined) return ANYTHING;
  const strategy = schema["x-kubernetes-patch-strategy"];
  const mapType = schema["x-kubernetes-map-type"];
  if (strategy === undefined && mapType === undefined) return target;
  return {
    ...target,
    ...(strategy === undefined ? {} : { "x-kubernetes-patch-strategy": strategy }),
    ...(mapType === undefined ? {} : { "x-kubernetes-map-type": mapType }),
  };
}

/** The schema of one member of an object; undefined when the schema does not know it. */
export function memberSchema(schema: Schema, key: string, definitions: Definitions): Schema | undefined {
  const known = schema.properties;
  if (known !== undefined && Object.hasOwn(known, key)) {
    const property = known[key];
    if (property !== undefined) return resolve(property, definitions);
  }
  const extra = schema.additionalProperties;
  if (typeof extra === "object") return resolve(extra, definitions);
  return extra === true ? ANYTHING : undefined;
}

/** The schema of a list's items. */
export function itemSchema(schema: Schema, definitions: Definitions): Schema {
  return schema.items === undefined ? ANYTHING : resolve(schema.items, definitions);
}
