import { nodeLabelValue } from "#kube/nic";
import { claimView } from "../plan/claim-view.ts";
import { type FollowPlan, mayFollow, planFollow } from "../plan/follow.ts";
import { type ClaimWorld, type Moment, observed } from "../plan/observe-claim.ts";
import type { PassView } from "../plan/plan-pass.ts";
import { type QuotaClaim, quotaClaim, quotaFault } from "../plan/quota.ts";
import { type ClaimRecord, hasBegun, keyOf, nicsOf } from "../plan/record.ts";
import type { PodView } from "../world.ts";
import type { NicControllerDeps } from "./deps.ts";
import type { ClaimLedger } from "./ledger.ts";

/** A claim as a pass finds it. */
export interface FoundClaim {
  readonly view: PassView;
  /** The record with what the last poll has found; `observe` puts it into the entry. */
  readonly observed: ClaimRecord;
}

/** Views of claims, from the caches, the records and the clock; it changes nothing, and asks nobody. */
export class PassViews {
  readonly #deps: Pick<NicControllerDeps, "cluster" | "rules" | "clock" | "random"> & { readonly ledger: ClaimLedger };

  constructor(
    deps: Pick<NicControllerDeps, "cluster" | "rules" | "clock" | "random"> & { readonly ledger: ClaimLedger },
  ) {
    this.#deps = deps;
  }

  /** The view of a claim whose pod is `pod`. */
  of(record: ClaimRecord, pod: PodView | undefined): FoundClaim {
    const { cluster, clock, random } = this.#deps;
    const moment: Moment = { now: clock.now(), monotonic: clock.monotonic(), random: random() };
    const nodeName = pod?.spec.nodeName;
    const world: ClaimWorld = { pod, node: nodeName === undefined ? undefined : cluster.node(nodeName) };
    const next = observed(record, world, moment);
    const quota = hasBegun(next.status) ? undefined : this.#quotaFault(next);
    const { next: follow, refusal } = this.#followOf(record, pod);
    const label = nodeName === undefined ? undefined : nodeLabelValue(nodeName);
    const recorded = nicsOf(record).map(({ portID }) => portID);
    const view: PassView = {
      surplus: record.surplus.filter((id) => !recorded.includes(id)),
      label: label === record.labelled ? undefined : label,
      refusal: refusal === record.refusal ? undefined : refusal,
      follow,
      claim: claimView(next, { ...world, quota, nodeOf: cluster.node }, moment),
      isAllowed: hasBegun(next.status),
      isGated: pod?.spec.isGated === true,
    };
    return { view, observed: next };
  }

  #followOf(record: ClaimRecord, pod: PodView | undefined): FollowPlan {
    if (!mayFollow(record, pod)) return { next: undefined, refusal: record.refusal };
    const { cluster, rules } = this.#deps;
    const { namespace } = record;
    const view = cluster.namespace(namespace);
    const policy = cluster.policy();
    return planFollow(record, {
      wish: rules.wishOf(pod, view),
      change: (before, after) => rules.change(policy, before, after),
      refused: (wish) => {
        const access = rules.allow(policy, wish, namespace, view);
        return "refused" in access ? access.refused : undefined;
      },
      quota: (ports) => this.#quotaFault(record, ports),
    });
  }

  /** The check that decides: of pods that the webhooks have admitted together all can be more than the quota. `growsTo`: the ports of the claim with its new NICs. */
  #quotaFault(record: ClaimRecord, growsTo?: number): string | undefined {
    const { cluster, rules, ledger } = this.#deps;
    const policy = cluster.policy();
    const tenantOf = (namespace: string) => rules.tenantOf(policy, namespace, cluster.namespace(namespace));
    const tenant = tenantOf(record.namespace);
    if (tenant?.maxPorts === undefined) return undefined;
    const others: QuotaClaim[] = [];
    for (const claim of cluster.claims()) {
      const { name: uid, namespace = "" } = claim.metadata;
      if (keyOf({ namespace, uid }) === keyOf(record) || tenantOf(namespace)?.name !== tenant.name) continue;
      const known = ledger.get(namespace, uid)?.record;
      const isAllowed = hasBegun(known === undefined ? claim.status : known.status);
      others.push(quotaClaim({ claim: known?.claim ?? claim, isAllowed, growsTo: known?.growsTo ?? 0 }));
    }
    const own = quotaClaim({ claim: record.claim, isAllowed: false, growsTo: 0 });
    return quotaFault({ ...own, ports: growsTo ?? own.ports }, others, tenant);
  }
}
