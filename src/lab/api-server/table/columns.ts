import { asArray, asObject, asString, at, isObject, type Json, type JsonObject } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import type { Column } from "../resources/types.ts";

/** Age as kubectl prints it (apimachinery pkg/util/duration HumanDuration). */
export function humanDuration(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  if (seconds < -1) return "<invalid>";
  if (seconds < 0) return "0s";
  if (seconds < 120) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return seconds % 60 === 0 ? `${minutes}m` : `${minutes}m${seconds % 60}s`;
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 8) return minutes % 60 === 0 ? `${hours}h` : `${hours}h${minutes % 60}m`;
  if (hours < 48) return `${hours}h`;
  const days = Math.floor(hours / 24);
  if (hours < 192) return hours % 24 === 0 ? `${days}d` : `${days}d${hours % 24}h`;
  if (days < 730) return `${days}d`;
  const years = Math.floor(days / 365);
  return years < 8 && days % 365 !== 0 ? `${years}y${days % 365}d` : `${years}y`;
}

/** The age of an RFC 3339 time. */
export function age(time: Json | undefined, nowMs: number): string {
  const at = Date.parse(asString(time));
  return Number.isNaN(at) ? "<unknown>" : humanDuration(nowMs - at);
}

/** A text column. */
export function text(name: string, cell: (object: KubeObject, nowMs: number) => Json, priority = 0): Column {
  return { name, type: "string", priority, cell };
}

/** A text column that shows one member. */
export function field(name: string, path: string, fallback = "<none>", priority = 0): Column {
  const keys = path.split(".");
  return text(name, (object) => scalar(at(object, ...keys)) || fallback, priority);
}

/** A number column that shows one member, 0 when it is absent. */
export function count(name: string, path: string, priority = 0): Column {
  const keys = path.split(".");
  return { name, type: "integer", priority, cell: (object) => Number(at(object, ...keys) ?? 0) };
}

/** The name column, which is the first of each table. */
export const NAME: Column = {
  name: "Name",
  type: "string",
  format: "name",
  description: "Name must be unique within a namespace.",
  cell: (object) => object.metadata.name ?? "",
};

/** The age column, which is the last of most tables. */
export const AGE: Column = text("Age", (object, nowMs) => age(object.metadata.creationTimestamp, nowMs));

/** A value as one cell's text. */
export function scalar(value: Json | undefined): string {
  return value === undefined || value === null || typeof value === "object" ? "" : String(value);
}

/** A LabelSelector or a map of labels in selector syntax; `<none>` if it selects all objects. */
export function selectorText(value: Json | undefined): string {
  const selector = asObject(value);
  const labels =
    isObject(selector["matchLabels"]) || selector["matchExpressions"] !== undefined
      ? asObject(selector["matchLabels"])
      : selector;
  const terms = Object.entries(labels).map(([key, label]) => `${key}=${scalar(label)}`);
  for (const item of asArray(selector["matchExpressions"])) terms.push(expression(asObject(item)));
  return terms.length === 0 ? "<none>" : terms.sort().join(",");
}

function expression(term: JsonObject): string {
  const key = asString(term["key"]);
  const values = asArray(term["values"]).map(scalar).join(",");
  switch (term["operator"]) {
    case "In":
      return `${key} in (${values})`;
    case "NotIn":
      return `${key} notin (${values})`;
    case "DoesNotExist":
      return `!${key}`;
    default:
      return key;
  }
}
