import type { VpcProvider } from "#cloud/vpc";
import { isKubeError } from "#kube/client";
import { type NicClaim, nicResources, tenantText } from "#kube/nic";
import { NicControllerError } from "../errors.ts";
import { inherited, isOver } from "../plan/record.ts";
import type { PodView, WantedNics } from "../world.ts";
import { claimDraft } from "./claim-draft.ts";
import type { NicControllerDeps } from "./deps.ts";
import type { ClaimEntry, ClaimLedger } from "./ledger.ts";
import { removeGate } from "./pod-writes.ts";

type Options = { readonly signal: AbortSignal };

/** Pods without a claim whose last event is remembered, so that it is written once. */
const MAX_REFUSED = 10_000;

/** The reason why a pod gets no NICs: `why` is for the operator's log, `note` for the pod's author. */
interface Refusal {
  readonly reason: string;
  readonly note: string;
  readonly why?: string | undefined;
}

/** Makes the claims of pods that have none, and remembers the pods that get none, so that their events are written once. */
export class ClaimMaker {
  readonly #deps: NicControllerDeps & { readonly ledger: ClaimLedger; readonly clusterId: () => string };
  readonly #refused = new Map<string, string>();

  constructor(deps: NicControllerDeps & { readonly ledger: ClaimLedger; readonly clusterId: () => string }) {
    this.#deps = deps;
  }

  /** Forgets a pod that does not exist any more. */
  forget(uid: string): void {
    this.#refused.delete(uid);
  }

  /** The claim of a pod; `undefined` if the pod gets none. Rejects with `KubeError`. */
  async make(pod: PodView, options: Options): Promise<ClaimEntry | undefined> {
    const { cluster, rules, api, log } = this.#deps;
    if (isOver(pod) || pod.metadata.deletionTimestamp !== undefined) return undefined;
    const wish = rules.wishOf(pod, cluster.namespace(pod.metadata.namespace ?? ""));
    // Nobody else would remove a gate that somebody has written into a pod that gets no ports.
    if (wish.kind === "none" || wish.kind === "host-network") await removeGate({ api, log }, pod, options);
    switch (wish.kind) {
      case "none":
        return undefined;
      case "host-network": {
        const note = "the pod has the network of its node, so it gets no ports";
        return this.#refuse(pod, { reason: "HostNetworkIgnored", note });
      }
      case "faulty": {
        const faults = wish.faults.map(({ field, message }) => `${field}: ${message}`);
        return this.#refuse(pod, { reason: "InvalidNics", note: faults.join("; ") });
      }
      case "wanted":
        return this.#makeFor(pod, wish, options);
    }
  }

  async #makeFor(pod: PodView, wish: WantedNics, options: Options): Promise<ClaimEntry | undefined> {
    const access = this.#accessOf(pod, wish);
    if ("reason" in access) return this.#refuse(pod, access);
    const stored = await this.#store(pod, wish, access, options);
    if ("reason" in stored) return this.#refuse(pod, stored);
    const { ledger, clock } = this.#deps;
    this.#refused.delete(pod.metadata.uid);
    const entry = ledger.add(stored.claim, pod.metadata.namespace ?? "");
    const times = { now: clock.now(), monotonic: clock.monotonic() };
    entry.update((record) => (stored.isInherited ? inherited(record, times) : { doubtUntil: 0 }));
    return entry;
  }

  /** The provider and the project of a pod's NICs, as the policy has them. */
  #accessOf(
    { metadata: { namespace = "" } }: PodView,
    wish: WantedNics,
  ): { readonly provider: VpcProvider; readonly projectID: string | undefined } | Refusal {
    const { cluster, rules, provider } = this.#deps;
    const verdict = rules.allow(cluster.policy(), wish, namespace, cluster.namespace(namespace));
    if ("refused" in verdict) return { reason: "NicsRefused", note: verdict.refused, why: verdict.why };
    try {
      return { provider: provider(verdict.provider), projectID: verdict.projectID };
    } catch (error) {
      if (!(error instanceof NicControllerError) || error.code !== "unknown-provider") throw error;
      return { reason: "ProviderUnknown", note: tenantText({ reason: "ProviderUnknown" }), why: error.message };
    }
  }

  /** Stores the claim; one that another leader has made is `isInherited`. */
  async #store(
    pod: PodView,
    wish: WantedNics,
    { provider, projectID }: { readonly provider: VpcProvider; readonly projectID: string | undefined },
    options: Options,
  ): Promise<{ readonly claim: NicClaim; readonly isInherited: boolean } | Refusal> {
    const { api, log, clusterId } = this.#deps;
    const { name, namespace = "", uid } = pod.metadata;
    const draft = claimDraft(pod, wish, { clusterId: clusterId(), provider: provider.name, projectID });
    try {
      const claim = await api.create(nicResources.nicClaims, draft, options);
      log.info("claim made", { pod: name, namespace, claim: uid });
      return { claim, isInherited: false };
    } catch (error) {
      // Another attempt with the same pod ends the same.
      if (isKubeError(error, "invalid")) return { reason: "InvalidNics", note: error.message };
      if (!isKubeError(error, "already-exists")) throw error;
      const claim = await api.get(nicResources.nicClaims, { namespace, name: uid }, options);
      return { claim, isInherited: true };
    }
  }

  #refuse(pod: PodView, { reason, note, why = note }: Refusal): undefined {
    const { uid, name, namespace } = pod.metadata;
    const text = `${reason} ${why}`;
    if (this.#refused.get(uid) === text) return undefined;
    const [oldest] = this.#refused.keys();
    if (oldest !== undefined && this.#refused.size >= MAX_REFUSED) this.#refused.delete(oldest);
    this.#refused.set(uid, text);
    this.#deps.observer.event(pod, { type: "Warning", reason, note });
    this.#deps.log.warn("pod gets no NICs", { pod: name, namespace, reason, why });
    return undefined;
  }
}
