import type { Dirty } from "#base/async";
import { ProviderError, type VpcProvider } from "#cloud/vpc";
import type { NamedNic, NicStatus } from "#kube/nic";
import type { Turns } from "#kube/reconciler";
import { followed } from "../plan/follow.ts";
import { wished } from "../plan/nic.ts";
import { newsOf } from "../plan/observe-claim.ts";
import { planPolls } from "../plan/pace.ts";
import { phaseOf } from "../plan/plan-claim.ts";
import { added } from "../plan/plan-nics.ts";
import type { PassStep, PortStep } from "../plan/plan-pass.ts";
import { portsOf } from "../plan/quota.ts";
import { type ClaimRecord, nextStatus, nicsOf } from "../plan/record.ts";
import { wakesBy } from "../plan/wake.ts";
import type { PodView } from "../world.ts";
import { deleteClaim, finishClaim, storeLabel, storeNics, storeStatus } from "./claim-writes.ts";
import type { NicControllerDeps } from "./deps.ts";
import { reportHost, reportNews, reportRefusal } from "./events.ts";
import { laneOf } from "./lanes.ts";
import type { ClaimEntry, ClaimLedger, IsMeant } from "./ledger.ts";
import type { FoundClaim } from "./pass-views.ts";
import { isCurrent, isPodGone, publishNics, removeGate } from "./pod-writes.ts";
import { type ReleaseEnd, release } from "./ports/release.ts";
import { askProvider } from "./ports/steps.ts";
import { PortWork } from "./ports/work.ts";
import type { PortRequests } from "./requests.ts";

/** The pause between reads of a pod that the cache does not have, in milliseconds; the cache tells when it has it. */
const POD_CHECK_MS = 10_000;

export interface PassStepsDeps extends NicControllerDeps {
  readonly ledger: ClaimLedger;
  readonly requests: PortRequests;
  readonly turns: Turns;
  readonly clusterId: () => string;
  /** Marked when ports have to be polled earlier than before. */
  readonly polls: Dirty;
  /** Ends the pauses of the meant NICs. */
  readonly tryAgain: (isMeant: IsMeant) => void;
}

/** A claim between two views of it. */
export interface RoundInit {
  readonly entry: ClaimEntry;
  readonly pod: PodView | undefined;
  readonly provider: VpcProvider;
  readonly found: FoundClaim;
  readonly signal: AbortSignal;
}

/** The end of a pass: the time of the next one, if it is known. */
export interface PassEnd {
  readonly result: { readonly requeueAfterMs: number } | undefined;
}

/** Applies the steps of passes. */
export class PassSteps {
  readonly #deps: PassStepsDeps;

  constructor(deps: PassStepsDeps) {
    this.#deps = deps;
  }

  /** The steps that one view has planned are applied by one round, in their order. */
  round(init: RoundInit): Round {
    return new Round(this.#deps, init);
  }
}

/** Applies the steps of one plan. Each step may be the last one that this process does. */
class Round {
  readonly #deps: PassStepsDeps;
  readonly #entry: ClaimEntry;
  readonly #init: RoundInit;
  readonly #options: { readonly signal: AbortSignal };
  /** The NICs before the provider was asked. */
  #before: readonly NicStatus[] = [];
  /** The claim waits for a turn, which enqueues it. */
  #isWaiting = false;

  constructor(deps: PassStepsDeps, init: RoundInit) {
    this.#deps = deps;
    this.#init = init;
    this.#entry = init.entry;
    this.#options = { signal: init.signal };
  }

  get #record(): ClaimRecord {
    return this.#entry.record;
  }

