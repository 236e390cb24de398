import { isDeepStrictEqual } from "node:util";
import { isKubeError, type KubeError } from "#kube/client";
import {
  CLAIM_NODE_LABEL,
  type NicClaim,
  type NicClaimStatus,
  type NicStatus,
  nicResources,
  PORTS_FINALIZER,
} from "#kube/nic";
import type { Observation } from "../plan/observe.ts";
import type { NicCluster, PodView } from "../world.ts";
import type { ClaimApi } from "./guarded-api.ts";

/** The manager of the fields that this controller applies. */
export const MANAGER = "nic-controller";

/** What the leader knows of a claim beside the cache, which may be behind its own writes. One worker at a time has it. */
export interface ClaimRecord {
  readonly uid: string;
  readonly namespace: string;
  /** The claim as it was seen or written last; the status is that of {@link status}. */
  claim: NicClaim;
  /** Whether the cache has had the claim: then its absence means that it is gone. */
  isCached: boolean;
  /** Whether the API server was asked for the claim's pod and did not have it: a uid does not come back. */
  podIsGone: boolean;
  /** The fields of the status that are ours, as they should be stored. */
  status: NicClaimStatus;
  /** What is stored of them. */
  stored: NicClaimStatus;
  /** Whether ports with the claim's identity are known: they were looked up after the last request for one that has not given a port. */
  isLookedUp: boolean;
  /** NICs without a recorded port that likely have one: a refusal that their own port can have caused, or a poll, says so. They are looked up at once. */
  mayHavePort: Set<string>;
  /** Since when its pod is known to be over, on the monotonic clock. */
  overSince: number | undefined;
  /** When a release that has failed is tried again, on the monotonic clock. */
  releaseAt: number;
  /** NICs that have a port of no use, which could not be deleted: it is looked for again before another one is made. */
  undeleted: Set<string>;
  /** The value of the claim's label of its node. */
  labelled: string | undefined;
  /** The host that the pod had in the last pass: a first one is a reason to try again. */
  host: string | undefined;
  /** The host at which its ports stay although its Node does not name it any more, once that is told. */
  keptHost: string | undefined;
  /** What the last look at the ports has found, until a pass has seen it. */
  observation: Observation;
  /** Ids of ports that have the identity of a recorded one. */
  surplus: readonly string[];
  /** When a request about its ports was made or answered last, on the monotonic clock: an older look tells nothing. */
  touchedAt: number;
  /** Until when a request whose end is not known may still make a port, on the monotonic clock. */
  doubtUntil: number;
  /** The NICs whose ports it may make. */
  doubtful: ReadonlySet<string>;
  /** Whether it may also make second ports of NICs whose ports were recorded lately: a release waits for them, and the poller deletes them. */
  mayHaveSeconds: boolean;
  /** When its ports are looked at next, on the monotonic clock; `undefined`: they are not. */
  pollAt: number | undefined;
  pollEveryMs: number;
  /** Until when the pause between looks does not grow, on the monotonic clock. */
  quickUntil: number;
  /** NICs that were plugged and not active in the last pass. */
  awaited: number;
  /** When the node's report of plugged interfaces was first seen, on the monotonic clock. */
  pluggedAt: number | undefined;
  /** What was last written of the pod's surface, and the version of the pod at that time: an older one shows nothing else yet. */
  surface: { readonly text: string; readonly version: string };
  /** Why NICs that the pod has asked for since are not in the claim; empty: there are none. */
  refusal: string;
  /** Ports that the claim is being extended to have; 0 before and after. They count for the quota before they are stored. */
  growsTo: number;
}

/** The pod of a claim: it has the uid and the namespace of the claim, which may be a copy of another namespace's. */
export function podOf(
  cluster: Pick<NicCluster, "pod">,
  { uid, namespace }: Pick<ClaimRecord, "uid" | "namespace">,
): PodView | undefined {
  const pod = cluster.pod(uid);
  return pod?.metadata.namespace === namespace ? pod : undefined;
}

/** A look that has found nothing. */
export const NOTHING: Observation = { ports: new Map(), missing: new Set(), downSince: new Map() };

