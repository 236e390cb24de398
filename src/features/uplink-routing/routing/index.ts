/**
 * Per-uplink routing: a table for each uplink, and a source rule for each of its addresses (docs/spec/uplink-proxy.md#3).
 *
 * Owns: tables that end in our marker, rules with our priority and protocol, and the order in which they are added and
 * removed. Does not know: which uplink is chosen for a connection.
 *
 * ```ts
 * const { changes, tables } = planRouting(settings, readKernel(stack));
 * applyRouting(stack, changes);
 * ```
 */
export { applyRouting } from "./apply.ts";
export type { RoutingChange } from "./changes.ts";
export { FORMER_PROTOCOL, LAST_TABLE, otherTables, type RoutingMarks, TABLE_SERVICES } from "./ownership.ts";
export { planAdditions, planFlush, planRouting, wantRouting } from "./plan.ts";
export type { UplinkTables } from "./tables.ts";
