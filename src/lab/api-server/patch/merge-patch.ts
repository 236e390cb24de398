import { isObject, type Json, type JsonObject, own, put } from "../object/json.ts";

/** Applies an RFC 7386 merge patch; the inputs are not changed, and unchanged parts are shared. */
export function applyMergePatch(target: Json | undefined, patch: Json): Json {
  if (!isObject(patch)) return patch;
  const result: JsonObject = isObject(target) ? { ...target } : {};
  for (const key of Object.keys(patch)) {
    const value = patch[key];
    if (value === undefined) continue;
    if (value === null) delete result[key];
    else put(result, key, applyMergePatch(own(result, key), value));
  }
  return result;
}
