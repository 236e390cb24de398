/** The static type of an expression. */
export type Type =
  | { readonly kind: Scalar }
  | { readonly kind: "list" | "optional"; readonly item: Type }
  | { readonly kind: "map"; readonly key: Type; readonly value: Type }
  | ObjectType
  /** One type in a signature, or the unknown item type of an empty list. */
  | { readonly kind: "var"; readonly name: string };

/** Types without parts. */
export type Scalar =
  | "bool"
  | "int"
  | "double"
  | "string"
  | "bytes"
  | "null"
  | "timestamp"
  | "duration"
  | "type"
  | "dyn";

/** An object with the fields that a schema names. Two object types are equal only if they come from the same place of a schema. */
export interface ObjectType {
  readonly kind: "object";
  /** For messages. */
  readonly name: string;
  /** The fields by CEL identifier, which differs from a JSON name that is not an identifier. */
  readonly fields: ReadonlyMap<string, { readonly name: string; readonly type: Type }>;
}

/** The types of variables. */
export type Bindings = ReadonlyMap<string, Type>;

/** The types without parts, as values. */
export const T: { readonly [K in Scalar]: { readonly kind: K } } = Object.freeze({
  bool: { kind: "bool" },
  int: { kind: "int" },
  double: { kind: "double" },
  string: { kind: "string" },
  bytes: { kind: "bytes" },
  null: { kind: "null" },
  timestamp: { kind: "timestamp" },
  duration: { kind: "duration" },
  type: { kind: "type" },
  dyn: { kind: "dyn" },
});

/** Reads a type as signatures are written: `int`, `list<A>`, `map<string, A>`, `optional<A>`; one capital letter is a variable. */
export function typeOf(text: string): Type {
  const generic = /^(list|optional|map)<(.+)>$/.exec(text);
  if (generic === null) return /^[A-Z]$/.test(text) ? { kind: "var", name: text } : { kind: text as Scalar };
  const [, kind, inner = ""] = generic;
  if (kind === "map") {
    const [key = "", value = ""] = inner.split(", ");
    return { kind, key: typeOf(key), value: typeOf(value) };
  }
  return { kind: kind as "list" | "optional", item: typeOf(inner) };
}

/** A type as messages show it. */
export function showType(type: Type): string {
  switch (type.kind) {
    case "list":
      return `list(${showType(type.item)})`;
    case "optional":
      return `optional_type(${showType(type.item)})`;
    case "map":
      return `map(${showType(type.key)}, ${showType(type.value)})`;
    case "object":
      return type.name;
    case "var":
      return "dyn";
    case "timestamp":
    case "duration":
      return `google.protobuf.${type.kind === "timestamp" ? "Timestamp" : "Duration"}`;
    default:
      return type.kind;
  }
}

/** The type with its known variables replaced. */
export function substitute(type: Type, known: Bindings): Type {
  switch (type.kind) {
    case "var": {
      const bound = known.get(type.name);
      return bound === undefined ? type : substitute(bound, known);
    }
    case "list":
    case "optional":
      return { kind: type.kind, item: substitute(type.item, known) };
    case "map":
      return { kind: "map", key: substitute(type.key, known), value: substitute(type.value, known) };
    default:
      return type;
  }
}

/** Returns true if a value of `actual` fits `wanted`. Binds variables of both in `known`, also if it returns false. */
export function assignable(wanted: Type, actual: Type, known: Map<string, Type>): boolean {
  const to = substitute(wanted, known);
  const from = substitute(actual, known);
  if (to.kind === "var" || from.kind === "var") return bind(to, from, known);
  if (to.kind === "dyn" || from.kind === "dyn") return true;
  if (to.kind === "null" || from.kind === "null") return isNullable(to) && isNullable(from);
  if (to.kind === "object") return to === from;
  if (to.kind === "map")
    return from.kind === "map" && assignable(to.key, from.key, known) && assignable(to.value, from.value, known);
  if (to.kind === "list" || to.kind === "optional")
    return from.kind === to.kind && assignable(to.item, from.item, known);
  return to.kind === from.kind;
}

function bind(to: Type, from: Type, known: Map<string, Type>): boolean {
  if (to.kind === "var" && from.kind === "var" && to.name === from.name) return true;
  if (to.kind === "var") {
    if (holds(from, to.name)) return false;
    known.set(to.name, from);
  } else if (from.kind === "var") {
    if (holds(to, from.name)) return false;
    known.set(from.name, to);
  }
  return true;
}

function holds(type: Type, name: string): boolean {
  switch (type.kind) {
    case "var":
      return type.name === name;
    case "list":
    case "optional":
      return holds(type.item, name);
    case "map":
      return holds(type.key, name) || holds(type.value, name);
    default:
      return false;
  }
}

function isNullable(type: Type): boolean {
  return ["null", "object", "timestamp", "duration", "optional"].includes(type.kind);
}
