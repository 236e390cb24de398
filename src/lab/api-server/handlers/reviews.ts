import type { Authorizer, PolicyRule, RequestAttributes, UserInfo } from "../auth/auth.ts";
import { asArray, asObject, asString, type JsonObject } from "../object/json.ts";

/** Answers the reviews of authorization.k8s.io/v1 of the user's own or another user's rights. */
export function answerReview(kind: string, body: JsonObject, user: UserInfo, authorizer: Authorizer): JsonObject {
  const spec = asObject(body["spec"]);
  const head = { kind, apiVersion: "authorization.k8s.io/v1", metadata: asObject(body["metadata"]), spec };
  if (kind === "SelfSubjectRulesReview") {
    const { rules, incomplete } = authorizer.rulesFor(user, asString(spec["namespace"]));
    return { ...head, status: { ...rulesStatus(rules), incomplete } };
  }
  const subject = kind.startsWith("Self")
    ? user
    : { name: asString(spec["user"]), groups: asArray(spec["groups"]).map(asString) };
  const { allowed, reason } = authorizer.authorize(subject, attributesOf(spec));
  return { ...head, status: { allowed, ...(reason === "" ? {} : { reason }) } };
}

function rulesStatus(rules: readonly PolicyRule[]): JsonObject {
  const resourceRules = rules
    .filter(({ resources }) => resources.length > 0)
    .map(({ verbs, apiGroups, resources, resourceNames }) => ({
      verbs: [...verbs],
      apiGroups: [...apiGroups],
      resources: [...resources],
      ...(resourceNames.length === 0 ? {} : { resourceNames: [...resourceNames] }),
    }));
  const nonResourceRules = rules
    .filter(({ nonResourceURLs }) => nonResourceURLs.length > 0)
    .map(({ verbs, nonResourceURLs }) => ({ verbs: [...verbs], nonResourceURLs: [...nonResourceURLs] }));
  return { resourceRules, nonResourceRules };
}

function attributesOf(spec: JsonObject): RequestAttributes {
  const resource = asObject(spec["resourceAttributes"]);
  const path = asObject(spec["nonResourceAttributes"]);
  const base = {
    verb: asString(resource["verb"] ?? path["verb"]),
    group: asString(resource["group"]),
    version: asString(resource["version"]),
    resource: asString(resource["resource"]),
    subresource: asString(resource["subresource"]),
    namespace: asString(resource["namespace"]),
    name: asString(resource["name"]),
  };
  return path["path"] === undefined ? base : { ...base, nonResourcePath: asString(path["path"]) };
}
