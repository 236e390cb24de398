import { OvsdbError } from "./errors.ts";

/** A value of a column (RFC 7047 section 5.1): an atom, or `["uuid", …]`, `["set", […]]`, `["map", […]]`. */
export type OvsdbValue = string | number | boolean | readonly ["uuid" | "named-uuid", string] | OvsdbSet | OvsdbMap;
type OvsdbSet = readonly ["set", readonly OvsdbValue[]];
type OvsdbMap = readonly ["map", readonly (readonly [OvsdbValue, OvsdbValue])[]];

/** A row of an answer: columns by name. */
export type OvsdbRow = Readonly<Record<string, unknown>>;

/** One operation of a transaction (RFC 7047 section 5.2). */
export type OvsdbOperation = { readonly op: string } & Readonly<Record<string, unknown>>;

/** A map of texts as the database writes it. */
export function mapOf(entries: Readonly<Record<string, string>>): OvsdbMap {
  return ["map", Object.entries(entries)];
}

/** The texts of a map column. Entries that are not texts are left out. Throws {@link OvsdbError} `malformed`. */
export function textMap(value: unknown): Readonly<Record<string, string>> {
  const entries = tagged(value, "map");
  if (entries === undefined) throw malformed("a map", value);
  return Object.fromEntries(
    entries.flatMap((entry): [string, string][] => {
      const [key, text] = Array.isArray(entry) ? (entry as readonly unknown[]) : [];
      return typeof key === "string" && typeof text === "string" ? [[key, text]] : [];
    }),
  );
}

/** The ids in a column of references; a set of one may be written without the set. Throws {@link OvsdbError} `malformed`. */
export function uuids(value: unknown): readonly string[] {
  const set = tagged(value, "set") ?? [value];
  return set.map((one) => {
    const [tag, id] = Array.isArray(one) ? (one as readonly unknown[]) : [];
    if (tag !== "uuid" || typeof id !== "string") throw malformed("a uuid", one);
    return id;
  });
}

/** The id of a row. Throws {@link OvsdbError} `malformed`. */
export function uuidOf(row: OvsdbRow): string {
  const [id] = uuids(row["_uuid"]);
  if (id === undefined) throw malformed("a uuid", row["_uuid"]);
  return id;
}

/** A text column. Throws {@link OvsdbError} `malformed`. */
export function textOf(row: OvsdbRow, column: string): string {
  const value = row[column];
  if (typeof value !== "string") throw malformed(`a text in ${column}`, value);
  return value;
}

/** A column with at most one atom; `undefined` for the empty set. */
export function optional(row: OvsdbRow, column: string): unknown {
  const value = row[column];
  const set = tagged(value, "set");
  return set === undefined ? value : set[0];
}

function tagged(value: unknown, tag: "set" | "map"): readonly unknown[] | undefined {
  if (!Array.isArray(value) || value.length !== 2 || value[0] !== tag) return undefined;
  const inner: unknown = value[1];
  return Array.isArray(inner) ? (inner as readonly unknown[]) : undefined;
}

/** The maximum length of a value in a message, in characters. */
const MAX_SHOWN = 100;

function malformed(wanted: string, value: unknown): OvsdbError {
  const found = (JSON.stringify(value) ?? "nothing").slice(0, MAX_SHOWN);
  return new OvsdbError("malformed", `the database of Open vSwitch: ${found} in place of ${wanted}`);
}
