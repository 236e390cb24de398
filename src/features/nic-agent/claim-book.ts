import { type AbortOptions, untilAborted } from "#base/async";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import type { NicClaim } from "#kube/nic";
import { ClaimFileError, type ClaimFiles } from "./claim-files.ts";

/**
 * The claims of this node's pods as they were last known: those on disk at the start, then what the API server tells. Names of claims are the
 * uids of pods.
 */
export class ClaimBook {
  readonly #files: ClaimFiles;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #claims = new Map<string, NicClaim>();
  /** Waits by uid: as many as there are calls. */
  readonly #waits = new Map<string, Set<() => void>>();

  /** Reads the claims on disk. Files that are no claims are logged and left alone. Throws {@link ClaimFileError} `unreadable`. */
  constructor({ files, log, clock }: { readonly files: ClaimFiles; readonly log: Logger; readonly clock: Clock }) {
    this.#files = files;
    this.#log = log;
    this.#clock = clock;
    const { claims, faults } = files.list();
    for (const fault of faults) log.warn("a file of claims is none", { error: fault.message });
    for (const claim of claims) this.#claims.set(claim.metadata.name, claim);
  }

  get(uid: string): NicClaim | undefined {
    return this.#claims.get(uid);
  }

  list(): readonly NicClaim[] {
    return [...this.#claims.values()];
  }

  /** The claim that has all these ports; `undefined` if there is none, or no port is given. */
  withPorts(portIds: readonly string[]): NicClaim | undefined {
    if (portIds.length === 0) return undefined;
    return this.list().find(({ status }) => portIds.every((id) => status?.nics?.some(({ portID }) => portID === id)));
  }

  /**
   * Takes a claim as the API server has it. Of claims of one pod in several namespaces the oldest is the pod's: others are copies, as a restore into a
   * renamed namespace makes them.
   */
  set(claim: NicClaim): void {
    const { name, resourceVersion } = claim.metadata;
    const known = this.#claims.get(name)?.metadata;
    if (known?.resourceVersion === resourceVersion) return;
    if (known !== undefined && known.namespace !== claim.metadata.namespace && !isOlder(claim.metadata, known)) {
      this.#log.warn("a claim is a copy of another namespace's and is left alone", {
        claim: name,
        namespace: claim.metadata.namespace,
        of: known.namespace,
      });
      return;
    }
    this.#claims.set(name, claim);
    this.#store(() => this.#files.write(claim));
    this.#wake(name);
  }

  /** Forgets a claim that the API server does not have any more; with a namespace only that of it. */
  remove(uid: string, namespace?: string): void {
    if (namespace !== undefined && this.#claims.get(uid)?.metadata.namespace !== namespace) return;
    this.#claims.delete(uid);
    this.#store(() => this.#files.remove(uid));
    this.#wake(uid);
  }

  /** Forgets claims that only the disk knows, once all claims of the API server are known. */
  keepOnly(uids: ReadonlySet<string>): void {
    for (const uid of [...this.#claims.keys()]) if (!uids.has(uid)) this.remove(uid);
  }

  /**
   * Looks at a claim now and after each change, until `look` returns a value or the time is over: then the last look was in vain, and
   * `undefined` is returned. Rejects with the signal's reason.
   */
  async wait<T>(
    uid: string,
    look: (claim: NicClaim | undefined) => T | undefined,
    { atMostMs, signal }: AbortOptions & { readonly atMostMs: number },
  ): Promise<T | undefined> {
    const waits = this.#waits.get(uid) ?? new Set();
    this.#waits.set(uid, waits);
    let isLate = false;
    let wake = (): void => undefined;
    const onChange = (): void => wake();
    waits.add(onChange);
    const cancel = this.#clock.after(atMostMs, () => {
      isLate = true;
      wake();
    });
    try {
      for (;;) {
        signal?.throwIfAborted();
        const changed = new Promise<void>((resolve) => {
          wake = resolve;
        });
        const found = look(this.#claims.get(uid));
        if (found !== undefined || isLate) return found;
        await (signal === undefined ? changed : Promise.race([changed, untilAborted(signal)]));
      }
    } finally {
      cancel();
      waits.delete(onChange);
      if (waits.size === 0) this.#waits.delete(uid);
    }
  }

  #wake(uid: string): void {
    for (const wake of this.#waits.get(uid) ?? []) wake();
  }

  /** A disk that fails costs only what an outage of the API server would need of it. */
  #store(work: () => void): void {
    try {
      work();
    } catch (error) {
      if (!(error instanceof ClaimFileError)) throw error;
      this.#log.warn("a claim cannot be stored on disk; while the API server is away its ports cannot be plugged", {
        error: error.message,
      });
    }
  }
}

type ClaimMeta = NicClaim["metadata"];

function isOlder({ creationTimestamp: one = "" }: ClaimMeta, { creationTimestamp: other = "" }: ClaimMeta): boolean {
  return one !== "" && other !== "" && Date.parse(one) < Date.parse(other);
}
