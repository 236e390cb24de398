/**
 * CEL expressions of admission: what they know of a request, and matchConditions of webhooks.
 *
 * Owns: {@link Expressions}, {@link variablesOf}. Does not know: policies, and how webhooks are called.
 */
export { COST, Expressions, variablesOf } from "./expressions.ts";
