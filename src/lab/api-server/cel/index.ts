/**
 * CEL, the Common Expression Language, for CRDs, which use it in `x-kubernetes-validations`, and for policies of admission.
 *
 * Owns: the language (parser, type checker, evaluator, cel-go's string, list, regex and optional functions), its types for structural
 * schemas, and how rules are run over an object. Does not know: where CRDs and objects are stored.
 *
 * Left out: unsigned numbers, messages outside of schemas, estimates of cost, and the functions of Kubernetes for URLs, IP addresses,
 * CIDRs, quantities, versions and formats; a CRD whose rules need those is refused.
 *
 * ```ts
 * const { rules, causes } = compileRules(schema, "spec.versions[0].schema.openAPIV3Schema");
 * if (causes.length === 0 && rules !== undefined) checkRules(rules, object, old, console.warn);
 * ```
 */
export { compile, type Program } from "./compile.ts";
export { CelError } from "./errors.ts";
export { checkRules, compileRules, type Rules } from "./rules.ts";
export { T } from "./types.ts";
export type { Value } from "./value.ts";
