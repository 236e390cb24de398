import type { AdmissionRequest } from "../handlers/admission.ts";
import { asArray, asObject, type Json, type JsonObject } from "../object/json.ts";
import { selectorMatches } from "../select/selector-object.ts";
import { keyOf } from "../store/entry.ts";
import type { Store } from "../store/store.ts";

/** Returns true if one of the rules of a webhook or a policy (RuleWithOperations, NamedRuleWithOperations) is for a request. */
export function ruleMatches(rule: JsonObject, request: AdmissionRequest): boolean {
  const has = (key: string, value: string): boolean => {
    const list = asArray(rule[key]);
    return list.includes("*") || list.includes(value);
  };
  if (
    !has("operations", request.operation) ||
    !has("apiGroups", request.group) ||
    !has("apiVersions", request.version)
  ) {
    return false;
  }
  const { scope = "*" } = rule;
  if (scope !== "*" && (scope === "Namespaced") !== (request.namespace !== "")) return false;
  const { resource, subresource } = request;
  const names = asArray(rule["resourceNames"]);
  if (names.length > 0 && !names.includes(request.name)) return false;
  return asArray(rule["resources"]).some((wanted) => {
    const [left, right = ""] = String(wanted).split("/");
    return (
      (left === "*" || left === resource) && ((right === "*" && String(wanted).includes("/")) || right === subresource)
    );
  });
}

/** Returns true if the `objectSelector` and the `namespaceSelector` of a webhook or a policy select a request. */
export function matchesSelectors(
  selectors: JsonObject,
  { object, old, namespace, group, resource }: AdmissionRequest,
  store: Store,
): boolean {
  const labels = [object, old].flatMap((one) => (one === undefined ? [] : [asObject(one.metadata.labels as Json)]));
  const { objectSelector, namespaceSelector } = selectors;
  if (objectSelector !== undefined && !labels.some((one) => selectorMatches(objectSelector, one))) return false;
  if (namespaceSelector === undefined) return true;
  const isNamespace = group === "" && resource === "namespaces";
  const around = isNamespace ? (object ?? old) : store.collection("namespaces").get(keyOf("", namespace))?.object;
  // A cluster-scoped object is in no namespace, so the namespace selector does not apply to it.
  if (!isNamespace && namespace === "") return true;
  return selectorMatches(namespaceSelector, asObject(around?.metadata.labels as Json));
}
