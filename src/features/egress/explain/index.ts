/**
 * `isthmus explain` inside a pod: which rule, table, route and tunnel a packet of the pod meets, by the kernel of its namespace.
 *
 * Owns: the evaluation of rules and routes, its comparison with the kernel's look-up, its text. Does not know: Services' endpoints, API servers.
 */
export { type ClientWay, explainClientWay, type KnownEgresses } from "./client-way.ts";
export { type RouterEnd, routerEnd } from "./routers.ts";
export { clientWayText, routerText } from "./text.ts";
export { routeText, ruleText } from "./words.ts";
