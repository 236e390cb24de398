import { asObject, type Json, type JsonObject } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";

/** Member of core/v1 Event to member of events.k8s.io/v1 Event. */
const RENAMED: readonly (readonly [string, string])[] = [
  ["involvedObject", "regarding"],
  ["message", "note"],
  ["source", "deprecatedSource"],
  ["firstTimestamp", "deprecatedFirstTimestamp"],
  ["lastTimestamp", "deprecatedLastTimestamp"],
  ["count", "deprecatedCount"],
  ["reportingComponent", "reportingController"],
];

/** A stored (core/v1) event as events.k8s.io/v1 shows it. */
export function fromCoreEvent(object: KubeObject): KubeObject {
  const renames = new Map<string, string>(RENAMED.map(([core, modern]) => [core, modern] as const));
  return rename(object, renames, "events.k8s.io/v1");
}

/** An events.k8s.io/v1 event as it is stored. */
export function toCoreEvent(object: KubeObject): KubeObject {
  const renames = new Map<string, string>(RENAMED.map(([core, modern]) => [modern, core] as const));
  const stored = rename(object, renames, "v1");
  return { ...stored, involvedObject: asObject(stored["involvedObject"]) };
}

function rename(object: KubeObject, names: ReadonlyMap<string, string>, apiVersion: string): KubeObject {
  const renamed: JsonObject = {};
  for (const [key, value] of Object.entries(object))
    if (value !== undefined) renamed[names.get(key) ?? key] = value as Json;
  return { ...renamed, apiVersion, kind: "Event", metadata: object.metadata };
}
