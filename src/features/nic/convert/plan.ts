import type { YamlEdit, YamlPath } from "#base/yaml";
import { duplicate, type FieldFault } from "#kube/crd";
import { isRecord } from "../fields/read-nics.ts";

/** A fault, and the path at which the user finds it, where that is not the path that it names. */
export interface PlacedFault extends FieldFault {
  readonly at: YamlPath;
}

/** The edits of a document, or its faults. */
export interface Plan {
  readonly edits: YamlEdit[];
  readonly faults: PlacedFault[];
}

/** `["items", 0, "spec", "nics"]` as text, as API servers write paths. */
export function pathText(path: YamlPath): string {
  return path.map((key, at) => (typeof key === "number" ? `[${key}]` : at === 0 ? key : `.${key}`)).join("");
}

/** The keys of a text such as `nics[0].ip`. */
export function keysOf(text: string): (string | number)[] {
  return (text.match(/[^.[\]]+/g) ?? []).map((key) => (/^\d+$/.test(key) ? Number(key) : key));
}

/** Adds a fault whose field is relative to a path. */
export function addFault(plan: Plan, path: YamlPath, fault: FieldFault, at: YamlPath = keysOf(fault.field)): void {
  const parts = [pathText(path), fault.field].filter((part) => part !== "");
  plan.faults.push({ ...fault, field: parts.join("."), at: [...path, ...at] });
}

/** The one key of an object that is any of the names in lower case, with its value, unless that is null. */
export function findKey(
  object: Readonly<Record<string, unknown>>,
  names: readonly string[],
  { plan, path }: { readonly plan: Plan; readonly path: YamlPath },
): { readonly key: string; readonly value: unknown } | undefined {
  const [first, ...others] = Object.keys(object).filter((key) => names.includes(key.toLowerCase()));
  if (first === undefined) return undefined;
  for (const other of others) addFault(plan, path, duplicate(first, other), [other]);
  return { key: first, value: object[first] };
}

/** Edits of a map of texts that may be absent: annotations or labels. A value of `undefined` removes its key. */
export function editMap(
  plan: Plan,
  path: YamlPath,
  present: unknown,
  wanted: Readonly<Record<string, string | undefined>>,
): void {
  const map = isRecord(present) ? present : {};
  const entries = Object.entries(wanted).filter(([key, value]) => map[key] !== value);
  if (entries.length === 0) return;
  const removed = entries.filter(([, value]) => value === undefined).map(([key]) => key);
  const isEmptied = removed.length === entries.length && removed.length === Object.keys(map).length;
  if (isEmptied) plan.edits.push({ path, remove: true });
  else if (!isRecord(present)) plan.edits.push({ path, value: Object.fromEntries(entries) });
  else
    for (const [key, value] of entries) {
      const at = [...path, key];
      plan.edits.push(value === undefined ? { path: at, remove: true } : { path: at, value });
    }
}
