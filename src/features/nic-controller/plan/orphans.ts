import type { VpcPort } from "#cloud/vpc";
import { DEVICE_OWNER, mayBeCut, readOwner, readPortName } from "./identity.ts";

/** Which ports have lost their claim, as one pass sees it. */
export interface OrphanWorld {
  readonly clusterId: string;
  /** True if no other cluster can have this id: then a port needs no age if its pod can be asked for. Default false. */
  readonly isUnique?: boolean | undefined;
  /** Returns true if a pod's claim, or the pod itself, is known. */
  readonly isWanted: (podUID: string) => boolean;
  /** Milliseconds since the epoch. */
  readonly now: number;
  /** A port is left alone until it has this age, in milliseconds, unless it needs none. */
  readonly minAgeMs: number;
}

/** A port without a claim. */
export interface Orphan {
  readonly id: string;
  readonly podUID: string;
  readonly namespace: string;
  /** True if one pass and the answer of the API server suffice: the port is of this very cluster, and names its pod whole. */
  readonly isCertain: boolean;
}

/**
 * The ports that this cluster has made and nobody wants any more (docs/spec/vpc-nics.md#5.8). A port without our description, or with another
 * cluster's, is never one. Something else that detaches a port clears its owner and device: the port's name then tells whose it was. Pure.
 */
export function orphansOf(ports: Iterable<VpcPort>, world: OrphanWorld): readonly Orphan[] {
  const orphans: Orphan[] = [];
  for (const port of ports) {
    const owner = readOwner(port.description);
    const name = readPortName(port.name);
    if (owner === undefined || name === undefined || owner.cluster !== world.clusterId) continue;
    // A port that somebody gave to another device is theirs.
    const isDetached = port.deviceOwner === "" && (port.deviceId === "" || port.deviceId === name.podUID);
    if (!isDetached && (port.deviceOwner !== DEVICE_OWNER || port.deviceId !== name.podUID)) continue;
    const isCertain = world.isUnique === true && !mayBeCut(port.description);
    const ageMs = world.now - Date.parse(port.createdAt);
    // A time that cannot be read is no proof of age.
    if (!(isCertain || ageMs >= world.minAgeMs) || world.isWanted(name.podUID)) continue;
    orphans.push({ id: port.id, podUID: name.podUID, namespace: owner.namespace, isCertain });
  }
  return orphans;
}

/** The reason why an orphaned port is not deleted; `undefined`: it may be deleted. A port in use is deleted only for a claim that this controller itself has had. Pure. */
export function leftBecause(
  { status, binding }: Pick<VpcPort, "status" | "binding">,
  wasOwn: boolean,
): string | undefined {
  if (wasOwn || status !== "ACTIVE" || binding.host === "") return undefined;
  return `it is ACTIVE on host ${binding.host}, and this controller has never had its claim: another cluster with this id may use it`;
}
