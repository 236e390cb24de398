/**
 * Collects attachments that their container runtime has forgotten.
 *
 * Owns: what counts as forgotten, whom to ask, the grace, what is said. Does not know: how an attachment is removed.
 *
 * ```ts
 * group.spawn((at) => collectForgotten(parts, { nodeName, criSocket: "", graceMs: 900_000, signal: at }));
 * ```
 */
export { type CollectorParts, collectForgotten } from "./collect.ts";
