/**
 * Decides whether the Node of this program's name is this machine's, or another machine has the same name: then both would give out every address of
 * the Node's blocks (docs/spec/pod-network.md#4.9).
 *
 * Owns: the rules of the comparison. Does not know: how a Node is watched, where ids and addresses are read, who acts on the outcome.
 *
 * ```ts
 * let memory = NOTHING_SEEN;
 * memory = observe(memory, { node, isHere: true, nowMs }, { bootId, comparesAddresses: true });
 * if (memory.identity.kind === "twin") refuse(describeIdentity(memory.identity, host, "node-1"));
 * ```
 */
export {
  dependsOnTime,
  type IdentityRules,
  isSettled,
  type Memory,
  NOTHING_SEEN,
  observe,
} from "./observe.ts";
export { describeIdentity } from "./texts.ts";
export type { Identity, SeenNode, ThisHost } from "./types.ts";