/** The record of a claim that is seen for the first time. */
export function recordOf(claim: NicClaim, namespace: string, isCached: boolean): ClaimRecord {
  const status = ownStatus(claim.status);
  return {
    uid: claim.metadata.name,
    namespace,
    claim,
    isCached,
    podIsGone: false,
    overSince: undefined,
    releaseAt: Number.NEGATIVE_INFINITY,
    status,
    stored: status,
    isLookedUp: false,
    mayHavePort: new Set(),
    undeleted: new Set(),
    labelled: claim.metadata.labels?.[CLAIM_NODE_LABEL],
    host: undefined,
    keptHost: undefined,
    observation: NOTHING,
    surplus: [],
    touchedAt: Number.NEGATIVE_INFINITY,
    doubtUntil: Number.NEGATIVE_INFINITY,
    doubtful: new Set(),
    mayHaveSeconds: false,
    pollAt: undefined,
    pollEveryMs: 0,
    quickUntil: Number.NEGATIVE_INFINITY,
    awaited: 0,
    pluggedAt: undefined,
    surface: { text: "", version: "" },
    refusal: "",
    growsTo: 0,
  };
}

/** The controller's part of a status: not the conditions and what is plugged, which are the node's. */
function ownStatus({ conditions: _conditions, plugged: _plugged, ...status }: NicClaimStatus = {}): NicClaimStatus {
  return status;
}

/** The NICs of a record. */
export function nicsOf(record: ClaimRecord): readonly NicStatus[] {
  return record.status.nics ?? [];
}

/** What the node has told of a claim's pod. */
export function hasCondition({ status }: NicClaim, type: "Plugged" | "Unplugged"): boolean {
  return status?.conditions?.some((one) => one.type === type && one.status === "True") === true;
}

/** When the node has lost the devices of NICs with their sandbox, if it has, and has not plugged them since (docs/spec/vpc-nics.md#9). */
export function deviceLostAt({ status }: NicClaim): string | undefined {
  return status?.conditions?.find(
    (one) => one.type === "Unplugged" && one.status === "True" && one.reason === "DeviceLost",
  )?.lastTransitionTime;
}

/** Whether the node has a NIC: it says so of each one, or of the sandbox as a whole. */
export function isPlugged(claim: NicClaim, nic: string): boolean {
  if (!hasCondition(claim, "Plugged")) return false;
  const { plugged } = claim.status ?? {};
  return plugged === undefined || plugged.nics.some(({ name }) => name === nic);
}

/** Whether the node has told that it does not have a NIC, and that it will not make it any more. */
export function isLetGo({ status, metadata }: NicClaim, nic: string): boolean {
  const { plugged } = status ?? {};
  if (plugged === undefined || plugged.generation < (metadata.generation ?? 0)) return false;
  return !plugged.nics.some(({ name }) => name === nic);
}

/** Stores a record's status if it differs from what is stored. A claim that is gone is none of the controller's business any more. */
export async function storeStatus(
  api: ClaimApi,
  record: ClaimRecord,
  options: { readonly signal: AbortSignal },
): Promise<void> {
  if (isDeepStrictEqual(record.status, record.stored)) return;
  const { status, uid, namespace } = record;
  const { apiVersion = "isthmus.dev/v1alpha1", kind = "NicClaim", metadata } = record.claim;
  // With the uid, a claim that was made again under the name is not written to.
  const body = { apiVersion, kind, metadata: { name: uid, namespace, uid: metadata.uid }, status };
  const apply = { type: "apply", body, fieldManager: MANAGER, force: true } as const;
  try {
    const after = await api.patch(nicResources.nicClaims, { name: uid, namespace }, apply, {
      ...options,
      subresource: "status",
    });
    record.claim = after;
  } catch (error) {
    if (!isKubeError(error, "not-found")) throw error;
  }
  record.stored = status;
}

/** Deletes a claim, which its finalizer keeps: from now on no ADD plugs its ports. One that is gone is no error. */
export async function deleteClaim(
  api: ClaimApi,
  { uid, namespace, claim }: ClaimRecord,
  options: { readonly signal: AbortSignal },
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
  options: { readonly signal: AbortSignal },
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
