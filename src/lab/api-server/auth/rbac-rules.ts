import { asArray, asObject, asString, type JsonObject } from "../object/json.ts";
import type { PolicyRule, RequestAttributes, UserInfo } from "./auth.ts";

/** The rules of a Role or ClusterRole, as it is stored. */
export function rulesOf(role: JsonObject): PolicyRule[] {
  return asArray(role["rules"]).map((rule) => {
    const strings = (field: string): string[] => asArray(asObject(rule)[field]).map(asString);
    return {
      verbs: strings("verbs"),
      apiGroups: strings("apiGroups"),
      resources: strings("resources"),
      resourceNames: strings("resourceNames"),
      nonResourceURLs: strings("nonResourceURLs"),
    };
  });
}

/** Returns true if a rule allows a request (kubernetes pkg/apis/rbac/v1/evaluation_helpers.go). */
export function ruleAllows(rule: PolicyRule, request: RequestAttributes): boolean {
  if (!has(rule.verbs, request.verb)) return false;
  if (request.nonResourcePath !== undefined) return coversPath(rule.nonResourceURLs, request.nonResourcePath);
  const isNamed = rule.resourceNames.length === 0 || rule.resourceNames.includes(request.name);
  return isNamed && has(rule.apiGroups, request.group) && coversResource(rule.resources, request);
}

function has(allowed: readonly string[], wanted: string): boolean {
  return allowed.includes("*") || allowed.includes(wanted);
}

/** `*`, `pods`, `pods/exec`, or one subresource of every resource: `*\/scale`. */
function coversResource(allowed: readonly string[], { resource, subresource }: RequestAttributes): boolean {
  if (subresource === "") return has(allowed, resource);
  return has(allowed, `${resource}/${subresource}`) || allowed.includes(`*/${subresource}`);
}

/** A `*` at the end matches every path with this prefix. */
function coversPath(allowed: readonly string[], path: string): boolean {
  return allowed.some((url) => (url.endsWith("*") ? path.startsWith(url.slice(0, -1)) : url === path));
}

/** The text of the binding's subject that matches a user; `undefined` if none does. */
export function subjectOf(binding: JsonObject, user: UserInfo): string | undefined {
  for (const item of asArray(binding["subjects"])) {
    const subject = asObject(item);
    const [kind, name, namespace] = [
      asString(subject["kind"]),
      asString(subject["name"]),
      asString(subject["namespace"]),
    ];
    if (kind === "User" && name === user.name) return `User ${JSON.stringify(name)}`;
    if (kind === "Group" && user.groups.includes(name)) return `Group ${JSON.stringify(name)}`;
    // A ServiceAccount without a namespace is in the binding's namespace.
    const where = namespace === "" ? asString(asObject(binding["metadata"])["namespace"]) : namespace;
    if (kind === "ServiceAccount" && where !== "" && user.name === serviceAccountName(where, name)) {
      return `ServiceAccount ${JSON.stringify(`${name}/${where}`)}`;
    }
  }
  return undefined;
}

/** The user name of a service account. */
export function serviceAccountName(namespace: string, name: string): string {
  return `system:serviceaccount:${namespace}:${name}`;
}
