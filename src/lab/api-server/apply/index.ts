/** Server-side apply: owners of fields, and the result of an applied configuration. Pure. */
import { ApiError, type Cause, type ErrorSubject } from "../errors.ts";
import { isObject, type JsonObject } from "../object/json.ts";
import type { ManagedFieldsEntry } from "../object/meta.ts";
import { type Definitions, resolve, type Schema } from "../schema/index.ts";
import { describePath, FieldSet } from "./field-set.ts";
import { decodeManaged, encodeManaged, type Managed, type Manager, sameManager } from "./managed-fields.ts";
import { compare, mergeTyped, removeFields, repeatedIn, toFieldSet } from "./typed.ts";

/** Fields that the server owns: never in a manager's set (apimachinery managedfields stripMeta). */
const SERVER_FIELDS = decodeFixed({
  "f:apiVersion": {},
  "f:kind": {},
  "f:metadata": {
    ".": {},
    "f:name": {},
    "f:namespace": {},
    "f:creationTimestamp": {},
    "f:selfLink": {},
    "f:uid": {},
    "f:clusterName": {},
    "f:generation": {},
    "f:managedFields": {},
    "f:resourceVersion": {},
    "f:deletionTimestamp": {},
    "f:deletionGracePeriodSeconds": {},
    "f:generateName": {},
  },
});

function decodeFixed(fields: JsonObject): FieldSet {
  return FieldSet.decode(fields) ?? new FieldSet();
}

/** `metadata` itself is not owned, but its members are: unlike the other entries, this entry does not hide its members. */
function strip(fields: FieldSet): FieldSet {
  const without = new FieldSet();
  for (const element of fields.elements()) {
    if (element === "f:apiVersion" || element === "f:kind") continue;
    const child = fields.child(element);
    const kept = element === "f:metadata" ? child?.without(SERVER_FIELDS.child("f:metadata") ?? new FieldSet()) : child;
    if (element !== "f:metadata" && fields.hasMember(element)) without.insert(element);
    if (kept !== undefined) without.insertChild(element, kept);
  }
  return without;
}

/** The parts of a kind that both operations need. */
export interface TypeInfo {
  readonly schema: Schema;
  readonly definitions: Definitions;
  readonly subject: ErrorSubject;
  /** Top-level members that this endpoint does not write, such as `status` on the main resource. */
  readonly reset: readonly string[];
}

/** The managed fields after a write that was not an apply: the writer owns the changed fields. */
export function trackUpdate(
  type: TypeInfo,
  old: JsonObject | undefined,
  now: JsonObject,
  entries: readonly ManagedFieldsEntry[],
  manager: Manager,
  time: string,
): ManagedFieldsEntry[] {
  const schema = resolve(type.schema, type.definitions);
  const before = withoutReset(old ?? {}, type.reset);
  const changes = compare(before, withoutReset(now, type.reset), schema, type.definitions);
  const written = strip(changes.added.union(changes.modified));
  const managed = decodeManaged(entries).map((item) => shrink(item, written, changes.removed, manager));
  const mine = managed.find((item) => sameManager(item, manager));
  const fields = (mine?.fields ?? new FieldSet()).union(written).difference(changes.removed);
  const changed = mine === undefined || !fields.equals(mine.fields) || !written.isEmpty();
  const next: Managed = { ...manager, fields, time: changed ? time : mine?.time };
  return encodeManaged([...managed.filter((item) => item !== mine), next]);
}

function shrink(item: Managed, written: FieldSet, removed: FieldSet, manager: Manager): Managed {
  const rest = item.fields.difference(removed);
  return { ...item, fields: sameManager(item, manager) ? rest : rest.difference(written) };
}

function withoutReset(object: JsonObject, reset: readonly string[]): JsonObject {
  if (reset.length === 0) return object;
  return Object.fromEntries(Object.entries(object).filter(([key]) => !reset.includes(key)));
}

/** The outcome of an apply. */
export interface Applied {
  readonly object: JsonObject;
  readonly managedFields: ManagedFieldsEntry[];
}