  /** Applies one step. Resolves to the end of the pass if it ends with this step. Rejects with `KubeError` and `NicControllerError`. */
  async apply(step: PassStep): Promise<PassEnd | undefined> {
    const { found, pod } = this.#init;
    switch (step.do) {
      case "delete-surplus":
        return this.#deleteSurplus(step.ids);
      case "label":
        return proceed(storeLabel(this.#deps.api, this.#entry, step.label, this.#options));
      case "refuse-change":
        this.#entry.update({ refusal: step.why });
        if (pod !== undefined) reportRefusal(this.#deps, pod, step.why);
        return undefined;
      case "follow":
        return this.#follow(step.nics);
      case "observe":
        return this.#observe(found.observed);
      case "reserve":
        this.#entry.update(({ status }) => ({ status: { ...status, phase: "Creating" } }));
        return undefined;
      case "ask":
        return this.#ask(step.step);
      case "store":
        return this.#store(step.mayHavePorts);
      case "wake-waiting":
        this.#wakeByGivenUp();
        return undefined;
      case "release":
        return this.#release();
      case "look-for-pod":
        return this.#lookForPod();
      default:
        return this.#rest(step);
    }
  }

  /** The last steps of a claim that has nothing to do now. */
  async #rest(
    step: Extract<PassStep, { do: "publish" | "remove-gate" | "schedule-polls" | "wait" }>,
  ): Promise<PassEnd | undefined> {
    const { pod } = this.#init;
    const { clock } = this.#deps;
    switch (step.do) {
      case "publish":
        return pod === undefined ? undefined : proceed(publishNics(this.#deps, this.#entry, pod, this.#options));
      case "remove-gate":
        return pod === undefined ? undefined : proceed(removeGate(this.#deps, pod, this.#options));
      case "schedule-polls": {
        const { pollAt } = this.#record;
        this.#entry.update((record) => planPolls(record, clock.monotonic()));
        if (this.#record.pollAt !== undefined && this.#record.pollAt !== pollAt) this.#deps.polls.mark("poll time");
        return undefined;
      }
      case "wait": {
        const { untilMs } = step;
        if (untilMs === undefined) return { result: undefined };
        return { result: { requeueAfterMs: Math.max(0, untilMs - clock.now()) } };
      }
    }
  }

  /**
   * Ports of the same identity as a recorded one: two requests were under way, of which one seemed lost. One that cannot be deleted does not hold up the
   * claim; the next poll finds it again.
   */
  async #deleteSurplus(ids: readonly string[]): Promise<undefined> {
    const { observer, log } = this.#deps;
    const { uid: claim } = this.#record;
    for (const id of ids) {
      try {
        await this.#init.provider.deletePort(id, this.#options);
      } catch (error) {
        if (!(error instanceof ProviderError)) throw error;
        log.warn("duplicate port cannot be deleted", { claim, port: id, error: error.message });
        continue;
      }
      observer.duplicates(1);
      log.warn("duplicate port deleted", { claim, port: id });
    }
    this.#entry.update({ surplus: [] });
  }

  /**
   * Gives a claim the NICs that its pod asks for by now (docs/spec/vpc-nics.md#10). The claim is stored before a port is made for a new NIC; what
   * its status has of a NIC that is wanted no more stays until the port is released.
   */
  async #follow(next: readonly NamedNic[]): Promise<undefined> {
    const { api, log } = this.#deps;
    const { pod } = this.#init;
    if (pod === undefined) return;
    const before = this.#record;
    const { nics } = before.claim.spec;
    const news = added(nics, next);
    // Before anything is awaited, so that no other claim of the tenant is judged without these.
    if (news.length > 0) this.#entry.update({ growsTo: portsOf({ nics: next, shown: nicsOf(before) }) });
    try {
      // A cache that is behind has a wish of before; it wakes the claim when it has the last one.
      const isStored =
        (await isCurrent(api, pod, this.#options)) && (await storeNics(api, this.#entry, next, this.#options));
      if (!isStored) {
        this.#entry.update({ staleAs: pod.metadata.resourceVersion });
        return;
      }
    } finally {
      this.#entry.update({ growsTo: 0 });
    }
    const { name, namespace } = pod.metadata;
    log.info("claim follows its pod", {
      claim: before.uid,
      pod: name,
      namespace,
      added: news,
      removed: added(next, nics),
    });
    this.#entry.update((record) => followed(record, before, next));
  }

  #observe(observed: ClaimRecord): undefined {
    const before = this.#record;
    this.#entry.update(observed);
    reportHost(this.#deps, this.#init.pod, before, observed);
    this.#report(nicsOf(before));
  }

  async #ask(step: PortStep): Promise<undefined> {
    const { turns } = this.#deps;
    const { entry, provider, found, signal } = this.#init;
    this.#before = nicsOf(this.#record);
    const work = new PortWork(this.#deps, { entry, provider, host: found.view.claim.host, signal });
    const lane = laneOf(step, this.#record.claim);
    if (lane === undefined) await askProvider(step, work);
    else this.#isWaiting = !(await turns.within(lane, entry.key, () => askProvider(step, work)));
    this.#report(this.#before);
  }

  async #store(mayHavePorts: boolean): Promise<PassEnd | undefined> {
    const { found, pod } = this.#init;
    const { quota, host } = found.view.claim;
    this.#entry.update((record) => {
      const nics = nicsOf(record);
      const phase = phaseOf({ nics: wished(record.claim.spec.nics, nics), quota, host }, mayHavePorts);
      return { status: nextStatus(record, { nics, phase, nodeName: pod?.spec.nodeName }) };
    });
    await storeStatus(this.#deps.api, this.#entry, this.#options);
    return this.#isWaiting ? { result: undefined } : undefined;
  }

  async #release(): Promise<PassEnd> {
    const { api, clock, log, ledger, turns } = this.#deps;
    const { entry, provider, signal } = this.#init;
    // The write of a failure wakes the claim.
    const leftMs = this.#record.releaseAt - clock.monotonic();
    if (leftMs > 0) return { result: { requeueAfterMs: leftMs } };
    entry.update(({ status }) => ({ status: { ...status, phase: "Releasing" }, pollAt: undefined }));
    await deleteClaim(api, this.#record, this.#options);
    const before = nicsOf(this.#record);
    const work = new PortWork(this.#deps, { entry, provider, host: undefined, signal });
    let end: ReleaseEnd | undefined;
    await turns.within(laneOf({ do: "release" }, this.#record.claim) ?? "", entry.key, async () => {
      end = await release(work);
    });
    if (end === undefined) return { result: undefined };
    const { againAfterMs: requeueAfterMs, hasFreed } = end as ReleaseEnd;
    if (requeueAfterMs === undefined) {
      await finishClaim(api, this.#record, this.#options);
      ledger.forget(this.#record);
      const { uid, namespace, claim } = this.#record;
      log.info("claim released", { claim: uid, pod: claim.spec.podName, namespace });
      this.#wakeWaiting(before);
      return { result: undefined };
    }
    // An address, a place in a subnet or in a quota may be what others wait for.
    if (hasFreed) this.#wakeWaiting(before);
    await storeStatus(api, entry, this.#options);
    entry.update({ releaseAt: clock.monotonic() + requeueAfterMs });
    return { result: { requeueAfterMs } };
  }

  async #lookForPod(): Promise<PassEnd | undefined> {
    const podIsGone = await isPodGone(this.#deps, this.#record, this.#options);
    this.#entry.update({ podIsGone });
    return podIsGone ? undefined : { result: { requeueAfterMs: POD_CHECK_MS } };
  }

  #wakeByGivenUp(): void {
    const left = new Set(nicsOf(this.#record).map(({ name }) => name));
    const gone = this.#before.filter(({ name }) => !left.has(name));
    // An address, a place in a subnet or in a quota may be what others wait for.
    if (gone.length > 0) this.#wakeWaiting(gone);
  }

  /** NICs have given back their ports: claims that may wait for them are tried again. */
  #wakeWaiting(nics: readonly NicStatus[]): void {
    const isWoken = wakesBy(this.#record, nics, this.#deps.ledger.records());
    this.#deps.tryAgain((nic, _phase, record) => isWoken(nic, record));
  }

  /** Events for what has become of NICs since `before`. */
  #report(before: readonly NicStatus[]): void {
    reportNews(this.#deps, { record: this.#record, pod: this.#init.pod }, newsOf(before, nicsOf(this.#record)));
  }
}

async function proceed(work: Promise<void>): Promise<undefined> {
  await work;
}
