import type { Dirty } from "#base/async";
import { parseObjectKey } from "#kube/client";
import { Turns } from "#kube/reconciler";
import { planPass } from "../plan/plan-pass.ts";
import { inherited, podOf } from "../plan/record.ts";
import { ClaimMaker } from "./claim-maker.ts";
import type { NicControllerDeps, NicControllerOptions } from "./deps.ts";
import { PROVIDER_TURNS } from "./lanes.ts";
import { type ClaimEntry, ClaimLedger, type IsMeant } from "./ledger.ts";
import { PassSteps } from "./pass-steps.ts";
import { PassViews } from "./pass-views.ts";
import { PortRequests } from "./requests.ts";

/** Rounds of a pass; a claim comes to rest long before. */
const MAX_ROUNDS = 32;
/** The pause after a pass that has not come to rest, in milliseconds. */
const RESTLESS_MS = 1000;

type Options = { readonly signal: AbortSignal };
type PassResult = { readonly requeueAfterMs: number } | undefined;

/**
 * Gives each pod that asks for NICs its claim, and each claim its ports (docs/spec/vpc-nics.md#5). A pass views the claim (`PassViews`), plans steps
 * (`planPass`), applies them (`PassSteps`), and begins again until a step ends it. A pass may stop after any request, and a later process continues.
 */
export class ClaimReconciler {
  readonly ledger: ClaimLedger;
  readonly #deps: NicControllerDeps;
  readonly #enqueue: (key: string) => void;
  readonly #turns: Turns;
  readonly #maker: ClaimMaker;
  readonly #views: PassViews;
  readonly #steps: PassSteps;

  /** `polls` is marked when ports have to be polled earlier than before. */
  constructor(deps: NicControllerDeps, options: NicControllerOptions & { readonly polls: Dirty }) {
    const { enqueue, signal, gatherMs, maxBulk, clusterId, polls } = options;
    this.#deps = deps;
    this.#enqueue = (key) => enqueue(key);
    this.ledger = new ClaimLedger(deps.cluster);
    this.#turns = new Turns(this.#enqueue, PROVIDER_TURNS);
    const requests = new PortRequests(
      { clock: deps.clock, onCreate: deps.observer.created },
      { signal, gatherMs, maxBulk },
    );
    const known = { ...deps, ledger: this.ledger, clusterId };
    this.#maker = new ClaimMaker(known);
    this.#views = new PassViews(known);
    const tryAgain = (isMeant: IsMeant): void => this.tryAgain(isMeant);
    this.#steps = new PassSteps({ ...known, requests, turns: this.#turns, polls, tryAgain });
  }

  /** Something that decides about failures has changed: those of the meant NICs are tried again at once. */
  tryAgain(isMeant: IsMeant = () => true): void {
    for (const key of this.ledger.tryAgain(isMeant)) this.#enqueue(key);
  }

  /**
   * One pass of a claim, or of a pod without one; the key is `NAMESPACE/UID`. Rejects with `KubeError` and `NicControllerError`; failures
   * of the provider are in the claim's status, and the result has the time of the next attempt.
   */
  async reconcile(key: string, options: Options): Promise<PassResult> {
    return this.#turns.pass(key, async () => {
      const entry = await this.#entryOf(key, options);
      return entry === undefined ? undefined : this.#work(entry, options);
    });
  }

  async #entryOf(key: string, options: Options): Promise<ClaimEntry | undefined> {
    const { clock, cluster } = this.#deps;
    const { namespace = "", name: uid } = parseObjectKey(key);
    const entry = this.ledger.current(namespace, uid);
    if (entry === undefined) {
      const pod = podOf(cluster, { namespace, uid });
      if (pod !== undefined) return this.#maker.make(pod, options);
      this.#maker.forget(uid);
      return undefined;
    }
    const { touchedAt, doubtUntil } = entry.record;
    // A record that neither a request nor a doubt has touched is one of a leader before.
    if (touchedAt === Number.NEGATIVE_INFINITY && doubtUntil === Number.NEGATIVE_INFINITY)
      entry.update((record) => inherited(record, { now: clock.now(), monotonic: clock.monotonic() }));
    return entry;
  }

  async #work(entry: ClaimEntry, options: Options): Promise<PassResult> {
    const { cluster, provider: providerOf, log } = this.#deps;
    const provider = providerOf(entry.record.claim.spec.provider);
    for (let rounds = 0; rounds < MAX_ROUNDS; rounds += 1) {
      const pod = podOf(cluster, entry.record);
      const found = this.#views.of(entry.record, pod);
      const round = this.#steps.round({ entry, pod, provider, found, ...options });
      for (const step of planPass(found.view)) {
        const end = await round.apply(step);
        if (end !== undefined) return end.result;
      }
    }
    const { uid, status } = entry.record;
    log.warn("a claim has not come to rest", { claim: uid, phase: status.phase });
    return { requeueAfterMs: RESTLESS_MS };
  }
}