/**
 * Applies a configuration: merges it into `live`, removes fields that this manager applied before and that no manager owns now.
 * Throws ApiError `Conflict` with a cause for each field that another manager owns with another value, unless `force`, and `InternalError`
 * for a configuration with two items of one key.
 */
export function applyConfiguration(
  type: TypeInfo,
  live: JsonObject,
  config: JsonObject,
  entries: readonly ManagedFieldsEntry[],
  options: { readonly manager: Manager; readonly time: string; readonly force: boolean; readonly name: string },
): Applied {
  const schema = resolve(type.schema, type.definitions);
  const wanted = withoutReset(config, type.reset);
  const repeated = repeatedIn(wanted, schema, type.definitions);
  // As kube-apiserver, which knows no better reason for it. Its message names the key too.
  if (repeated !== undefined)
    throw new ApiError("InternalError", `failed to create typed patch object: ${repeated}: duplicate entries for key`);
  const managed = adopt(decodeManaged(entries), live, schema, type);
  const mine = managed.find((item) => sameManager(item, options.manager));
  const others = managed.filter((item) => item !== mine);
  const fields = toFieldSet(wanted, schema, type.definitions);
  const merged = mergeTyped(live, wanted, schema, type.definitions);
  const owned = others.reduce((all, item) => all.union(item.fields), fields);
  const pruned = mine === undefined ? merged : removeFields(merged, mine.fields, owned, schema, type.definitions);
  const object = isObject(pruned) ? { ...pruned, metadata: pruned["metadata"] ?? live["metadata"] ?? {} } : {};
  const changes = compare(live, object, schema, type.definitions);
  const written = strip(changes.added.union(changes.modified));
  const conflicts = others
    .map((item) => ({ item, lost: item.fields.intersection(written) }))
    .filter(({ lost }) => !lost.isEmpty());
  if (conflicts.length > 0 && !options.force) throw applyConflict(conflicts);
  const rest = others.map((item) => ({ ...item, fields: item.fields.difference(written).difference(changes.removed) }));
  const stripped = strip(fields);
  const changed = mine === undefined || !mine.fields.equals(stripped);
  const next: Managed = { ...options.manager, fields: stripped, time: changed ? options.time : mine.time };
  return { object, managedFields: encodeManaged([...rest, next]) };
}

/** Fields without a manager belong to the manager `before-first-apply`. */
function adopt(managed: Managed[], live: JsonObject, schema: Schema, type: TypeInfo): Managed[] {
  if (managed.length > 0 || Object.keys(live).length === 0) return managed;
  const fields = strip(toFieldSet(withoutReset(live, type.reset), schema, type.definitions));
  if (fields.isEmpty()) return managed;
  const apiVersion = typeof live["apiVersion"] === "string" ? live["apiVersion"] : "";
  return [{ manager: "before-first-apply", operation: "Update", apiVersion, subresource: "", fields, time: undefined }];
}

function applyConflict(conflicts: readonly { item: Managed; lost: FieldSet }[]): ApiError {
  const causes: Cause[] = conflicts.flatMap(({ item, lost }) =>
    lost.paths().map((path) => ({
      reason: "FieldManagerConflict",
      message: `conflict with ${describeManager(item)}`,
      field: describePath(path),
    })),
  );
  const lines = conflicts.map(({ item, lost }) => {
    const fields = lost.paths().map((path) => describePath(path));
    return `conflict${fields.length > 1 ? "s" : ""} with ${describeManager(item)}:${fields.length > 1 ? "\n- " : " "}${fields.join("\n- ")}`;
  });
  const count = causes.length;
  return new ApiError("Conflict", `Apply failed with ${count} conflict${count === 1 ? "" : "s"}: ${lines.join("\n")}`, {
    details: { causes },
  });
}

function describeManager(item: Managed): string {
  const using =
    item.operation === "Apply" ? "" : ` using ${item.apiVersion}${item.time === undefined ? "" : ` at ${item.time}`}`;
  const sub = item.subresource === "" ? "" : ` with subresource ${JSON.stringify(item.subresource)}`;
  return `${JSON.stringify(item.manager)}${sub}${using}`;
}
