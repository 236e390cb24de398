import { KubeError } from "./errors.ts";
import { apiVersionOf, type KubeObject, type ObjectRef, type ResourceType, resourceName } from "./resource.ts";

/** `get pods default/x`, for messages. */
export function describeAction(verb: string, type: ResourceType<KubeObject>, ref: Partial<ObjectRef>): string {
  const where = ref.namespace === undefined ? "" : `${ref.namespace}/`;
  const what = ref.name === undefined ? (where === "" ? "" : ` in ${ref.namespace}`) : ` ${where}${ref.name}`;
  return `${verb} ${resourceName(type)}${what}`;
}

/** The path of a collection: of one namespace, or of all when it is absent. */
export function collectionPath(type: ResourceType<KubeObject>, namespace: string | undefined): string {
  const root = type.group === "" ? `/api/${type.version}` : `/apis/${apiVersionOf(type)}`;
  if (namespace === undefined || namespace === "") return `${root}/${type.plural}`;
  if (!type.namespaced) {
    throw new KubeError(
      "invalid",
      `${resourceName(type)} are cluster-scoped: do not give a namespace ("${namespace}")`,
    );
  }
  return `${root}/namespaces/${segment("namespace", namespace)}/${type.plural}`;
}

/** The path of one object. Throws `invalid` for a name or namespace that is missing or cannot be one. */
export function objectPath(type: ResourceType<KubeObject>, ref: Partial<ObjectRef>, subresource?: string): string {
  const name = segment("name", ref.name ?? "");
  const collection = writePath(type, ref.namespace);
  return `${collection}/${name}${subresource === undefined ? "" : `/${segment("subresource", subresource)}`}`;
}

/** The collection that an object is created in. */
export function writePath(type: ResourceType<KubeObject>, namespace: string | undefined): string {
  if (type.namespaced && (namespace === undefined || namespace === "")) {
    throw new KubeError("invalid", `${resourceName(type)} are namespaced: give the namespace of the object`);
  }
  return collectionPath(type, namespace);
}

/** `?a=b&c=d`, without absent values; empty if all are absent. */
export function query(values: Readonly<Record<string, string | number | boolean | undefined>>): string {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== undefined) parts.set(name, String(value));
  const text = parts.toString();
  return text === "" ? "" : `?${text}`;
}

/** A path segment as the API server accepts them (apimachinery `IsValidPathSegmentName`). */
function segment(what: string, text: string): string {
  if (text === "" || text === "." || text === ".." || /[/%]/.test(text)) {
    throw new KubeError("invalid", `"${text}" cannot be the ${what} of an object`);
  }
  return encodeURIComponent(text);
}
