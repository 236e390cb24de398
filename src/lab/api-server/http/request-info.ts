import { noSuchResource } from "../errors.ts";
import type { Registry } from "../resources/registry.ts";
import type { ResourceDef } from "../resources/types.ts";

/** A request on a resource, taken from its path and method. */
export interface ResourceRequest {
  readonly resource: ResourceDef;
  readonly verb: Verb;
  readonly namespace: string;
  /** Empty for requests on the collection. */
  readonly name: string;
  readonly subresource: string;
}

export type Verb = "get" | "list" | "watch" | "create" | "update" | "patch" | "delete" | "deletecollection";

/** Reads `/api/v1/...` and `/apis/GROUP/VERSION/...`. Undefined for other paths. Throws ApiError `NotFound` for unknown resources. */
export function parseResourceRequest(method: string, url: URL, registry: Registry): ResourceRequest | undefined {
  const parts = url.pathname.split("/").slice(1).map(decodeSegment);
  const core = parts[0] === "api";
  if (!core && parts[0] !== "apis") return undefined;
  const group = core ? "" : (parts[1] ?? "");
  const version = (core ? parts[1] : parts[2]) ?? "";
  let rest = parts.slice(core ? 2 : 3);
  if (rest.length === 0 || rest[0] === "") return undefined;
  let watchPath = false;
  if (rest[0] === "watch") {
    watchPath = true;
    rest = rest.slice(1);
  }
  let namespace = "";
  // `/namespaces/NAME`, `/namespaces/NAME/status` and `/finalize` are requests on the namespace itself.
  const own = ["status", "finalize"];
  if (rest[0] === "namespaces" && rest.length > 2 && !(rest.length === 3 && core && own.includes(rest[2] ?? ""))) {
    namespace = rest[1] ?? "";
    rest = rest.slice(2);
  }
  const [plural = "", name = "", ...sub] = rest;
  const resource = registry.find(group, version, plural);
  if (resource === undefined || (namespace !== "" && !resource.namespaced)) throw noSuchResource();
  if (name !== "" && resource.namespaced && namespace === "") throw noSuchResource();
  const verb = verbOf(method, name, watchPath || isTrue(url.searchParams.get("watch")));
  if (verb === undefined) throw noSuchResource();
  // What follows `proxy` is a path of the object's own server.
  return { resource, verb, namespace, name, subresource: sub[0] === "proxy" ? "proxy" : sub.join("/") };
}

function decodeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch (error) {
    // A single % is not a valid encoding, so no object has such a name.
    if (error instanceof URIError) throw noSuchResource();
    throw error;
  }
}

/** Query flags are true for `1`, `true` and the empty value. */
export function isTrue(value: string | null): boolean {
  return value !== null && value !== "false" && value !== "0";
}

function verbOf(method: string, name: string, watch: boolean): Verb | undefined {
  switch (method) {
    case "GET":
    case "HEAD":
      // A watch of one name is a watch of the collection with a field selector.
      return watch ? "watch" : name === "" ? "list" : "get";
    case "POST":
      return "create";
    case "PUT":
      return name === "" ? undefined : "update";
    case "PATCH":
      return name === "" ? undefined : "patch";
    case "DELETE":
      return name === "" ? "deletecollection" : "delete";
    default:
      return undefined;
  }
}
