import { asObject, type Json, type JsonObject } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import type { Column } from "../resources/types.ts";

/** The part of the object in each row (meta/v1 TableOptions). */
export type IncludeObject = "None" | "Metadata" | "Object";

/** `v1`, or `v1beta1` for kubectl of 2018 and older controllers. */
export interface TableForm {
  readonly version: string;
  readonly include: IncludeObject;
}

/** One object with only its metadata (meta/v1 PartialObjectMetadata). */
export function partialMetadata(object: KubeObject, version = "v1"): JsonObject {
  return {
    kind: "PartialObjectMetadata",
    apiVersion: `meta.k8s.io/${version}`,
    metadata: asObject(object["metadata"]),
  };
}

/** Returns objects as a Table (meta/v1). */
export function toTable(
  columns: readonly Column[],
  objects: readonly KubeObject[],
  listMeta: JsonObject,
  form: TableForm,
  nowMs: number,
): JsonObject {
  return {
    kind: "Table",
    apiVersion: `meta.k8s.io/${form.version}`,
    metadata: listMeta,
    columnDefinitions: columns.map(definitionOf),
    rows: objects.map((object) => rowOf(columns, object, form, nowMs)),
  };
}

function definitionOf(column: Column): JsonObject {
  return {
    name: column.name,
    type: column.type,
    format: column.format ?? "",
    description: column.description ?? "",
    priority: column.priority ?? 0,
  };
}

function rowOf(columns: readonly Column[], object: KubeObject, form: TableForm, nowMs: number): Json {
  const cells = columns.map((column) => column.cell(object, nowMs));
  switch (form.include) {
    case "None":
      return { cells };
    case "Metadata":
      return { cells, object: partialMetadata(object, form.version) };
    case "Object":
      return { cells, object };
  }
}
