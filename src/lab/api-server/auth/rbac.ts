import { asObject, asString, type JsonObject } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import { keyOf } from "../store/entry.ts";
import type { Store } from "../store/store.ts";
import type { Authorizer, Decision, PolicyRule, RequestAttributes, Rules, UserInfo } from "./auth.ts";
import { ruleAllows, rulesOf, subjectOf } from "./rbac-rules.ts";

const GROUP = "rbac.authorization.k8s.io";
/** Members of this group may do everything, regardless of the rules. */
const MASTERS = "system:masters";
const EVERYTHING: Rules = {
  rules: [
    { verbs: ["*"], apiGroups: ["*"], resources: ["*"], resourceNames: [], nonResourceURLs: [] },
    { verbs: ["*"], apiGroups: [], resources: [], resourceNames: [], nonResourceURLs: ["*"] },
  ],
  incomplete: false,
};

/** A binding that names the user, with the rules of its role, or its fault. */
type Grant =
  | { readonly rules: readonly PolicyRule[]; readonly words: string; readonly fault?: never }
  | { readonly fault: string };

/**
 * Role-based access control like that of kube-apiserver: bindings and roles are read from the store for each request. Left out: the check
 * that a user grants only rights that he has (escalation), and ClusterRoles that are combined from others (aggregation).
 */
export class RbacAuthorizer implements Authorizer {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  authorize(user: UserInfo, request: RequestAttributes): Decision {
    if (user.groups.includes(MASTERS)) return { allowed: true, reason: "" };
    const faults: string[] = [];
    for (const grant of this.#grants(user, request.namespace)) {
      if (grant.fault !== undefined) faults.push(grant.fault);
      else if (grant.rules.some((rule) => ruleAllows(rule, request)))
        return { allowed: true, reason: `RBAC: allowed by ${grant.words}` };
    }
    return { allowed: false, reason: faults.length === 0 ? "" : `RBAC: ${listed(faults)}` };
  }

  rulesFor(user: UserInfo, namespace: string): Rules {
    if (user.groups.includes(MASTERS)) return EVERYTHING;
    const grants = [...this.#grants(user, namespace)];
    return {
      rules: grants.flatMap((grant) => (grant.fault === undefined ? grant.rules : [])),
      incomplete: grants.some(({ fault }) => fault !== undefined),
    };
  }

  *#grants(user: UserInfo, namespace: string): Generator<Grant> {
    for (const { object } of this.#store.collection(`clusterrolebindings.${GROUP}`).list()) {
      yield* this.#grant(user, object, `ClusterRoleBinding ${JSON.stringify(object.metadata.name)}`);
    }
    if (namespace === "") return;
    for (const { object } of this.#store.collection(`rolebindings.${GROUP}`).list(`${namespace}/`)) {
      yield* this.#grant(user, object, `RoleBinding ${JSON.stringify(`${object.metadata.name}/${namespace}`)}`);
    }
  }

  *#grant(user: UserInfo, binding: KubeObject, words: string): Generator<Grant> {
    const subject = subjectOf(binding, user);
    if (subject === undefined) return;
    const ref = asObject(binding["roleRef"]);
    const [kind, name] = [asString(ref["kind"]), asString(ref["name"])];
    const role = this.#role(kind, binding.metadata.namespace ?? "", name);
    if (role === undefined) yield { fault: `${kind.toLowerCase()}.${GROUP} ${JSON.stringify(name)} not found` };
    else yield { rules: rulesOf(role), words: `${words} of ${kind} ${JSON.stringify(name)} to ${subject}` };
  }

  #role(kind: string, namespace: string, name: string): JsonObject | undefined {
    const [collection, key] =
      kind === "ClusterRole" ? [`clusterroles.${GROUP}`, keyOf("", name)] : [`roles.${GROUP}`, keyOf(namespace, name)];
    return this.#store.collection(collection).get(key)?.object;
  }
}

/** Several faults, as apimachinery's errors.NewAggregate writes them. */
function listed(faults: readonly string[]): string {
  return faults.length === 1 ? (faults[0] ?? "") : `[${faults.join(", ")}]`;
}
