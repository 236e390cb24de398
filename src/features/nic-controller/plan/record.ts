import { CLAIM_NODE_LABEL, type NicClaim, type NicClaimPhase, type NicClaimStatus, type NicStatus } from "#kube/nic";
import type { NicCluster, PodView } from "../world.ts";
import { completed, hasPort } from "./nic.ts";
import type { Observation } from "./observe.ts";
import { waitsForOne } from "./retry.ts";

/** For how long a request that has no answer may still make a port, in milliseconds: the limit of a bulk, and some more. */
export const DOUBT_MS = 70_000;

/**
 * The record of a claim: all that the leader knows of it beside the cache, which may be behind its own writes. A record is never changed; the entry of
 * the ledger replaces it by the next one.
 */
export interface ClaimRecord {
  readonly uid: string;
  readonly namespace: string;
  /** The claim as it was seen or written last; the status is that of {@link status}. */
  readonly claim: NicClaim;
  /** True if the cache has had the claim: then its absence means that it is gone. */
  readonly isCached: boolean;
  /** True if the API server was asked for the claim's pod and did not have it: a uid does not come back. */
  readonly podIsGone: boolean;
  /** The fields of the status that are ours, as they should be stored. */
  readonly status: NicClaimStatus;
  /** The stored part of them. */
  readonly stored: NicClaimStatus;
  /** True if ports with the claim's identity are known: they were looked up after the last request for one that has not given a port. */
  readonly isLookedUp: boolean;
  /** NICs without a recorded port that likely have one: a refusal that their own port can have caused, or a poll, says so. They are looked up at once. */
  readonly mayHavePort: ReadonlySet<string>;
  /** The time since which its pod is known to be over, on the monotonic clock. */
  readonly overSince: number | undefined;
  /** When a release that has failed is tried again, on the monotonic clock. */
  readonly releaseAt: number;
  /** NICs that have a port of no use, which could not be deleted: it is looked for again before another one is made. */
  readonly undeleted: ReadonlySet<string>;
  /** The value of the claim's label of its node. */
  readonly labelled: string | undefined;
  /** The host that the pod had in the last pass: a first one is a reason to try again. */
  readonly host: string | undefined;
  /** The host at which its ports stay although its Node does not name it any more, once that is told. */
  readonly keptHost: string | undefined;
  /** The result of the last poll of the ports, until a pass has taken it in. */
  readonly observation: Observation;
  /** Ids of ports that have the identity of a recorded one. */
  readonly surplus: readonly string[];
  /** When a request about its ports was made or answered last, on the monotonic clock: an older look tells nothing. */
  readonly touchedAt: number;
  /** Until when a request whose end is not known may still make a port, on the monotonic clock. */
  readonly doubtUntil: number;
  /** The NICs whose ports it may make. */
  readonly doubtful: ReadonlySet<string>;
  /** True if it may also make second ports of NICs whose ports were recorded lately: a release waits for them, and the poller deletes them. */
  readonly mayHaveSeconds: boolean;
  /** When its ports are looked at next, on the monotonic clock; `undefined`: they are not. */
  readonly pollAt: number | undefined;
  readonly pollEveryMs: number;
  /** Until when the pause between looks does not grow, on the monotonic clock. */
  readonly quickUntil: number;
  /** NICs that were plugged and not active in the last pass. */
  readonly awaited: number;
  /** When the node's report of plugged interfaces was first seen, on the monotonic clock. */
  readonly pluggedAt: number | undefined;
  /** The part of the pod's surface that was written last, and the version of the pod at that time: an older one shows nothing else yet. */
  readonly surface: { readonly text: string; readonly version: string };
  /** The reason why NICs that the pod has asked for since are not in the claim; empty: there are none. */
  readonly refusal: string;
  /** The version of the pod that the API server did not have any more when the claim was to follow it: the cache is behind, and tells a later version. */
  readonly staleAs: string | undefined;
  /** Ports that the claim is being extended to have; 0 before and after. They count for the quota before they are stored. */
  readonly growsTo: number;
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
    staleAs: undefined,
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

/** The reports of the node about a claim's pod. */
export function hasCondition({ status }: NicClaim, type: "Plugged" | "Unplugged"): boolean {
  return status?.conditions?.some((one) => one.type === type && one.status === "True") === true;
}

/** When the node has lost the devices of NICs with their sandbox, if it has, and has not plugged them since (docs/spec/vpc-nics.md#9). */
export function deviceLostAt({ status }: NicClaim): string | undefined {
  return status?.conditions?.find(
    (one) => one.type === "Unplugged" && one.status === "True" && one.reason === "DeviceLost",
  )?.lastTransitionTime;
}

/** Returns true if the node has a NIC: it says so of each one, or of the sandbox as a whole. */
export function isPlugged(claim: NicClaim, nic: string): boolean {
  if (!hasCondition(claim, "Plugged")) return false;
  const { plugged } = claim.status ?? {};
  return plugged === undefined || plugged.nics.some(({ name }) => name === nic);
}

/** Returns true if the node has told that it does not have a NIC, and that it will not make it any more. */
export function isLetGo({ status, metadata }: NicClaim, nic: string): boolean {
  const { plugged } = status ?? {};
  if (plugged === undefined || plugged.generation < (metadata.generation ?? 0)) return false;
  return !plugged.nics.some(({ name }) => name === nic);
}

/** The key of a claim in queues: `NAMESPACE/UID`. */
export function keyOf({ namespace, uid }: Pick<ClaimRecord, "namespace" | "uid">): string {
  return `${namespace}/${uid}`;
}

/** The change of a record in which each NIC becomes another one. Pure. */
export function changedNics(record: ClaimRecord, change: (nic: NicStatus) => NicStatus): Pick<ClaimRecord, "status"> {
  return { status: { ...record.status, nics: nicsOf(record).map(change) } };
}

/** The status of a record after a step, with what it keeps of the one before. Pure. */
export function nextStatus(
  { claim, status: before }: ClaimRecord,
  { nics, phase, nodeName }: { nics: readonly NicStatus[]; phase: NicClaimPhase; nodeName: string | undefined },
): NicClaimStatus {
  const { generation } = claim.metadata;
  const node = nodeName ?? before.nodeName;
  return {
    ...(generation === undefined ? {} : { observedGeneration: generation }),
    ...(node === undefined ? {} : { nodeName: node }),
    phase,
    nics: [...nics],
  };
}

/** A request about the ports was sent or answered at `now`, on the monotonic clock: what was seen of the ports until then is outdated. Pure. */
export function touched({ observation }: ClaimRecord, now: number): Partial<ClaimRecord> {
  return { touchedAt: now, observation: { ...NOTHING, missing: observation.missing } };
}

/**
 * The port of a NIC may be there, or come later: it is looked up before another is made, and for a while after that. `now` is of the monotonic
 * clock. Pure.
 */
export function doubted({ doubtful, doubtUntil }: ClaimRecord, nic: string, now: number): Partial<ClaimRecord> {
  return {
    isLookedUp: false,
    doubtful: new Set([...(now < doubtUntil ? doubtful : []), nic]),
    doubtUntil: now + DOUBT_MS,
  };
}

/**
 * A claim that another leader had before. That leader may have asked for ports that are not recorded, also for a second one of a NIC that has a young one; and
 * it may have given back what a NIC waits for, and ended before it tried that again. `now` is of the wall clock. Pure.
 */
export function inherited(
  record: ClaimRecord,
  { now, monotonic }: { now: number; monotonic: number },
): Partial<ClaimRecord> {
  const all = completed(record.claim.spec.nics, nicsOf(record));
  const doubtful = new Set(all.flatMap((nic) => (hasPort(nic) ? [] : [nic.name])));
  const mayHaveSeconds = all.some((nic) => hasPort(nic) && isYoung(nic, now));
  return {
    doubtful,
    mayHaveSeconds,
    doubtUntil: doubtful.size > 0 || mayHaveSeconds ? monotonic + DOUBT_MS : 0,
    ...changedNics(record, (nic) => (waitsForOne(nic.reason) ? withoutPause(nic) : nic)),
  };
}

/** True if a port was recorded so lately that an earlier request for it, without an answer, may still make another one. */
function isYoung({ createdByController, createdAt = "" }: NicStatus, now: number): boolean {
  // A time that cannot be read, or that is to come by this clock, is no proof of age.
  return createdByController === true && !(now - Date.parse(createdAt) >= DOUBT_MS);
}

/** A NIC that may be tried now; it keeps its count of failures. */
export function withoutPause({ nextRetryAt: _, ...nic }: NicStatus): NicStatus {
  return nic;
}

/** True if a pod has ended. */
export function isOver({ status: { phase } }: PodView): boolean {
  return phase === "Succeeded" || phase === "Failed";
}

/** True if the ports of a claim count already: they are there, or are being made. */
export function hasBegun(status: NicClaim["status"]): boolean {
  const { phase = "Pending", nics = [] } = status ?? {};
  return phase !== "Pending" || nics.some(hasPort);
}
