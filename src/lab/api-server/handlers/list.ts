import { ApiError, badRequest } from "../errors.ts";
import type { JsonObject } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import type { ResourceDef } from "../resources/types.ts";
import { checkFieldSelector, type FieldSelector, matchesFields, parseFieldSelector } from "../select/field.ts";
import { type LabelSelector, matchesLabels, parseLabelSelector } from "../select/label.ts";
import type { Collection } from "../store/collection.ts";
import type { Entry } from "../store/entry.ts";
import { fromStored } from "./object-rules.ts";

/** The selection of a list or watch. */
export interface Selection {
  readonly namespace: string;
  readonly labels: LabelSelector;
  readonly fields: FieldSelector;
}

/** Reads `labelSelector` and `fieldSelector`. Throws ApiError `BadRequest`. */
export function parseSelection(
  resource: ResourceDef,
  namespace: string,
  name: string,
  query: URLSearchParams,
): Selection {
  const fields = [...parseFieldSelector(query.get("fieldSelector") ?? "")];
  checkFieldSelector(fields, resource);
  if (name !== "") fields.push({ field: "metadata.name", equal: true, value: name });
  return { namespace, labels: parseLabelSelector(query.get("labelSelector") ?? ""), fields };
}

/** Returns true if only the namespace is selected. */
export function selectsAll(selection: Selection): boolean {
  return selection.labels.length === 0 && selection.fields.length === 0;
}

/** Returns true if a stored object is selected. */
export function selects(selection: Selection, resource: ResourceDef, object: KubeObject): boolean {
  if (selection.namespace !== "" && object.metadata.namespace !== selection.namespace) return false;
  if (!matchesLabels(selection.labels, object.metadata.labels)) return false;
  return (
    selection.fields.length === 0 ||
    matchesFields(selection.fields, resource.fromStorage === undefined ? object : bothViews(resource, object))
  );
}

/** Field selectors may name members of either view of an event. */
function bothViews(resource: ResourceDef, object: KubeObject): KubeObject {
  return { ...object, ...fromStored(resource, object) };
}

/** A list's result. */
export interface Listed {
  readonly entries: readonly Entry[];
  readonly listMeta: JsonObject;
}

/** Lists a collection, in pages if requested. Throws ApiError: `Expired` (410) for an old `continue`, `BadRequest`. */
export function listEntries(
  collection: Collection,
  resource: ResourceDef,
  selection: Selection,
  query: URLSearchParams,
  revision: number,
): Listed {
  const limit = numberOf(query, "limit");
  const prefix = selection.namespace === "" ? "" : `${selection.namespace}/`;
  const token = query.get("continue") ?? "";
  const wanted = query.get("resourceVersion") ?? "";
  if (token === "") checkRevision(query.get("resourceVersionMatch") ?? "", wanted, collection, revision);
  if (token !== "" && wanted !== "" && wanted !== "0") {
    throw badRequest("specifying resource version is not allowed when using continue");
  }
  const exact = query.get("resourceVersionMatch") === "Exact";
  const start =
    token === ""
      ? { revision: exact ? Number(wanted) : revision, after: "" }
      : decodeContinue(token, collection, revision);
  const all = selectsAll(selection);
  const unlimited = limit === 0;
  const indexed = token === "" && !exact ? listIndexed(collection, resource, selection) : undefined;
  if (indexed !== undefined && (unlimited || indexed.length <= limit))
    return { entries: indexed, listMeta: metaOf(start.revision) };
  const entries: Entry[] = [];
  let { after } = start;
  for (;;) {
    const size = unlimited ? Number.MAX_SAFE_INTEGER : limit - entries.length;
    // With a selector most of a page may not match: so it is read in larger steps, and cut when the page is full.
    const page = collection.page({ prefix, after, limit: all ? size : Math.max(size, 500), revision: start.revision });
    for (const [index, entry] of page.entries.entries()) {
      if (all || selects(selection, resource, entry.object)) entries.push(entry);
      if (!unlimited && entries.length >= limit) {
        const left = page.remaining + page.entries.length - index - 1;
        return {
          entries,
          listMeta: left === 0 ? metaOf(start.revision) : moreMeta(start.revision, entry.key, all ? left : undefined),
        };
      }
    }
    if (page.next === undefined) return { entries, listMeta: metaOf(start.revision) };
    after = page.next;
  }
}

