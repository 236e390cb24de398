import { badRequest } from "../errors.ts";
import { isObject, type JsonObject } from "../object/json.ts";
import type { ManagedFieldsEntry } from "../object/meta.ts";
import { FieldSet } from "./field-set.ts";

/** The writer of fields, and its operation. */
export interface Manager {
  readonly manager: string;
  readonly operation: "Apply" | "Update";
  readonly apiVersion: string;
  readonly subresource: string;
}

/** One manager with its fields. */
export interface Managed extends Manager {
  readonly fields: FieldSet;
  readonly time: string | undefined;
}

/** The bound on entries of `Update`; older entries are merged, as in the real server. */
export const MAX_UPDATE_MANAGERS = 10;
const ANCIENT = "ancient-changes";

/** Reads `metadata.managedFields`. Throws ApiError `BadRequest` when it is malformed. */
export function decodeManaged(entries: readonly ManagedFieldsEntry[]): Managed[] {
  const managed: Managed[] = [];
  for (const entry of entries) {
    // Clients request a reset by `[{}]`.
    if (!isObject(entry) || (entry.operation === undefined && entry.fieldsV1 === undefined)) continue;
    const { operation } = entry;
    const fields = isObject(entry.fieldsV1) ? FieldSet.decode(entry.fieldsV1) : new FieldSet();
    if ((operation !== "Apply" && operation !== "Update") || fields === undefined) {
      throw badRequest(
        `metadata.managedFields: cannot decode the entry of manager ${JSON.stringify(entry.manager ?? "")}`,
      );
    }
    managed.push({
      manager: entry.manager ?? "",
      operation,
      apiVersion: entry.apiVersion ?? "",
      subresource: entry.subresource ?? "",
      fields,
      time: entry.time,
    });
  }
  return managed;
}

/** Writes `metadata.managedFields`: it leaves out empty sets, and sorts by operation (`Apply` first), time and name. */
export function encodeManaged(managed: readonly Managed[]): ManagedFieldsEntry[] {
  return bounded(managed.filter((item) => !item.fields.isEmpty()))
    .sort(compareManaged)
    .map((item) => ({
      manager: item.manager,
      operation: item.operation,
      apiVersion: item.apiVersion,
      ...(item.time === undefined ? {} : { time: item.time }),
      fieldsType: "FieldsV1",
      fieldsV1: item.fields.encode() as JsonObject,
      ...(item.subresource === "" ? {} : { subresource: item.subresource }),
    }));
}

function compareManaged(a: Managed, b: Managed): number {
  if (a.operation !== b.operation) return a.operation === "Apply" ? -1 : 1;
  const left = [a.time ?? "", a.manager, a.apiVersion, a.subresource].join("\0");
  const right = [b.time ?? "", b.manager, b.apiVersion, b.subresource].join("\0");
  return left < right ? -1 : left > right ? 1 : 0;
}

function bounded(managed: Managed[]): Managed[] {
  const updates = managed.filter((item) => item.operation === "Update").sort(compareManaged);
  const excess = updates.length - MAX_UPDATE_MANAGERS;
  if (excess <= 0) return managed;
  const old = updates.slice(0, excess + 1);
  const last = old.at(-1);
  if (last === undefined) return managed;
  const fields = old.reduce((all, item) => all.union(item.fields), new FieldSet());
  const rest = managed.filter((item) => !old.includes(item));
  return [...rest, { ...last, manager: ANCIENT, subresource: "", fields }];
}

/**
 * Returns true if two managers belong to one entry. Apply entries of different versions belong together, because here versions differ only in
 * names.
 */
export function sameManager(a: Manager, b: Manager): boolean {
  return (
    a.manager === b.manager &&
    a.operation === b.operation &&
    a.subresource === b.subresource &&
    (a.apiVersion === b.apiVersion || a.operation === "Apply")
  );
}
