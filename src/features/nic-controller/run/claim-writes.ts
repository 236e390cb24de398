import { isEqual } from "#base/collections";
import { isKubeError, type KubeError } from "#kube/client";
import { CLAIM_NODE_LABEL, type NamedNic, nicResources, PORTS_FINALIZER } from "#kube/nic";
import type { ClaimRecord } from "../plan/record.ts";
import type { ClaimApi } from "./guarded-api.ts";
import type { ClaimEntry } from "./ledger.ts";

type Options = { readonly signal: AbortSignal };

/** The manager of the fields that this controller applies. */
export const MANAGER = "nic-controller";

/** Stores the status of a record if it differs from what is stored. A claim that is gone is none of the controller's business any more. */
export async function storeStatus(api: ClaimApi, entry: ClaimEntry, options: Options): Promise<void> {
  const { status, stored, uid, namespace, claim } = entry.record;
  if (isEqual(status, stored)) return;
  const { apiVersion = "isthmus.dev/v1alpha1", kind = "NicClaim", metadata } = claim;
  // With the uid, a claim that was made again under the name is not written to.
  const body = { apiVersion, kind, metadata: { name: uid, namespace, uid: metadata.uid }, status };
  const apply = { type: "apply", body, fieldManager: MANAGER, force: true } as const;
  try {
    const after = await api.patch(nicResources.nicClaims, { name: uid, namespace }, apply, {
      ...options,
      subresource: "status",
    });
    entry.update({ claim: after });
  } catch (error) {
    if (!isGone(error)) throw error;
  }
  entry.update({ stored: status });
}

/** Writes the label by which the node's agent finds its claims. A claim that is gone is no error. */
export async function storeLabel(api: ClaimApi, entry: ClaimEntry, label: string, options: Options): Promise<void> {
  const { claim, uid, namespace } = entry.record;
  const body = { metadata: { uid: claim.metadata.uid, labels: { [CLAIM_NODE_LABEL]: label } } };
  try {
    const after = await api.patch(nicResources.nicClaims, { name: uid, namespace }, { type: "merge", body }, options);
    entry.update({ claim: after });
  } catch (error) {
    if (!isGone(error)) throw error;
  }
  entry.update({ labelled: label });
}

/** Writes other NICs into a claim. Resolves to false for a claim that is gone. */
export async function storeNics(
  api: ClaimApi,
  entry: ClaimEntry,
  nics: readonly NamedNic[],
  options: Options,
): Promise<boolean> {
  const { claim, uid, namespace } = entry.record;
  const body = { metadata: { uid: claim.metadata.uid }, spec: { nics } };
  try {
    const after = await api.patch(nicResources.nicClaims, { name: uid, namespace }, { type: "merge", body }, options);
    entry.update({ claim: after });
    return true;
  } catch (error) {
    if (!isGone(error)) throw error;
    return false;
  }
}

/** Deletes a claim, which its finalizer keeps: from now on no ADD plugs its ports. One that is gone is no error. */
export async function deleteClaim(
  api: ClaimApi,
  { uid, namespace, claim }: ClaimRecord,
  options: Options,
): Promise<void> {
  if (claim.metadata.deletionTimestamp !== undefined) return;
  try {
    const ref = { name: uid, namespace };
    await api.delete(nicResources.nicClaims, ref, { ...options, preconditions: { uid: claim.metadata.uid } });
  } catch (error) {
    if (!isGone(error)) throw error;
  }
}

/** Takes the finalizer off a claim that was deleted; one that is gone is no error. */
export async function finishClaim(
  api: ClaimApi,
  { uid, namespace, claim }: ClaimRecord,
  options: Options,
): Promise<void> {
  const ref = { name: uid, namespace };
  const type = nicResources.nicClaims;
  try {
    // Not by the cached version: the node may have written meanwhile.
    const current = await api.get(type, ref, options);
    if (current.metadata.uid !== claim.metadata.uid) return;
    const finalizers = (current.metadata.finalizers ?? []).filter((one) => one !== PORTS_FINALIZER);
    const { resourceVersion } = current.metadata;
    await api.patch(type, ref, { type: "merge", body: { metadata: { resourceVersion, finalizers } } }, options);
  } catch (error) {
    if (!isGone(error)) throw error;
  }
}

function isGone(error: unknown): error is KubeError {
  return isKubeError(error, "not-found");
}
