/**
 * A lab as the guest of a cluster that is somebody else's: what it makes bears its labels and names that nobody else has, what is others' it
 * leaves alone or names as in the way, and it removes all of its own, whoever ended it.
 *
 * Owns: names and labels of a lab's objects, making them, the rights that takes, looking whether a lab fits, removing. Refuses to know: what a
 * lab makes objects for.
 *
 * ```ts
 * const identity = guestIdentity("lab", newRun());
 * await createOwn(api, identity, resources.nodes, { metadata: { name: `${identity.prefix}node1` } });
 * await removeOwn(api, identity, { signal });
 * ```
 */
export { createOwn } from "./create-own.ts";
export { OwnershipError } from "./errors.ts";
export {
  guestIdentity,
  hostIdentity,
  isOwn,
  LAB_LABEL,
  type LabIdentity,
  newRun,
  ownLabels,
  ownSelector,
  RUN_LABEL,
} from "./identity.ts";
export { isForLab, nodeTaints, podPlacement } from "./placement.ts";
export { type KeptDefinition, removeOwn } from "./remove-own.ts";
export { checkRights } from "./rights.ts";
export { type BlockController, CONTROLLER_LEASE, findRuns, isAlive, surveyCluster } from "./survey.ts";
