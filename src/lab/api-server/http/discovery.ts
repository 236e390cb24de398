import type { Json, JsonObject } from "../object/json.ts";
import { apiVersionOf } from "../object/meta.ts";
import type { Registry } from "../resources/registry.ts";
import type { ResourceDef } from "../resources/types.ts";

/** The discovery entry of a subresource. */
interface Subresource {
  readonly name: string;
  readonly kind: string;
  readonly group?: string;
  readonly version?: string;
  readonly verbs: readonly string[];
}

/** The subresources that a resource has here. */
export function subresourcesOf(resource: ResourceDef): Subresource[] {
  const list: Subresource[] = [];
  const own = ["get", "patch", "update"];
  if (resource.hasStatus) list.push({ name: "status", kind: resource.kind, verbs: own });
  if (resource.scale !== undefined)
    list.push({ name: "scale", kind: "Scale", group: "autoscaling", version: "v1", verbs: own });
  if (resource.group === "" && resource.kind === "Pod") {
    list.push({ name: "binding", kind: "Binding", verbs: ["create"] });
    list.push({ name: "eviction", kind: "Eviction", group: "policy", version: "v1", verbs: ["create"] });
  }
  if (resource.group === "" && resource.kind === "Namespace")
    list.push({ name: "finalize", kind: "Namespace", verbs: ["update"] });
  return list;
}

/** `/api` and `/apis/GROUP` lists: every version of every group, the preferred one first. */
function groupVersions(registry: Registry): Map<string, string[]> {
  const groups = new Map<string, string[]>();
  for (const { group, version } of registry.list()) {
    const versions = groups.get(group) ?? [];
    if (!versions.includes(version)) versions.push(version);
    groups.set(group, versions);
  }
  for (const versions of groups.values()) versions.sort(comparePriority);
  return groups;
}

/** Kubernetes' order of versions: v2 before v1 before v2beta1 before v1alpha1 before anything else. */
function comparePriority(a: string, b: string): number {
  const rank = (version: string): number[] => {
    const match = /^v(\d+)(?:(alpha|beta)(\d+))?$/.exec(version);
    if (match === null) return [-1, 0, 0];
    const stage = match[2] === undefined ? 2 : match[2] === "beta" ? 1 : 0;
    return [stage, Number(match[1]), Number(match[3] ?? 0)];
  };
  const [left, right] = [rank(a), rank(b)];
  for (const [index, value] of left.entries()) {
    const other = right[index] ?? 0;
    if (value !== other) return other - value;
  }
  return a < b ? -1 : 1;
}

/** GET /api. */
export function coreVersions(): JsonObject {
  return { kind: "APIVersions", versions: ["v1"], serverAddressByClientCIDRs: [] };
}

function groupOf(group: string, versions: readonly string[]): JsonObject {
  const all = versions.map((version) => ({ groupVersion: apiVersionOf(group, version), version }));
  return { name: group, versions: all, preferredVersion: all[0] ?? {} };
}

/** GET /apis. */
export function groupList(registry: Registry): JsonObject {
  const groups = Array.from(groupVersions(registry)).filter(([group]) => group !== "");
  return {
    kind: "APIGroupList",
    apiVersion: "v1",
    groups: groups.map(([group, versions]) => groupOf(group, versions)),
  };
}

/** GET /apis/GROUP. Undefined when nothing is served there. */
export function oneGroup(registry: Registry, group: string): JsonObject | undefined {
  const versions = groupVersions(registry).get(group);
  return versions === undefined ? undefined : { kind: "APIGroup", apiVersion: "v1", ...groupOf(group, versions) };
}

/** GET /api/v1 or /apis/GROUP/VERSION. Undefined when nothing is served there. */
export function resourceList(registry: Registry, group: string, version: string): JsonObject | undefined {
  const found = registry.list().filter((resource) => resource.group === group && resource.version === version);
  if (found.length === 0) return undefined;
  const resources = found.flatMap((resource): Json[] => [
    {
      name: resource.plural,
      singularName: resource.singular,
      namespaced: resource.namespaced,
      kind: resource.kind,
      verbs: [...resource.verbs],
      ...(resource.shortNames.length === 0 ? {} : { shortNames: [...resource.shortNames] }),
      ...(resource.categories.length === 0 ? {} : { categories: [...resource.categories] }),
    },
    ...subresourcesOf(resource).map((sub) => ({
      name: `${resource.plural}/${sub.name}`,
      singularName: "",
      namespaced: resource.namespaced,
      kind: sub.kind,
      verbs: [...sub.verbs],
      ...(sub.group === undefined ? {} : { group: sub.group, version: sub.version }),
    })),
  ]);
  return { kind: "APIResourceList", apiVersion: "v1", groupVersion: apiVersionOf(group, version), resources };
}

/** Aggregated discovery (apidiscovery.k8s.io): one document for `/api` or for all of `/apis`. */
export function aggregated(registry: Registry, core: boolean, version: string): JsonObject {
  const items = Array.from(groupVersions(registry))
    .filter(([group]) => (group === "") === core)
    .map(([group, versions]) => ({
      metadata: { name: group, creationTimestamp: null },
      versions: versions.map((name) => ({
        version: name,
        resources: aggregatedResources(registry, group, name),
        freshness: "Current",
      })),
    }));
  return { kind: "APIGroupDiscoveryList", apiVersion: `apidiscovery.k8s.io/${version}`, metadata: {}, items };
}

function aggregatedResources(registry: Registry, group: string, version: string): Json[] {
  return registry
    .list()
    .filter((resource) => resource.group === group && resource.version === version)
    .map((resource) => ({
      resource: resource.plural,
      responseKind: { group, version, kind: resource.kind },
      scope: resource.namespaced ? "Namespaced" : "Cluster",
      singularResource: resource.singular,
      verbs: [...resource.verbs],
      shortNames: [...resource.shortNames],
      categories: [...resource.categories],
      subresources: subresourcesOf(resource).map((sub) => ({
        subresource: sub.name,
        responseKind: { group: sub.group ?? group, version: sub.version ?? version, kind: sub.kind },
        verbs: [...sub.verbs],
      })),
    }));
}
