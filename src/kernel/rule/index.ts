/**
 * Policy rules of one namespace.
 *
 * Owns: {@link RulePort} and its rtnetlink encoding. Does not know: the owners of priorities.
 *
 * ```ts
 * stack.rules.add({ family: 4, priority: 2000, table: 116 });
 * ```
 */
export { decodeRule } from "./codec.ts";
export { familiesOf } from "./families.ts";
export { checkRule, describeRule, openRulePort } from "./port.ts";
export type { Rule, RulePort, RuleSpec } from "./types.ts";
