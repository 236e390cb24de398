import type { VpcPort } from "#cloud/vpc";
import type { NicStatus } from "#kube/nic";
import { isOfOther, ownPorts } from "./identity.ts";
import { type ClaimRecord, nicsOf } from "./record.ts";

/** The ports that a claim gives back. */
export interface ReleasePlan {
  /** Ids of ports that are deleted. */
  readonly deletes: ReadonlySet<string>;
  /** NICs whose ports are given back to their user. */
  readonly lent: readonly NicStatus[];
  /** Ids of recorded ports that were made for pods of other namespaces: they stay. */
  readonly foreign: readonly string[];
}

/** The ids of ports that a claim says to have been made for it. Pure. */
export function recordedPorts(record: ClaimRecord): readonly string[] {
  return nicsOf(record).flatMap(({ createdByController, portID }) =>
    createdByController === true && portID !== undefined ? [portID] : [],
  );
}

/**
 * Which ports a claim gives back (docs/spec/vpc-nics.md#5.7): all that were made for it, recorded or not, and those of users that nobody else has. `found` are the
 * ports with its identity, `recorded` those that it records, which may have another device by now. Pure.
 */
export function planRelease(
  record: ClaimRecord,
  {
    found,
    recorded,
    isHeld,
  }: {
    readonly found: readonly VpcPort[];
    readonly recorded: readonly VpcPort[];
    /** Returns true if another claim has a user's port. */
    readonly isHeld: (portID: string) => boolean;
  },
): ReleasePlan {
  const foreign = new Set(recorded.filter((port) => isOfOther(port, record.namespace)).map(({ id }) => id));
  const deletes = new Set(recordedPorts(record).filter((id) => !foreign.has(id)));
  const lent = nicsOf(record).filter((nic) => isLent(nic, record, found) && !isHeld(nic.portID ?? ""));
  for (const { port, surplus } of ownPorts(found, record.uid, new Map(), record.namespace).values()) {
    for (const { id } of [port, ...surplus]) if (!lent.some(({ portID }) => portID === id)) deletes.add(id);
  }
  return { deletes, lent, foreign: [...foreign] };
}

/** The ports that are released of a NIC that its pod does not want any more. */
export interface GiveUpPlan {
  readonly nic: NicStatus;
  readonly deletes: ReadonlySet<string>;
  /** True: its port is one of a user, and the pod's still. */
  readonly isLent: boolean;
}

/** Which ports of NICs are released while the pod goes on (docs/spec/vpc-nics.md#10). Pure. */
export function planGiveUp(
  record: ClaimRecord,
  names: readonly string[],
  found: readonly VpcPort[],
): readonly GiveUpPlan[] {
  const own = ownPorts(found, record.uid, new Map(), record.namespace);
  return nicsOf(record)
    .filter(({ name }) => names.includes(name))
    .map((nic) => {
      const { port, surplus = [] } = own.get(nic.name) ?? {};
      const deletes = new Set([port, ...surplus].flatMap((one) => (one === undefined ? [] : [one.id])));
      if (nic.portID !== undefined && nic.createdByController === true) deletes.add(nic.portID);
      return { nic, deletes, isLent: isLent(nic, record, found) };
    });
}

/** True if a NIC has a user's port. One that has another device by now is somebody else's. */
function isLent({ createdByController, portID }: NicStatus, { uid }: ClaimRecord, found: readonly VpcPort[]): boolean {
  if (createdByController !== false || portID === undefined) return false;
  return found.some(({ id, deviceId }) => id === portID && deviceId === uid);
}
