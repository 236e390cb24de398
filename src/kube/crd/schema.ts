/**
 * Structural schemas (apiextensions.k8s.io/v1) as data from which TypeScript derives the static type: one source for
 * the CRDs that ship and for the types that the code uses.
 */

/**
 * A rule in CEL. It may use only features of Kubernetes 1.29, because an API server refuses a CRD with a rule that it cannot compile: no
 * `isCIDR` (1.31) and no `optionalOldSelf` (1.30). A rule with `oldSelf` is not evaluated on create. A rule without it is evaluated on
 * every write; since 1.30 a violation in an unchanged part is only a warning. But an evaluation that ends in an error always refuses the
 * write, so a rule must always return a value.
 */
export interface SchemaRule {
  readonly rule: string;
  readonly message: string;
  /** Default: `FieldValueInvalid`. */
  readonly reason?: "FieldValueForbidden" | "FieldValueRequired";
  /** The path of the faulty field, relative to the field of the rule: `.ipv4`. */
  readonly fieldPath?: string;
}

/** A part of a JSON schema of a CRD. */
export interface SchemaNode {
  readonly type?: "object" | "array" | "string" | "integer" | "boolean";
  readonly description?: string;
  readonly format?: string;
  readonly default?: unknown;
  readonly enum?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly maxProperties?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly items?: SchemaNode;
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: SchemaNode;
  readonly anyOf?: readonly SchemaNode[];
  readonly "x-kubernetes-int-or-string"?: boolean;
  readonly "x-kubernetes-preserve-unknown-fields"?: boolean;
  readonly "x-kubernetes-validations"?: readonly SchemaRule[];
  readonly "x-kubernetes-list-type"?: "map";
  readonly "x-kubernetes-list-map-keys"?: readonly string[];
}

/** A schema whose values have the static type `T`. */
export type Schema<T> = SchemaNode & { readonly _value?: T };
/** The static type of a schema's values. */
export type Static<S> = S extends { readonly _value?: infer T } ? Exclude<T, undefined> : never;

type Shape = Readonly<Record<string, Schema<unknown>>>;
type ObjectOf<P extends Shape, R extends keyof P> = { [K in R]: Static<P[K]> } & {
  [K in Exclude<keyof P, R>]?: Static<P[K]>;
};
type Notes = Pick<SchemaNode, "description" | "default" | "x-kubernetes-validations">;

/** An object with the given fields, of which those in `required` must be present. */
export function object<const P extends Shape, const R extends keyof P & string = never>(
  properties: P,
  init: Notes & { readonly required?: readonly R[] } = {},
): Schema<ObjectOf<P, R>> {
  return { type: "object", ...init, properties };
}

/** An object with any keys. */
export function map<T>(
  values: Schema<T>,
  init: Notes & Pick<SchemaNode, "maxProperties"> = {},
): Schema<Record<string, T>> {
  return { type: "object", ...init, additionalProperties: values };
}

/** An object of type `T` whose fields the API server checks elsewhere, or not at all. */
export function opaque<T>(init: Notes = {}): Schema<T> {
  return { type: "object", ...init, "x-kubernetes-preserve-unknown-fields": true };
}

/** A list. */
export function array<T>(items: Schema<T>, init: Notes & Pick<SchemaNode, "minItems" | "maxItems"> = {}): Schema<T[]> {
  return { type: "array", ...init, items };
}

/** A list whose items are told apart by one field, which must be required: two writers can each apply their own items. */
export function listMap<T>(
  key: keyof T & string,
  items: Schema<T>,
  init: Parameters<typeof array>[1] = {},
): Schema<T[]> {
  return { ...array(items, init), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key] };
}

/** A text. */
export function string(init: Notes & Pick<SchemaNode, "format" | "maxLength" | "pattern"> = {}): Schema<string> {
  return { type: "string", ...init };
}

/** A text of a closed set. */
export function oneOf<const V extends string>(values: readonly V[], init: Notes = {}): Schema<V> {
  return { type: "string", ...init, enum: values };
}

/** A whole number that fits an int32. */
export function int32(init: Notes & Pick<SchemaNode, "minimum" | "maximum"> = {}): Schema<number> {
  return { type: "integer", format: "int32", ...init };
}

/** True or false. */
export function boolean(init: Notes = {}): Schema<boolean> {
  return { type: "boolean", ...init };
}

/** A whole number, or a text such as `25%`. */
export function intOrString(init: Notes & Pick<SchemaNode, "maxLength"> = {}): Schema<number | string> {
  return { ...init, anyOf: [{ type: "integer" }, { type: "string" }], "x-kubernetes-int-or-string": true };
}
