import { asObject, asString, isObject, type Json } from "../object/json.ts";
import type { Column } from "../resources/types.ts";
import { AGE, age, NAME } from "./columns.ts";
import { evaluatePath, parsePath } from "./json-path.ts";

/** Columns from `additionalPrinterColumns` of a CRD: the name comes first; without any such columns the age follows. */
export function customColumns(definitions: readonly Json[]): readonly Column[] {
  if (definitions.length === 0) return [NAME, AGE];
  return [NAME, ...definitions.map((definition) => customColumn(asObject(definition) as { [key: string]: Json }))];
}

const TYPES = ["string", "integer", "number", "boolean", "date"] as const;

function customColumn(definition: { readonly [key: string]: Json }): Column {
  const type = TYPES.find((known) => known === definition["type"]) ?? "string";
  const path = parsePath(asString(definition["jsonPath"]));
  return {
    name: asString(definition["name"]),
    type,
    format: asString(definition["format"]),
    description: asString(definition["description"]),
    priority: Number(definition["priority"] ?? 0),
    cell: (object, nowMs) => cellOf(path === undefined ? [] : evaluatePath(path, object), type, nowMs),
  };
}

/** Shows only the first match, like the real server (apiextensions tableconvertor). */
function cellOf(matches: readonly Json[], type: Column["type"], nowMs: number): Json {
  const [value] = matches;
  if (value === undefined || value === null) return type === "string" || type === "date" ? "" : null;
  switch (type) {
    case "integer":
      return typeof value === "number" ? Math.trunc(value) : null;
    case "number":
      return typeof value === "number" ? value : null;
    case "boolean":
      return typeof value === "boolean" ? value : null;
    case "date":
      return typeof value === "string" ? age(value, nowMs) : "<invalid>";
    case "string":
      if (matches.length > 1) return JSON.stringify(matches);
      return isObject(value) || Array.isArray(value) ? JSON.stringify(value) : String(value);
  }
}
