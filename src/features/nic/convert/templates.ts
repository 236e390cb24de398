import type { YamlPath } from "#base/yaml";
import { isRecord } from "../fields/read-nics.ts";

type Unchecked = Readonly<Record<string, unknown>>;

/** A pod, or the template of pods in another object. */
export interface PodTemplate {
  /** The path of the pods' `metadata` and `spec`. */
  readonly path: YamlPath;
  readonly template: Unchecked;
}

/** An object with pods, in a document. */
export interface Workload {
  /** The path of the object: empty, or its position in a List. */
  readonly path: YamlPath;
  readonly object: Unchecked;
  /** Such as `Deployment/default/nginx`. */
  readonly title: string;
  readonly pods: PodTemplate;
}

/** The place of the template of pods in an object of a kind. */
const TEMPLATES: ReadonlyMap<string, YamlPath> = new Map<string, YamlPath>([
  ["Pod", []],
  ["PodTemplate", ["template"]],
  ...["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController"].map(
    (kind): [string, YamlPath] => [kind, ["spec", "template"]],
  ),
  ["CronJob", ["spec", "jobTemplate", "spec", "template"]],
]);
const GROUPS = new Set(["", "apps", "batch", "extensions"]);

/** The objects with pods of a document: of a List, those in it. Pure; any value may be given. */
export function workloadsOf(value: unknown): readonly Workload[] {
  if (!isRecord(value)) return [];
  const { kind, apiVersion, items } = value;
  if (typeof kind === "string" && kind.endsWith("List") && Array.isArray(items)) {
    // An item of a typed list may lack apiVersion and kind, which follow from the list's kind.
    const inherited = kind === "List" ? {} : { apiVersion, kind: kind.slice(0, -"List".length) };
    return items.flatMap((item: unknown, at) =>
      isRecord(item) ? workloadOf({ ...inherited, ...item }, ["items", at]) : [],
    );
  }
  return workloadOf(value, []);
}

function workloadOf(object: Unchecked, path: YamlPath): readonly Workload[] {
  const { apiVersion, kind } = object;
  if (typeof apiVersion !== "string" || typeof kind !== "string") return [];
  const place = TEMPLATES.get(kind);
  const group = apiVersion.includes("/") ? apiVersion.slice(0, apiVersion.indexOf("/")) : "";
  if (place === undefined || !GROUPS.has(group)) return [];
  let template: unknown = object;
  for (const key of place) template = isRecord(template) ? template[key] : undefined;
  if (!isRecord(template)) return [];
  return [{ path, object, title: titleOf(object), pods: { path: [...path, ...place], template } }];
}

function titleOf({ kind, metadata }: Unchecked): string {
  const { namespace, name, generateName } = isRecord(metadata) ? metadata : {};
  const named = typeof name === "string" ? name : typeof generateName === "string" ? `${generateName}*` : "";
  return [kind, namespace, named].filter((part) => typeof part === "string" && part !== "").join("/");
}
