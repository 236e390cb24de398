import type { VpcPort } from "#cloud/vpc";
import { ownPorts } from "./identity.ts";
import { hasPort, wished } from "./nic.ts";
import { observeNic } from "./observe.ts";
import { type ClaimRecord, hasCondition, nicsOf } from "./record.ts";

/** The answer of a provider to a poll. */
export interface PolledPorts {
  /** The ports of the claim's device. */
  readonly ports: readonly VpcPort[];
  /** Recorded ports that have another device, by their ids. */
  readonly elsewhere: ReadonlyMap<string, VpcPort>;
}

/** The ids of the ports that a claim records. Pure. */
export function recordedIds(record: ClaimRecord): readonly string[] {
  return nicsOf(record).flatMap((nic) => (nic.portID !== undefined && hasPort(nic) ? [nic.portID] : []));
}

/** The change of a record by a poll of its ports; `isNews`: a pass has to act on it. Pure. */
export function polled(
  record: ClaimRecord,
  { ports, elsewhere }: PolledPorts,
  { now, random }: { readonly now: number; readonly random: number },
): { readonly change: Partial<ClaimRecord>; readonly isNews: boolean } {
  const ids = recordedIds(record);
  const found = new Map(ports.map((port) => [port.id, port]));
  for (const id of ids) {
    const port = elsewhere.get(id);
    if (!found.has(id) && port !== undefined) found.set(id, port);
  }
  const downSince = new Map(
    ids
      .filter((id) => found.get(id)?.status === "DOWN")
      .map((id) => [id, record.observation.downSince.get(id) ?? now] as const),
  );
  const observation = { ports: found, missing: new Set(ids.filter((id) => !found.has(id))), downSince };
  const { surplus, unrecorded } = unknownPorts(record, ports);
  const change = {
    observation,
    surplus,
    mayHavePort: new Set([...record.mayHavePort, ...unrecorded]),
    isLookedUp: record.isLookedUp && unrecorded.length === 0,
  };
  // Whether the pod ends decides only about what is reported.
  const pod = { isPlugged: hasCondition(record.claim, "Plugged"), isStarted: true, isEnding: false };
  const hasChanged = wished(record.claim.spec.nics, nicsOf(record)).some(
    (nic) => observeNic(nic, observation, { pod, now, random }) !== nic,
  );
  return { change, isNews: hasChanged || unrecorded.length > 0 || surplus.length > 0 };
}

/** The ports of a claim's identity that it does not record: `surplus` are ids of ports that are deleted, `unrecorded` names of NICs that have one. */
function unknownPorts(
  record: ClaimRecord,
  ports: readonly VpcPort[],
): { readonly surplus: readonly string[]; readonly unrecorded: readonly string[] } {
  const recorded = new Map(
    nicsOf(record).flatMap(({ name, portID }) => (portID === undefined ? [] : [[name, portID]])),
  );
  const known = new Set([...record.claim.spec.nics, ...nicsOf(record)].map(({ name }) => name));
  const own = ownPorts(ports, record.uid, recorded, record.namespace);
  const surplus = [...own].flatMap(([nic, { port, surplus: others }]) => {
    // A NIC that the pod had once: a request for its port was done after it was given up.
    if (!known.has(nic)) return [port, ...others].map(({ id }) => id);
    return port.id === recorded.get(nic) ? others.map(({ id }) => id) : [];
  });
  const unrecorded = [...own.keys()].filter(
    // Of a port that cannot be deleted the NIC knows, and has its pause.
    (nic) => known.has(nic) && !recorded.has(nic) && !record.undeleted.has(nic),
  );
  return { surplus, unrecorded };
}
