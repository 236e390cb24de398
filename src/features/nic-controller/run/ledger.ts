import type { NicClaim, NicClaimPhase, NicStatus } from "#kube/nic";
import type { NicCluster } from "../world.ts";
import type { PhaseSample } from "./deps.ts";
import { type ClaimRecord, nicsOf, recordOf } from "./record.ts";

/** Claims that are remembered after their end. */
const MAX_FORMER = 10_000;

/** The claims that this process works on, and whose the users' ports are. It holds as many records as there are claims. */
export class ClaimLedger {
  readonly #cluster: Pick<NicCluster, "claim">;
  readonly #records = new Map<string, ClaimRecord>();
  /** The claim that has a user's port, by the port's id. */
  readonly #holders = new Map<string, ClaimKey>();
  /** Claims that it had and has no more, the latest ones: their ports may be deleted whatever state they are in. */
  readonly #former = new Set<string>();

  constructor(cluster: Pick<NicCluster, "claim">) {
    this.#cluster = cluster;
  }

  /** All records; they may be changed by their worker meanwhile. */
  records(): Iterable<ClaimRecord> {
    return this.#records.values();
  }

  get(namespace: string, uid: string): ClaimRecord | undefined {
    return this.#records.get(keyOf({ namespace, uid }));
  }

  /** Phases and times of all claims, for metrics. */
  *phases(): Generator<PhaseSample> {
    for (const { status, claim } of this.#records.values()) {
      yield { phase: status.phase ?? "Pending", createdAt: Date.parse(claim.metadata.creationTimestamp ?? "") };
    }
  }

  /** The record of a claim, made equal to the cache where that knows more; `undefined` if there is no claim. */
  current(namespace: string, uid: string): ClaimRecord | undefined {
    const cached = this.#cluster.claim(namespace, uid);
    const known = this.get(namespace, uid);
    if (known === undefined)
      return cached === undefined ? undefined : this.#remember(recordOf(cached, namespace, true));
    if (cached?.metadata.uid === known.claim.metadata.uid) {
      known.isCached = true;
      // Of our own changes the cache may not know yet; it would bring back NICs that the pod has given up.
      if ((cached.metadata.generation ?? 0) >= (known.claim.metadata.generation ?? 0)) known.claim = cached;
      return known;
    }
    // Before the cache has had the claim, that is one which was made just now; what the cache has is a memory of the one before.
    if (!known.isCached) return known;
    this.forget(known);
    return cached === undefined ? undefined : this.#remember(recordOf(cached, namespace, true));
  }

  /** A claim that was made just now. */
  add(claim: NicClaim, namespace: string): ClaimRecord {
    return this.#remember(recordOf(claim, namespace, false));
  }

  forget(record: ClaimRecord): void {
    this.#records.delete(keyOf(record));
    const [oldest] = this.#former;
    if (oldest !== undefined && this.#former.size >= MAX_FORMER) this.#former.delete(oldest);
    this.#former.add(keyOf(record));
    for (const [portID, holder] of this.#holders) if (keyOf(holder) === keyOf(record)) this.#holders.delete(portID);
  }

  /** Whether it has a claim, or has had it lately. */
  hasHad(namespace: string, uid: string): boolean {
    const key = keyOf({ namespace, uid });
    return this.#records.has(key) || this.#former.has(key);
  }

  /** The uid of another pod that has a user's port. */
  holderOf(portID: string, except: ClaimKey): string | undefined {
    const holder = this.#holders.get(portID);
    return holder === undefined || keyOf(holder) === keyOf(except) ? undefined : holder.uid;
  }

  /** The pod, as `namespace/name`, that has a user's port. */
  holderName(portID: string): string | undefined {
    const holder = this.#holders.get(portID);
    return holder === undefined ? undefined : podName(this.#records.get(keyOf(holder)));
  }

  /** The pod, as `namespace/name`, with a NIC of which this is true, beside those of one claim. It looks at all NICs: for what waits long anyhow. */
  podWith(isMeant: (nic: NicStatus) => boolean, except: ClaimKey): string | undefined {
    for (const record of this.#records.values())
      if (keyOf(record) !== keyOf(except) && nicsOf(record).some(isMeant)) return podName(record);
    return undefined;
  }

  /** A user's port belongs to the pod of a claim from now on. */
  hold(portID: string, { uid, namespace }: ClaimKey): void {
    this.#holders.set(portID, { uid, namespace });
  }

  /** A user's port was given back while its pod goes on. */
  free(portID: string, claim: ClaimKey): void {
    if (this.holderOf(portID, claim) === undefined) this.#holders.delete(portID);
  }

  /** Ends the pauses after failures of the meant NICs. Returns the claims that have some, and those whose pods were refused NICs. */
  tryAgain(isMeant: IsMeant): readonly ClaimRecord[] {
    const changed: ClaimRecord[] = [];
    for (const record of this.#records.values()) {
      const nics = nicsOf(record);
      const { phase } = record.status;
      const pauses = nics.some((nic) => nic.nextRetryAt !== undefined && isMeant(nic, phase, record));
      if (!pauses && record.refusal === "") continue;
      if (pauses) record.releaseAt = Number.NEGATIVE_INFINITY;
      record.status = {
        ...record.status,
        nics: nics.map((nic) => (isMeant(nic, phase, record) ? withoutPause(nic) : nic)),
      };
      changed.push(record);
    }
    return changed;
  }

  #remember(record: ClaimRecord): ClaimRecord {
    this.#records.set(keyOf(record), record);
    for (const { createdByController, portID } of nicsOf(record)) {
      if (createdByController === false && portID !== undefined && !this.#holders.has(portID))
        this.hold(portID, record);
    }
    return record;
  }
}

/** Whether a NIC's pause is to end; `phase` is that of its claim. */
export type IsMeant = (nic: NicStatus, phase: NicClaimPhase | undefined, record: ClaimRecord) => boolean;

type ClaimKey = Pick<ClaimRecord, "uid" | "namespace">;

function podName(record: ClaimRecord | undefined): string | undefined {
  return record === undefined ? undefined : `${record.namespace}/${record.claim.spec.podName}`;
}

function keyOf({ namespace, uid }: ClaimKey): string {
  return `${namespace}/${uid}`;
}

/** A NIC that may be tried now; it keeps its count of failures. */
export function withoutPause({ nextRetryAt: _, ...nic }: NicStatus): NicStatus {
  return nic;
}
