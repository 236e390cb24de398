import type { NicStatus } from "#kube/nic";
import type { NodeView, PodView } from "../world.ts";
import { type ProviderHost, providerHost } from "./host.ts";
import { completed, wished } from "./nic.ts";
import { type ObservedPod, observeNic } from "./observe.ts";
import { type ClaimRecord, hasCondition, isOver, isPlugged, NOTHING, nicsOf, withoutPause } from "./record.ts";

/** The pod and the node of a claim, as the caches have them. */
export interface ClaimWorld {
  readonly pod: PodView | undefined;
  /** The node of the pod. */
  readonly node: NodeView | undefined;
}

/** The time, and a random number in [0, 1). */
export interface Moment {
  /** Milliseconds since the epoch. */
  readonly now: number;
  /** Milliseconds of the monotonic clock. */
  readonly monotonic: number;
  readonly random: number;
}

/** The host of the pod's node at the provider; none without a node. Pure. */
export function hostOf(record: ClaimRecord, { pod, node }: ClaimWorld): ProviderHost {
  const nodeName = pod?.spec.nodeName;
  if (nodeName === undefined) return { host: undefined, isKept: false };
  const { claim } = record;
  const inUse = wished(claim.spec.nics, nicsOf(record)).filter(({ name }) => isPlugged(claim, name));
  return providerHost({ nodeName, node, inUse });
}

/**
 * The record of a claim once its pod, its node and the last poll of its ports are taken in: its NICs in the order of the claim, as their ports are. Pure.
 */
export function observed(record: ClaimRecord, world: ClaimWorld, { now, monotonic, random }: Moment): ClaimRecord {
  const { pod, node } = world;
  const before = completed(record.claim.spec.nics, nicsOf(record));
  const { host, isKept } = hostOf(record, world);
  // A failure before the pod had a node may be none on the node.
  const isFirstHost = host !== undefined && record.host === undefined && record.status.nodeName === undefined;
  const wishes = new Set(record.claim.spec.nics.map(({ name }) => name));
  const nics = before
    .map((nic) => (isFirstHost ? withoutPause(nic) : nic))
    .map((nic) =>
      wishes.has(nic.name)
        ? observeNic(nic, record.observation, { pod: observedPod(record, pod, nic.name), now, random })
        : nic,
    );
  // A port that is to be made again: nobody knows what else is there.
  const hasLost = nics.some((nic, at) => nic.portID === undefined && before[at]?.portID !== undefined);
  const isPodOver = pod !== undefined && isOver(pod);
  return {
    ...record,
    host,
    keptHost: pod?.spec.nodeName === undefined ? record.keptHost : isKept && node !== undefined ? host : undefined,
    overSince: isPodOver ? (record.overSince ?? monotonic) : record.overSince,
    surplus: [],
    isLookedUp: record.isLookedUp && !hasLost,
    observation: { ...NOTHING, downSince: record.observation.downSince },
    status: { ...record.status, nics: [...nics] },
  };
}

function observedPod({ claim }: ClaimRecord, pod: PodView | undefined, nic: string): ObservedPod {
  const has = isPlugged(claim, nic);
  // A NIC that was added to a sandbox is not in use before the node has it.
  const isAwaited = !has && hasCondition(claim, "Plugged");
  return {
    isPlugged: has,
    isStarted: has || (!isAwaited && (pod?.status.phase ?? "Pending") !== "Pending"),
    isEnding:
      pod === undefined ||
      isOver(pod) ||
      pod.metadata.deletionTimestamp !== undefined ||
      hasCondition(claim, "Unplugged"),
  };
}

/** NICs of which people have to know: those that became ready, and those that have failed since `before`. Pure. */
export function newsOf(
  before: readonly NicStatus[],
  after: readonly NicStatus[],
): { readonly ready: readonly NicStatus[]; readonly failed: readonly (NicStatus & { readonly reason: string })[] } {
  const old = new Map(before.map((nic) => [nic.name, nic]));
  const ready = after.filter(({ name, state }) => state === "Ready" && old.get(name)?.state !== "Ready");
  const failed = after.flatMap((nic) => {
    const { name, state, reason } = nic;
    const isReported = state === "Failed" || reason === "PortLost" || reason === "PortDown";
    const was = old.get(name);
    if (!isReported || reason === undefined || (was?.state === state && was.reason === reason)) return [];
    return [{ ...nic, reason }];
  });
  return { ready, failed };
}
