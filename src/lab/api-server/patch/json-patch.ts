import { ApiError, badRequest } from "../errors.ts";
import { clone, equal, isObject, type Json, own, put } from "../object/json.ts";

/** The bound on operations in one patch (the real server's JSONPatch limit). */
export const MAX_JSON_PATCH_OPERATIONS = 10_000;

/** Applies an RFC 6902 patch to a copy. Throws ApiError: `BadRequest` for a malformed patch, `Invalid` if it does not fit the object. */
export function applyJsonPatch(document: Json, patch: Json): Json {
  if (!Array.isArray(patch)) throw badRequest("cannot apply the JSON patch: found no array of operations");
  if (patch.length > MAX_JSON_PATCH_OPERATIONS) {
    throw new ApiError(
      "RequestEntityTooLarge",
      `The allowed maximum operations in a JSON patch is ${MAX_JSON_PATCH_OPERATIONS}, got ${patch.length}`,
    );
  }
  let result = clone(document);
  for (const operation of patch) result = applyOperation(result, operation);
  return result;
}

function applyOperation(document: Json, operation: Json): Json {
  if (!isObject(operation) || typeof operation["op"] !== "string" || typeof operation["path"] !== "string") {
    throw badRequest("cannot apply the JSON patch: each operation needs a string op and a string path");
  }
  const path = parsePointer(operation["path"]);
  const value = operation["value"];
  switch (operation["op"]) {
    case "add":
      return add(document, path, needValue(value, operation["path"]));
    case "remove":
      return remove(document, path).rest;
    case "replace":
      return add(remove(document, path).rest, path, needValue(value, operation["path"]), true);
    case "test":
      if (!equal(find(document, path), value ?? null)) throw unfit(`testing value ${operation["path"]} failed`);
      return document;
    case "move": {
      const from = fromOf(operation["from"]);
      if (path.length > from.length && from.every((part, index) => part === path[index])) {
        throw unfit(`cannot move ${JSON.stringify(operation["from"])} into itself`);
      }
      const { rest, removed } = remove(document, from);
      return add(rest, path, removed);
    }
    case "copy":
      return add(document, path, clone(find(document, fromOf(operation["from"]))));
    default:
      throw badRequest(`cannot apply the JSON patch: unexpected kind: ${operation["op"]}`);
  }
}

function needValue(value: Json | undefined, path: string): Json {
  if (value === undefined) throw badRequest(`cannot apply the JSON patch: the operation on ${path} has no value`);
  return clone(value);
}

function fromOf(from: Json | undefined): string[] {
  if (typeof from !== "string") throw badRequest("cannot apply the JSON patch: move and copy need a string from");
  return parsePointer(from);
}

/** RFC 6901. */
function parsePointer(pointer: string): string[] {
  if (pointer === "") return [];
  if (!pointer.startsWith("/"))
    throw badRequest(`cannot apply the JSON patch: path ${JSON.stringify(pointer)} must start with /`);
  return pointer
    .slice(1)
    .split("/")
    .map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
}

function unfit(why: string): ApiError {
  return new ApiError("Invalid", `the server rejected our request due to an error in our request: ${why}`);
}

function missing(path: readonly string[]): ApiError {
  return unfit(`the path /${path.join("/")} does not exist`);
}

function indexOf(list: readonly Json[], part: string, path: readonly string[], end: number): number {
  const index = /^(0|[1-9]\d{0,8})$/.test(part) ? Number(part) : -1;
  if (index < 0 || index > end)
    throw unfit(`index ${part} in /${path.join("/")} is outside the list of ${list.length}`);
  return index;
}

function child(value: Json, part: string, path: readonly string[]): Json {
  if (Array.isArray(value)) {
    const item = value[indexOf(value, part, path, value.length - 1)];
    if (item === undefined) throw missing(path);
    return item;
  }
  const member = isObject(value) ? own(value, part) : undefined;
  if (member === undefined) throw missing(path);
  return member;
}

function find(document: Json, path: readonly string[]): Json {
  return path.reduce<Json>((here, part) => child(here, part, path), document);
}

function add(document: Json, path: readonly string[], value: Json, replacing = false): Json {
  const last = path.at(-1);
  if (last === undefined) return value;
  const parent = find(document, path.slice(0, -1));
  if (Array.isArray(parent)) {
    parent.splice(last === "-" && !replacing ? parent.length : indexOf(parent, last, path, parent.length), 0, value);
  } else if (isObject(parent)) put(parent, last, value);
  else throw missing(path);
  return document;
}

function remove(document: Json, path: readonly string[]): { rest: Json; removed: Json } {
  const last = path.at(-1);
  if (last === undefined) return { rest: null, removed: document };
  const parent = find(document, path.slice(0, -1));
  const removed = child(parent, last, path);
  if (Array.isArray(parent)) parent.splice(Number(last), 1);
  else if (isObject(parent)) delete parent[last];
  return { rest: document, removed };
}