/** The field by which kubelets select; a real server has an index of it. */
const INDEXED = { storage: "pods", field: "spec.nodeName" } as const;

/** The present entries of a selection that an index serves. */
function listIndexed(collection: Collection, resource: ResourceDef, selection: Selection): Entry[] | undefined {
  if (collection.name !== INDEXED.storage) return undefined;
  const term = selection.fields.find(({ field, equal }) => equal && field === INDEXED.field);
  if (term === undefined) return undefined;
  return collection.listBy(term.field, term.value).filter(({ object }) => selects(selection, resource, object));
}

function metaOf(revision: number): JsonObject {
  return { resourceVersion: String(revision) };
}

function moreMeta(revision: number, after: string, remaining: number | undefined): JsonObject {
  const token = Buffer.from(JSON.stringify({ v: "meta.k8s.io/v1", rv: revision, start: after })).toString("base64url");
  return {
    resourceVersion: String(revision),
    continue: token,
    ...(remaining === undefined ? {} : { remainingItemCount: remaining }),
  };
}

function decodeContinue(token: string, collection: Collection, now: number): { revision: number; after: string } {
  let parsed: unknown;
  try {
    parsed = JSON.parse(Buffer.from(token, "base64url").toString("utf8"));
  } catch (error) {
    if (error instanceof SyntaxError) throw badRequest(`continue key is not valid: ${error.message}`, error);
    throw error;
  }
  const { rv, start } =
    typeof parsed === "object" && parsed !== null ? (parsed as { rv?: unknown; start?: unknown }) : {};
  if (!Number.isSafeInteger(rv) || typeof rv !== "number" || typeof start !== "string" || rv > now) {
    throw badRequest("continue key is not valid: it was not made by this server");
  }
  // The token of an expired list: with it the client continues at the current state.
  if (rv === -1) return { revision: now, after: start };
  if (rv < collection.floor) {
    const inconsistent = Buffer.from(JSON.stringify({ v: "meta.k8s.io/v1", rv: -1, start })).toString("base64url");
    throw new ApiError(
      "Expired",
      "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results.",
      { listMeta: { continue: inconsistent } },
    );
  }
  return { revision: rv, after: start };
}

function checkRevision(match: string, wanted: string, collection: Collection, now: number): void {
  if (match !== "" && match !== "Exact" && match !== "NotOlderThan") {
    throw badRequest(
      `resourceVersionMatch: Unsupported value: ${JSON.stringify(match)}: supported values: "Exact", "NotOlderThan"`,
    );
  }
  if (match !== "" && wanted === "")
    throw badRequest("resourceVersionMatch is forbidden unless resourceVersion is provided");
  if (match === "Exact" && wanted === "0")
    throw badRequest('resourceVersionMatch "Exact" is forbidden for resourceVersion "0"');
  const revision = parseRevision(wanted);
  if (revision > now) throw tooLarge(revision, now);
  if (match === "Exact" && revision < collection.floor) throw expired(revision, collection.floor);
}

/** Reads a resourceVersion; empty is 0. Throws ApiError `BadRequest`. */
export function parseRevision(text: string): number {
  if (text === "") return 0;
  if (!/^\d{1,15}$/.test(text))
    throw badRequest(`invalid resource version ${JSON.stringify(text.slice(0, 100))}: want a number`);
  return Number(text);
}

/** Throws 504 for a revision that does not exist yet. */
export function tooLarge(revision: number, now: number): ApiError {
  return new ApiError("Timeout", `Too large resource version: ${revision}, current: ${now}`, {
    details: {
      causes: [{ reason: "ResourceVersionTooLarge", message: "Too large resource version", field: "" }],
      retryAfterSeconds: 1,
    },
  });
}

/** Throws 410 for a revision whose history was dropped. */
export function expired(revision: number, floor: number): ApiError {
  return new ApiError("Expired", `too old resource version: ${revision} (${floor})`);
}

/** A non-negative whole number of the query; 0 when absent. Throws ApiError `BadRequest`. */
export function numberOf(query: URLSearchParams, name: string): number {
  const text = query.get(name) ?? "";
  if (text === "") return 0;
  if (!/^\d{1,10}$/.test(text))
    throw badRequest(`invalid ${name} ${JSON.stringify(text.slice(0, 100))}: want a whole number`);
  return Number(text);
}
