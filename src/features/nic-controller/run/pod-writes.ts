import { findObject, isKubeError, resources } from "#kube/client";
import { NICS_GATE } from "#kube/nic";
import type { ClaimRecord } from "../plan/record.ts";
import type { PodView } from "../world.ts";
import { MANAGER } from "./claim-writes.ts";
import type { NicControllerDeps } from "./deps.ts";
import type { ClaimApi } from "./guarded-api.ts";
import type { ClaimEntry } from "./ledger.ts";

type Options = { readonly signal: AbortSignal };

/** Asks the API server whether the pod of a claim is gone, since the watch of pods may be behind that of claims. Rejects with `KubeError`. */
export async function isPodGone(
  { api, log }: Pick<NicControllerDeps, "api" | "log">,
  { claim, uid, namespace }: ClaimRecord,
  options: Options,
): Promise<boolean> {
  const { podName: name } = claim.spec;
  const pod = await findObject(api, resources.pods, { name, namespace }, options);
  if (pod?.metadata.uid !== uid) return true;
  log.warn("the cache does not have a pod that is there, so its ports are kept", { claim: uid, pod: name, namespace });
  return false;
}

/** Asks the API server whether the cache has a pod as the API server has it. Rejects with `KubeError`. */
export async function isCurrent(api: ClaimApi, { metadata }: PodView, options: Options): Promise<boolean> {
  const { name, namespace = "", uid, resourceVersion } = metadata;
  const live = await findObject(api, resources.pods, { name, namespace }, options);
  return live?.metadata.uid === uid && live.metadata.resourceVersion === resourceVersion;
}

/** Writes what a pod shows of its NICs, where it differs. Rejects with `KubeError`. */
export async function publishNics(
  { api, rules, clock }: Pick<NicControllerDeps, "api" | "rules" | "clock">,
  entry: ClaimEntry,
  pod: PodView,
  options: Options,
): Promise<void> {
  const { claim, status, surface } = entry.record;
  const { annotations, condition } = rules.surface(pod, { ...claim, status }, clock.now());
  if (annotations === undefined && condition === undefined) return;
  const { lastTransitionTime: _, ...state } = condition ?? {};
  const text = JSON.stringify([annotations, state]);
  const { name, namespace = "", uid, resourceVersion: version } = pod.metadata;
  // The cache may be behind our own write. A later pod that shows something else was changed by somebody.
  if (text === surface.text && version === surface.version) return;
  const ref = { name, namespace };
  const manager = { ...options, fieldManager: MANAGER };
  try {
    if (annotations !== undefined) {
      await api.patch(resources.pods, ref, { type: "merge", body: { metadata: { uid, annotations } } }, manager);
    }
    if (condition !== undefined) {
      const body = { metadata: { uid }, status: { conditions: [condition] } };
      await api.patch(resources.pods, ref, { type: "strategic", body }, { ...manager, subresource: "status" });
    }
    entry.update({ surface: { text, version } });
  } catch (error) {
    // Another pod of the name, or none: this one shows nothing any more.
    if (!isKubeError(error, "not-found", "conflict")) throw error;
  }
}

/** Lets a pod be scheduled that has waited for its ports (docs/spec/vpc-nics.md#7). Rejects with `KubeError`. */
export async function removeGate(
  { api, log }: Pick<NicControllerDeps, "api" | "log">,
  { metadata, spec }: PodView,
  options: Options,
): Promise<void> {
  if (spec.isGated !== true) return;
  const { name, namespace = "", uid } = metadata;
  const body = { metadata: { uid }, spec: { schedulingGates: [{ $patch: "delete", name: NICS_GATE }] } };
  try {
    const patch = { type: "strategic", body } as const;
    await api.patch(resources.pods, { name, namespace }, patch, { ...options, fieldManager: MANAGER });
    log.info("pod may be scheduled", { pod: name, namespace });
  } catch (error) {
    if (!isKubeError(error, "not-found", "conflict")) throw error;
  }
}
