/**
 * A lab as a guest on a foreign cluster. Its objects have its labels and unique names. It does not change objects of
 * others; if one has a name that the lab needs, an error names that object. All objects of the lab are removed, however it ends.
 *
 * Owns: names and labels of a lab's objects, their creation and removal, the rights for that, the check before a start. Does not know:
 * the purpose of objects.
 *
 * ```ts
 * const identity = guestIdentity("lab", newRun());
 * await createOwn(api, identity, resources.nodes, { metadata: { name: `${identity.prefix}node1` } });
 * await removeOwn(api, identity, { signal, clock });
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
