import { CelError, type Value } from "../cel/index.ts";
import { ApiError, type StatusReason } from "../errors.ts";
import { COST, Expressions, variablesOf } from "../expressions/index.ts";
import type { AdmissionPlugin, AdmissionRequest } from "../handlers/admission.ts";
import { asArray, asObject, asString, isObject, type Json, type JsonObject } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import type { Store } from "../store/store.ts";
import { matchesSelectors, ruleMatches } from "../webhooks/match.ts";

/** The resource group for whose objects no policy is asked, so that a broken one can be repaired. */
const GROUP = "admissionregistration.k8s.io";
const REASONS: readonly string[] = ["Unauthorized", "Forbidden", "Invalid", "RequestEntityTooLarge"];

/**
 * ValidatingAdmissionPolicies, as kube-apiserver runs them: all that a binding with the action Deny names, in the order of their names. Left out:
 * parameters, the authorizer, namespaceObject, auditAnnotations, and the checks of expressions when a policy is stored.
 */
export class PolicyAdmission implements AdmissionPlugin {
  readonly name = "validating-admission-policies";
  readonly #store: Store;
  readonly #expressions = new Expressions();

  constructor(store: Store) {
    this.#store = store;
  }

  admit(request: AdmissionRequest): undefined {
    if (request.group === GROUP) return;
    for (const policy of this.#list("validatingadmissionpolicies")) {
      const name = policy.metadata.name ?? "";
      const spec = asObject(policy["spec"]);
      const binding = this.#list("validatingadmissionpolicybindings").find((one) => binds(one, name));
      if (binding === undefined || !this.#concerns(spec, request)) continue;
      this.#judge(spec, request, `ValidatingAdmissionPolicy '${name}' with binding '${binding.metadata.name}'`);
    }
  }

  #list(plural: string): KubeObject[] {
    const all = [...this.#store.collection(`${plural}.${GROUP}`).list()].map(({ object }) => object);
    return all.sort((a, b) => ((a.metadata.name ?? "") < (b.metadata.name ?? "") ? -1 : 1));
  }

  #concerns(spec: JsonObject, request: AdmissionRequest): boolean {
    const constraints = asObject(spec["matchConstraints"]);
    const isMeant = asArray(constraints["resourceRules"]).some((rule) => ruleMatches(asObject(rule), request));
    const isExcluded = asArray(constraints["excludeResourceRules"]).some((rule) =>
      ruleMatches(asObject(rule), request),
    );
    return isMeant && !isExcluded && matchesSelectors(constraints, request, this.#store);
  }

  /** Throws ApiError for the first validation that does not hold. An expression without a value refuses, unless the policy's failurePolicy is Ignore. */
  #judge(spec: JsonObject, request: AdmissionRequest, by: string): void {
    const known = variablesOf(request);
    const budget = { left: COST };
    const run = (text: string): Value => this.#expressions.run(text, known, budget);
    const refuse = (reason: StatusReason, why: string): never => {
      const subject = `${request.resource}${request.group === "" ? "" : `.${request.group}`} ${JSON.stringify(request.name)}`;
      throw new ApiError(reason, `${subject} is forbidden: ${by} denied request: ${why}`);
    };
    let text = "";
    try {
      for (const condition of asArray(spec["matchConditions"])) {
        text = asString(asObject(condition)["expression"]);
        if (run(text) !== true) return;
      }
      for (const variable of asArray(spec["variables"])) {
        text = asString(asObject(variable)["expression"]);
        const variables = new Map(known.get("variables") as ReadonlyMap<Value, Value>);
        variables.set(asString(asObject(variable)["name"]), run(text));
        known.set("variables", variables);
      }
      for (const validation of asArray(spec["validations"]).filter(isObject)) {
        text = asString(validation["expression"]);
        if (run(text) === true) continue;
        const own = asString(validation["messageExpression"]);
        const message = own === "" ? asString(validation["message"]) : String(run(own));
        const reason = asString(validation["reason"]);
        refuse(
          (REASONS.includes(reason) ? reason : "Invalid") as StatusReason,
          message === "" ? `failed expression: ${text}` : message,
        );
      }
    } catch (error) {
      if (!(error instanceof CelError)) throw error;
      if (spec["failurePolicy"] === "Ignore") return;
      refuse("Invalid", `expression '${text}' resulted in error: ${error.message}`);
    }
  }
}

function binds({ spec }: KubeObject, policy: string): boolean {
  const { policyName, validationActions } = asObject(spec as Json);
  return policyName === policy && asArray(validationActions).includes("Deny");
}
