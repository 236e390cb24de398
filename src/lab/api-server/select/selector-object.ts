import { asArray, asObject, asString, isObject, type Json, type JsonObject } from "../object/json.ts";

/** Returns true if labels satisfy a LabelSelector object (meta/v1). An absent selector matches no object, an empty selector every object. */
export function selectorMatches(selector: Json | undefined, labels: JsonObject): boolean {
  if (!isObject(selector)) return false;
  const wanted = asObject(selector["matchLabels"]);
  if (!Object.entries(wanted).every(([key, value]) => Object.hasOwn(labels, key) && labels[key] === value))
    return false;
  return asArray(selector["matchExpressions"]).every((item) => expressionHolds(asObject(item), labels));
}

function expressionHolds(term: JsonObject, labels: JsonObject): boolean {
  const key = asString(term["key"]);
  const value = Object.hasOwn(labels, key) ? labels[key] : undefined;
  const listed = value !== undefined && asArray(term["values"]).includes(value);
  switch (term["operator"]) {
    case "In":
      return listed;
    case "NotIn":
      return !listed;
    case "Exists":
      return value !== undefined;
    case "DoesNotExist":
      return value === undefined;
    default:
      return false;
  }
}
