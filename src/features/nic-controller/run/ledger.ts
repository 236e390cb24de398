import type { NicClaim, NicClaimPhase, NicStatus } from "#kube/nic";
import { type ClaimRecord, changedNics, keyOf, nicsOf, recordOf, withoutPause } from "../plan/record.ts";
import type { NicCluster } from "../world.ts";
import type { PhaseSample } from "./deps.ts";

/** Claims that are remembered after their end. */
const MAX_FORMER = 10_000;

/** The entry of one claim. It is the only writer of the claim's record: a record is replaced as a whole, and readers keep the one that they have. */
export class ClaimEntry {
  readonly key: string;
  #record: ClaimRecord;

  constructor(record: ClaimRecord) {
    this.key = keyOf(record);
    this.#record = record;
  }

  /** The record as it is now. */
  get record(): ClaimRecord {
    return this.#record;
  }

  /** Replaces the record by one with these fields; a function gets the record that is replaced. */
  update(change: Partial<ClaimRecord> | ((record: ClaimRecord) => Partial<ClaimRecord>)): void {
    this.#record = { ...this.#record, ...(typeof change === "function" ? change(this.#record) : change) };
  }
}

/** The claims that this process works on, and the holders of users' ports. It holds as many entries as there are claims. */
export class ClaimLedger {
  readonly #cluster: Pick<NicCluster, "claim">;
  readonly #entries = new Map<string, ClaimEntry>();
  /** The claim that has a user's port, by the port's id. */
  readonly #holders = new Map<string, ClaimKey>();
  /** Claims that it had and has no more, the latest ones: their ports may be deleted whatever state they are in. */
  readonly #former = new Set<string>();

  constructor(cluster: Pick<NicCluster, "claim">) {
    this.#cluster = cluster;
  }

  /** All entries; their records may be replaced meanwhile. */
  entries(): Iterable<ClaimEntry> {
    return this.#entries.values();
  }

  /** The records of all claims as they are now. */
  *records(): Generator<ClaimRecord> {
    for (const { record } of this.#entries.values()) yield record;
  }

  get(namespace: string, uid: string): ClaimEntry | undefined {
    return this.#entries.get(keyOf({ namespace, uid }));
  }

  /** Phases and times of all claims, for metrics. */
  *phases(): Generator<PhaseSample> {
    for (const { status, claim } of this.records()) {
      yield { phase: status.phase ?? "Pending", createdAt: Date.parse(claim.metadata.creationTimestamp ?? "") };
    }
  }

  /** The entry of a claim, made equal to the cache where that knows more; `undefined` if there is no claim. */
  current(namespace: string, uid: string): ClaimEntry | undefined {
    const cached = this.#cluster.claim(namespace, uid);
    const known = this.get(namespace, uid);
    if (known === undefined)
      return cached === undefined ? undefined : this.#remember(recordOf(cached, namespace, true));
    const { claim, isCached } = known.record;
    if (cached?.metadata.uid === claim.metadata.uid) {
      // Of our own changes the cache may not know yet; it would bring back NICs that the pod has given up.
      const isNewer = (cached.metadata.generation ?? 0) >= (claim.metadata.generation ?? 0);
      known.update({ isCached: true, ...(isNewer ? { claim: cached } : {}) });
      return known;
    }
    // Before the cache has had the claim, that is one which was made just now; what the cache has is a memory of the one before.
    if (!isCached) return known;
    this.forget(known.record);
    return cached === undefined ? undefined : this.#remember(recordOf(cached, namespace, true));
  }

  /** A claim that was made just now. */
  add(claim: NicClaim, namespace: string): ClaimEntry {
    return this.#remember(recordOf(claim, namespace, false));
  }

  forget(claim: ClaimKey): void {
    const key = keyOf(claim);
    this.#entries.delete(key);
    const [oldest] = this.#former;
    if (oldest !== undefined && this.#former.size >= MAX_FORMER) this.#former.delete(oldest);
    this.#former.add(key);
    for (const [portID, holder] of this.#holders) if (keyOf(holder) === key) this.#holders.delete(portID);
  }

  /** Returns true if it has a claim, or has had it lately. */
  hasHad(namespace: string, uid: string): boolean {
    const key = keyOf({ namespace, uid });
    return this.#entries.has(key) || this.#former.has(key);
  }

  /** The uid of another pod that has a user's port. */
  holderOf(portID: string, except: ClaimKey): string | undefined {
    const holder = this.#holders.get(portID);
    return holder === undefined || keyOf(holder) === keyOf(except) ? undefined : holder.uid;
  }

  /** The pod, as `namespace/name`, that has a user's port. */
  holderName(portID: string): string | undefined {
    const holder = this.#holders.get(portID);
    return holder === undefined ? undefined : podName(this.#entries.get(keyOf(holder))?.record);
  }

  /** The pod, as `namespace/name`, with a NIC of which this is true, beside those of one claim. It looks at all NICs: for what waits long anyhow. */
  podWith(isMeant: (nic: NicStatus) => boolean, except: ClaimKey): string | undefined {
    for (const record of this.records())
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

  /** Ends the pauses after failures of the meant NICs. Returns the keys of claims that have some, and of those whose pods were refused NICs. */
  tryAgain(isMeant: IsMeant): readonly string[] {
    const changed: string[] = [];
    for (const entry of this.#entries.values()) {
      const { record } = entry;
      const ends = (nic: NicStatus): boolean => isMeant(nic, record.status.phase, record);
      const hasPause = nicsOf(record).some((nic) => nic.nextRetryAt !== undefined && ends(nic));
      if (!hasPause && record.refusal === "") continue;
      entry.update({
        ...(hasPause ? { releaseAt: Number.NEGATIVE_INFINITY } : {}),
        ...changedNics(record, (nic) => (ends(nic) ? withoutPause(nic) : nic)),
      });
      changed.push(entry.key);
    }
    return changed;
  }

  #remember(record: ClaimRecord): ClaimEntry {
    const entry = new ClaimEntry(record);
    this.#entries.set(entry.key, entry);
    for (const { createdByController, portID } of nicsOf(record)) {
      if (createdByController === false && portID !== undefined && !this.#holders.has(portID))
        this.hold(portID, record);
    }
    return entry;
  }
}

/** Returns true if a NIC's pause is to end; `phase` is that of its claim. */
export type IsMeant = (nic: NicStatus, phase: NicClaimPhase | undefined, record: ClaimRecord) => boolean;

type ClaimKey = Pick<ClaimRecord, "uid" | "namespace">;

function podName(record: ClaimRecord | undefined): string | undefined {
  return record === undefined ? undefined : `${record.namespace}/${record.claim.spec.podName}`;
}
