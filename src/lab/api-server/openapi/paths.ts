import { subresourcesOf } from "../http/discovery.ts";
import type { JsonObject } from "../object/json.ts";
import { apiVersionOf } from "../object/meta.ts";
import type { ResourceDef } from "../resources/types.ts";

/** One path of a resource and its operations. */
export interface ApiPath {
  readonly path: string;
  readonly operations: readonly ApiOperation[];
}

/** One operation, in the words of both OpenAPI versions. */
export interface ApiOperation {
  readonly method: "get" | "post" | "put" | "patch" | "delete";
  readonly id: string;
  readonly action: string;
  readonly query: readonly string[];
}

const WRITE = ["dryRun", "fieldManager", "fieldValidation"];
const LIST = [
  "allowWatchBookmarks",
  "continue",
  "fieldSelector",
  "labelSelector",
  "limit",
  "resourceVersion",
  "resourceVersionMatch",
  "timeoutSeconds",
  "watch",
];

/** Every path that a resource is served on. */
export function pathsOf(resource: ResourceDef): ApiPath[] {
  const { group, version, plural, kind, namespaced } = resource;
  const root = `/${group === "" ? "api" : "apis"}/${apiVersionOf(group, version)}`;
  const base = namespaced ? `${root}/namespaces/{namespace}/${plural}` : `${root}/${plural}`;
  const operation = (method: ApiOperation["method"], action: string, query: readonly string[]): ApiOperation => ({
    method,
    id: `${action}${group === "" ? "Core" : group.split(".")[0]}${version}${namespaced ? "Namespaced" : ""}${kind}`,
    action,
    query,
  });
  if (!resource.verbs.includes("get")) return [{ path: base, operations: [operation("post", "create", WRITE)] }];
  const paths: ApiPath[] = [
    {
      path: base,
      operations: [
        operation("get", "list", LIST),
        operation("post", "create", WRITE),
        operation("delete", "deletecollection", LIST),
      ],
    },
    {
      path: `${base}/{name}`,
      operations: [
        operation("get", "get", []),
        operation("put", "put", WRITE),
        operation("patch", "patch", [...WRITE, "force"]),
        operation("delete", "delete", ["dryRun", "gracePeriodSeconds", "propagationPolicy"]),
      ],
    },
  ];
  if (namespaced) paths.push({ path: `${root}/${plural}`, operations: [operation("get", "list", LIST)] });
  for (const { name, verbs } of subresourcesOf(resource)) {
    const methods = verbs.map(
      (verb) => ({ get: "get", update: "put", patch: "patch", create: "post" })[verb] as ApiOperation["method"],
    );
    paths.push({
      path: `${base}/{name}/${name}`,
      operations: methods.map((method) => operation(method, `${method}-${name}`, method === "get" ? [] : WRITE)),
    });
  }
  return paths;
}

/** The extension by which clients find the kind of a path or a definition. */
export function gvkOf(resource: ResourceDef): JsonObject {
  return { group: resource.group, kind: resource.kind, version: resource.version };
}
