import type { KeyedMutex } from "#base/async";
import { describeError, ExpectedError } from "#base/errors";
import type { NicClaim, NicStatus } from "#kube/nic";
import { announce } from "./announce.ts";
import { callFailure, NicCallError } from "./failure.ts";
import { type PluggedNic, planChanges } from "./plan-changes.ts";
import type { NicServiceDeps, SandboxPlanLike } from "./service-deps.ts";

/** The state that calls and changes of sandboxes share. */
export interface SandboxLocks {
  /** Calls and changes of one container run one after the other. */
  readonly containers: KeyedMutex;
  /** Containers whose ADD is not done, with their pods. */
  readonly making: ReadonlyMap<string, string>;
}

/** The result of one round of changes of a sandbox. */
interface Followed {
  readonly changes: number;
  /** The first failure, if there is one. */
  readonly failure: unknown;
}

/** Adds NICs to sandboxes that run, and removes some, as their claims say. */
export class SandboxFollower<Plan extends SandboxPlanLike> {
  readonly #deps: NicServiceDeps<Plan>;
  readonly #locks: SandboxLocks;
  /** Failures of NICs that were to be added or removed, by container and NIC, so that each is told once; as many as such NICs. */
  readonly #told = new Map<string, string>();

  constructor(deps: NicServiceDeps<Plan>, locks: SandboxLocks) {
    this.#deps = deps;
    this.#locks = locks;
  }

  /**
   * Adds NICs to sandboxes that run, and removes some, as their claims say (docs/spec/vpc-nics.md#10). Returns the number of changes. Those that fail do
   * not hold up others; rejects with {@link NicCallError} for the first one afterwards.
   */
  async follow({ signal }: { readonly signal: AbortSignal }): Promise<number> {
    const { network } = this.#deps;
    const { passOf = (_claim, work) => work() } = this.#deps;
    const follow = (id: string, claim: NicClaim) =>
      passOf(claim, () => this.#locks.containers.run(id, () => this.#followIn(id, signal), { signal }), signal);
    const ends = await Promise.allSettled(
      network.plans().flatMap(({ containerId }) => {
        const changed = this.#changesOf(containerId);
        return changed === undefined ? [] : [follow(containerId, changed.claim)];
      }),
    );
    const known = new Set(network.plans().map(({ containerId }) => containerId));
    for (const key of this.#told.keys()) if (!known.has(key.split("/")[0] ?? "")) this.#told.delete(key);
    let changes = 0;
    let first: unknown;
    for (const end of ends) {
      if (end.status === "fulfilled") {
        changes += end.value?.changes ?? 0;
        first ??= end.value?.failure;
      } else if (!signal.aborted) throw end.reason;
    }
    if (first !== undefined) throw callFailure(first, { signal, kindOf: this.#deps.kindOf });
    return changes;
  }

  #changesOf(containerId: string) {
    const { network, claims, place } = this.#deps;
    const plan = network.plans().find((one) => one.containerId === containerId);
    const claim = plan === undefined ? undefined : claims.get(plan.podUid);
    if (plan === undefined || claim === undefined || this.#locks.making.has(containerId)) return undefined;
    const changes = planChanges(claim, plan, place);
    return changes.plug.length + changes.unplug.length === 0 ? undefined : { plan, claim, ...changes };
  }

  /** The changes of one sandbox; calls for it wait meanwhile. */
  async #followIn(containerId: string, signal: AbortSignal): Promise<Followed> {
    const removing = this.#changesOf(containerId);
    if (removing === undefined) return { changes: 0, failure: undefined };
    const { claim } = removing;
    const ends: Followed[] = [];
    for (const nic of removing.unplug) {
      const work = () => this.#unplug(containerId, claim, nic, signal);
      ends.push(await this.#attempt({ containerId, claim, name: nic.name, work, signal }));
    }
    // A NIC that could not be removed may have the name of one that is to be added.
    for (const nic of this.#changesOf(containerId)?.plug ?? []) {
      const work = () => this.#plug(containerId, claim, nic, signal);
      ends.push(await this.#attempt({ containerId, claim, name: nic.name, work, signal }));
    }
    return {
      changes: ends.reduce((sum, { changes }) => sum + changes, 0),
      failure: ends.find(({ failure }) => failure !== undefined)?.failure,
    };
  }

  /** One change, which resolves to a line of the log if there was something to do. A failure does not hold up others; it is told once. */
  async #attempt({
    containerId,
    claim,
    name,
    work,
    signal,
  }: {
    readonly containerId: string;
    readonly claim: NicClaim;
    readonly name: string;
    readonly work: () => Promise<string | undefined>;
    readonly signal: AbortSignal;
  }): Promise<Followed> {
    const { onPlugged, onNews, log } = this.#deps;
    const key = `${containerId}/${name}`;
    try {
      const done = await work();
      this.#told.delete(key);
      if (done === undefined) return { changes: 0, failure: undefined };
      log.info(done, { containerID: containerId, pod: claim.metadata.name, nic: name });
      onPlugged(claim.metadata.name, []);
      return { changes: 1, failure: undefined };
    } catch (error) {
      if (signal.aborted || !(error instanceof ExpectedError || error instanceof AggregateError)) throw error;
      const note = `${name}: ${describeError(error)}`;
      if (this.#told.get(key) !== note) {
        this.#told.set(key, note);
        onNews(claim, { type: "Warning", reason: "NicFailed", note });
        log.warn("a NIC of a running pod could not be changed", { containerID: containerId, nic: name, error: note });
      }
      return { changes: 0, failure: error };
    }
  }

  async #unplug(
    containerId: string,
    claim: NicClaim,
    { name, portId }: PluggedNic,
    signal: AbortSignal,
  ): Promise<string> {
    const isLost = await this.#deps.network.unplug(containerId, portId, { signal });
    const note = `${name}: port ${portId}${isLost ? ", whose device was lost" : ""}`;
    this.#deps.onNews(claim, { type: "Normal", reason: "NicUnplugged", note });
    return "NIC removed from a sandbox that runs";
  }

  async #plug(containerId: string, claim: NicClaim, nic: NicStatus, signal: AbortSignal): Promise<string | undefined> {
    const { network, planAdded, onPlugged, onNews } = this.#deps;
    const plan = network.plans().find((one) => one.containerId === containerId);
    if (plan === undefined) return undefined;
    const wanted = planAdded(plan, claim, nic);
    if (typeof wanted === "string") throw new NicCallError("nic-failed", wanted);
    let made: Plan["nics"][number] | undefined;
    try {
      made = await network.plug(containerId, wanted, { signal });
    } catch (error) {
      // What the node has was not known meanwhile.
      onPlugged(claim.metadata.name, []);
      throw error;
    }
    if (made === undefined) return undefined;
    announce(this.#deps, { ...plan, nics: [made] });
    onNews(claim, { type: "Normal", reason: "NicPlugged", note: `${nic.name}: port ${nic.portID}` });
    return "NIC added to a sandbox that runs";
  }
}
