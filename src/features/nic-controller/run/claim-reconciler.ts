import { isDeepStrictEqual } from "node:util";
import type { Dirty } from "#base/async";
import { ProviderError, type VpcProvider } from "#cloud/vpc";
import { findObject, isKubeError, parseObjectKey, resources } from "#kube/client";
import {
  CLAIM_NODE_LABEL,
  NICS_GATE,
  type NicClaim,
  type NicClaimPhase,
  type NicStatus,
  nicResources,
  nodeLabelValue,
  PROVIDER_HOST_ANNOTATION,
  tenantText,
} from "#kube/nic";
import { Turns } from "#kube/reconciler";
import { NicControllerError } from "../errors.ts";
import { providerHost } from "../plan/host.ts";
import { completed, groupsOf, hasPort, isDue, isPlumbed, leaving, settled, wished } from "../plan/nic.ts";
import { type ObservedPod, observeNic } from "../plan/observe.ts";
import { type ClaimView, phaseOf, planClaim } from "../plan/plan-claim.ts";
import { added, planNics } from "../plan/plan-nics.ts";
import { type QuotaClaim, quotaFault } from "../plan/quota.ts";
import { endsByRelease, waitsForOne } from "../plan/retry.ts";
import type { PodView, PodWish } from "../world.ts";
import { claimDraft } from "./claim-draft.ts";
import type { NicControllerDeps, NicControllerOptions } from "./deps.ts";
import { laneOf, PROVIDER_TURNS } from "./lanes.ts";
import { ClaimLedger, type IsMeant, withoutPause } from "./ledger.ts";
import { DOUBT_MS, PortActions, type ReleaseEnd } from "./port-actions.ts";
import {
  type ClaimRecord,
  deleteClaim,
  deviceLostAt,
  finishClaim,
  hasCondition,
  isLetGo,
  isPlugged,
  MANAGER,
  NOTHING,
  nicsOf,
  podOf,
  storeStatus,
} from "./record.ts";
import { PortRequests } from "./requests.ts";

/** A node that is not ready for this time is lost, in milliseconds (docs/spec/vpc-nics.md#5.7). */
const NODE_LOST_MS = 300_000;
/** Steps of a claim in one pass; it comes to rest long before. */
const MAX_STEPS = 32;
/** How often ports are polled, in milliseconds (docs/spec/vpc-nics.md#5.6): those that are plugged and not active, at first; those of claims for which a
 * request whose end is not known may still make one; those that wait for the node; all others. */
const POLL_PLUGGED_MS = 250;
/** For how long it stays so after a plug; most ports are active by then. Later looks are rarer and rarer. */
const POLL_QUICK_MS = 2000;
const POLL_DOUBT_MS = 3000;
const POLL_WAITING_MS = 5000;
const POLL_SETTLED_MS = 60_000;
/** A port that is down is looked at again when that has lasted long enough to matter, in milliseconds. */
const POLL_DOWN_MS = 31_000;
/** How often the API server is asked for a pod that the cache does not have, in milliseconds; the cache tells when it has it. */
const POD_CHECK_MS = 10_000;
/** Pods without a claim whose last event is remembered, so that it is written once. */
const MAX_REFUSED = 10_000;

/** Claims that wait for any port and are woken when ports are given back; one claim has given them back. */
const MAX_WOKEN = 16;

type Options = { readonly signal: AbortSignal };

/**
 * Gives each pod that asks for NICs its claim, and each claim its ports (docs/spec/vpc-nics.md#5). What it does next follows from data alone
 * (`planClaim`); it may stop after any request, and a later process continues.
 */
export class ClaimReconciler {
  readonly ledger: ClaimLedger;
  readonly #deps: NicControllerDeps;
  readonly #options: NicControllerOptions & { readonly polls: Dirty };
  readonly #actions: PortActions;
  readonly #refused = new Map<string, string>();
  readonly #turns: Turns;

  /** `polls` is marked when ports have to be looked at earlier than before. */
  constructor(deps: NicControllerDeps, options: NicControllerOptions & { readonly polls: Dirty }) {
    this.#deps = deps;
    this.#options = options;
    this.ledger = new ClaimLedger(deps.cluster);
    this.#turns = new Turns((key) => options.enqueue(key), PROVIDER_TURNS);
    const { signal, gatherMs, maxBulk, clusterId } = options;
    const requests = new PortRequests(
      { clock: deps.clock, onCreate: deps.observer.created },
      { signal, gatherMs, maxBulk },
    );
    this.#actions = new PortActions({ ...deps, ledger: this.ledger, requests, clusterId });
  }

  /** Something that decides about failures has changed: those of the meant NICs are tried again at once. */
  tryAgain(isMeant: IsMeant = () => true): void {
    for (const { namespace, uid } of this.ledger.tryAgain(isMeant)) this.#options.enqueue(`${namespace}/${uid}`);
  }

  /**
   * One pass of a claim, or of a pod without one; the key is `NAMESPACE/UID`. Rejects with `KubeError` and {@link NicControllerError}; failures
   * of the provider are in the claim's status, and the result has the time of the next attempt.
   */
  async reconcile(key: string, options: Options): Promise<{ readonly requeueAfterMs: number } | undefined> {
    return this.#turns.pass(key, () => this.#pass(key, options));
  }

  async #pass(key: string, options: Options): Promise<{ readonly requeueAfterMs: number } | undefined> {
    const { namespace = "", name: uid } = parseObjectKey(key);
    let record = this.ledger.current(namespace, uid);
    if (record?.touchedAt === Number.NEGATIVE_INFINITY && record.doubtUntil === Number.NEGATIVE_INFINITY)
      this.#doubtInherited(record);
    if (record === undefined) {
      const pod = podOf(this.#deps.cluster, { namespace, uid });
      if (pod === undefined) this.#refused.delete(uid);
      else record = await this.#claim(pod, options);
    }
    return record === undefined ? undefined : this.#work(record, options);
  }

  /**
   * The leader before may have asked for ports that are not recorded, also for a second one of a NIC that has a young one; and it may have given back what a
   * NIC waits for, and ended before it tried that again.
   */
  #doubtInherited(record: ClaimRecord): void {
    const { clock } = this.#deps;
    const all = completed(record.claim.spec.nics, nicsOf(record));
    record.doubtful = new Set(all.flatMap((nic) => (hasPort(nic) ? [] : [nic.name])));
    record.mayHaveSeconds = all.some((nic) => hasPort(nic) && isYoung(nic, clock.now()));
    const isInDoubt = record.doubtful.size > 0 || record.mayHaveSeconds;
    record.doubtUntil = isInDoubt ? clock.monotonic() + DOUBT_MS : 0;
    const nics = nicsOf(record).map((nic) => (waitsForOne(nic.reason) ? withoutPause(nic) : nic));
    record.status = { ...record.status, nics };
  }

  /** Makes the claim of a pod; `undefined` if the pod gets none. */
  async #claim(pod: PodView, options: Options): Promise<ClaimRecord | undefined> {
    const { api, cluster, rules, log } = this.#deps;
    const { name, namespace = "", uid, deletionTimestamp } = pod.metadata;
    if (isOver(pod) || deletionTimestamp !== undefined) return undefined;
    const view = cluster.namespace(namespace);
    const wish = rules.wishOf(pod, view);
    // Nobody else would remove a gate that somebody has written into a pod that gets no ports.
    if (wish.kind === "none" || wish.kind === "host-network") await this.#removeGate(pod, options);
    if (wish.kind === "none") return undefined;
    if (wish.kind === "host-network") {
      return this.#refuse(pod, "HostNetworkIgnored", "the pod has the network of its node, so it gets no ports");
    }
    if (wish.kind === "faulty") {
      const faults = wish.faults.map(({ field, message }) => `${field}: ${message}`);
      return this.#refuse(pod, "InvalidNics", faults.join("; "));
    }
    const verdict = rules.allow(cluster.policy(), wish, namespace, view);
    if ("refused" in verdict) return this.#refuse(pod, "NicsRefused", verdict.refused, verdict.why);
    let provider: VpcProvider;
    try {
      provider = this.#deps.provider(verdict.provider);
    } catch (error) {
      if (!(error instanceof NicControllerError) || error.code !== "unknown-provider") throw error;
      return this.#refuse(pod, "ProviderUnknown", tenantText({ reason: "ProviderUnknown" }), error.message);
    }
    const clusterId = this.#options.clusterId();
    const draft = claimDraft(pod, wish, { clusterId, provider: provider.name, projectID: verdict.projectID });
    let claim: NicClaim;
    let isInherited = false;
    try {
      claim = await api.create(nicResources.nicClaims, draft, options);
      log.info("claim made", { pod: name, namespace, claim: uid });
    } catch (error) {
      // Another attempt with the same pod ends the same.
      if (isKubeError(error, "invalid")) return this.#refuse(pod, "InvalidNics", error.message);
      if (!isKubeError(error, "already-exists")) throw error;
      claim = await api.get(nicResources.nicClaims, { namespace, name: uid }, options);
      isInherited = true;
    }
    this.#refused.delete(uid);
    const record = this.ledger.add(claim, namespace);
    if (isInherited) this.#doubtInherited(record);
    else record.doubtUntil = 0;
    return record;
  }

  /** `why` is for the operator's log; `note` for the pod's author. */
  #refuse(pod: PodView, reason: string, note: string, why = note): undefined {
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

  async #work(record: ClaimRecord, options: Options): Promise<{ readonly requeueAfterMs: number } | undefined> {
    const { api, cluster, clock, log } = this.#deps;
    const provider = this.#deps.provider(record.claim.spec.provider);
    for (let steps = 0; steps < MAX_STEPS; steps += 1) {
      await this.#deleteSurplus(record, provider, options);
      const pod = podOf(cluster, record);
      await this.#label(record, pod, options);
      await this.#follow(record, pod, options);
      this.#see(record, pod);
      const view = this.#view(record, pod);
      const step = planClaim(view);
      if (step.do === "release") return this.#release(record, provider, options);
      if (step.do === "look-for-pod") {
        record.podIsGone = await this.#isPodGone(record, options);
        if (record.podIsGone) continue;
        return { requeueAfterMs: POD_CHECK_MS };
      }
      const before = nicsOf(record);
      const asksForPorts = step.do === "look-up" || step.do === "make";
      const mayHavePorts = isAllowed(record) || (view.quota === undefined && asksForPorts);
      // Before anything is awaited, so that no other claim of the tenant is judged without this one.
      if (mayHavePorts && !isAllowed(record)) record.status = { ...record.status, phase: "Creating" };
      const lane = laneOf(step, record.claim);
      const hasTurn = lane === undefined || this.#turns.begin(lane, keyOf(record));
      if (step.do !== "wait" && hasTurn) {
        try {
          await this.#actions.perform(step, { record, provider, host: view.host }, options);
        } finally {
          if (lane !== undefined) this.#turns.end(lane);
        }
      }
      this.#tell(record, pod, before);
      const nics = nicsOf(record);
      const wanted = wished(record.claim.spec.nics, nics);
      const phase = phaseOf({ nics: wanted, quota: view.quota, host: view.host }, mayHavePorts);
      this.#setStatus(record, { nics, phase, nodeName: pod?.spec.nodeName });
      await storeStatus(api, record, options);
      // Its turn wakes it.
      if (!hasTurn) return undefined;
      // An address, a place in a subnet or in a quota may be what others wait for.
      if (step.do === "give-up" && nics.length < before.length)
        this.#wakeWaiting(
          record,
          before.filter(({ name }) => !nics.some((nic) => nic.name === name)),
        );
      if (step.do !== "wait") continue;
      if (pod !== undefined) await this.#show(record, pod, options);
      // Not when they are bound: that needs the node.
      if (pod !== undefined && wanted.every(hasPort)) await this.#removeGate(pod, options);
      this.#schedulePolls(record);
      return step.untilMs === undefined ? undefined : { requeueAfterMs: Math.max(0, step.untilMs - clock.now()) };
    }
    log.warn("a claim has not come to rest", { claim: record.uid, phase: record.status.phase });
    return { requeueAfterMs: 1000 };
  }

  /** Asks the API server, since the watch of pods may be behind that of claims. */
  async #isPodGone({ claim, uid, namespace }: ClaimRecord, options: Options): Promise<boolean> {
    const { api, log } = this.#deps;
    const { podName: name } = claim.spec;
    const pod = await findObject(api, resources.pods, { name, namespace }, options);
    if (pod?.metadata.uid !== uid) return true;
    log.warn("the cache does not have a pod that is there, so its ports are kept", {
      claim: uid,
      pod: name,
      namespace,
    });
    return false;
  }

  /** Whether the cache has a pod as the API server has it. */
  async #isCurrent(
    { metadata: { name, namespace = "", uid, resourceVersion } }: PodView,
    options: Options,
  ): Promise<boolean> {
    const live = await findObject(this.#deps.api, resources.pods, { name, namespace }, options);
    return live?.metadata.uid === uid && live.metadata.resourceVersion === resourceVersion;
  }

  #setStatus(
    record: ClaimRecord,
    { nics, phase, nodeName }: { nics: readonly NicStatus[]; phase: NicClaimPhase; nodeName: string | undefined },
  ): void {
    const { generation } = record.claim.metadata;
    const node = nodeName ?? record.status.nodeName;
    record.status = {
      ...(generation === undefined ? {} : { observedGeneration: generation }),
      ...(node === undefined ? {} : { nodeName: node }),
      phase,
      nics: [...nics],
    };
  }

  /**
   * Ports of the same identity as a recorded one: two requests were under way, of which one seemed lost. One that cannot be deleted does not hold up the
   * claim; the next look finds it again.
   */
  async #deleteSurplus(record: ClaimRecord, provider: VpcProvider, options: Options): Promise<void> {
    const { surplus } = record;
    if (surplus.length === 0) return;
    const recorded = nicsOf(record).map(({ portID }) => portID);
    for (const id of surplus) {
      if (recorded.includes(id)) continue;
      try {
        await provider.deletePort(id, options);
      } catch (error) {
        if (!(error instanceof ProviderError)) throw error;
        const { message } = error;
        this.#deps.log.warn("duplicate port cannot be deleted", { claim: record.uid, port: id, error: message });
        continue;
      }
      this.#deps.observer.duplicates(1);
      this.#deps.log.warn("duplicate port deleted", { claim: record.uid, port: id });
    }
    record.surplus = [];
  }

  /** The node's agent finds its claims by their label. */
  async #label(record: ClaimRecord, pod: PodView | undefined, options: Options): Promise<void> {
    const nodeName = pod?.spec.nodeName;
    if (nodeName === undefined) return;
    const label = nodeLabelValue(nodeName);
    if (record.labelled === label) return;
    const body = { metadata: { uid: record.claim.metadata.uid, labels: { [CLAIM_NODE_LABEL]: label } } };
    const ref = { name: record.uid, namespace: record.namespace };
    try {
      record.claim = await this.#deps.api.patch(nicResources.nicClaims, ref, { type: "merge", body }, options);
    } catch (error) {
      if (!isKubeError(error, "not-found")) throw error;
    }
    record.labelled = label;
  }

  /**
   * Gives a claim the NICs that its pod asks for by now (docs/spec/vpc-nics.md#10). The claim is stored before a port is made for a new NIC; what
   * its status has of a NIC that is wanted no more stays until the port is released.
   */
  async #follow(record: ClaimRecord, pod: PodView | undefined, options: Options): Promise<void> {
    const { cluster, rules, api, log } = this.#deps;
    const { claim, namespace } = record;
    const isEnding = pod === undefined || isOver(pod) || pod.metadata.deletionTimestamp !== undefined;
    if (isEnding || claim.metadata.deletionTimestamp !== undefined) return;
    const wish = rules.wishOf(pod, cluster.namespace(namespace));
    const before = claim.spec.nics;
    const shown = nicsOf(record);
    const { refusal, next } = this.#judge(record, wish);
    if (refusal !== record.refusal) {
      record.refusal = refusal;
      if (refusal !== "") {
        this.#deps.observer.event(pod, { type: "Warning", reason: "NicsRefused", note: refusal });
        log.warn("pod gets no other NICs", { pod: pod.metadata.name, namespace, why: refusal });
      }
    }
    if (next === undefined) return;
    const news = added(before, next);
    const gone = added(next, before);
    // Before anything is awaited, so that no other claim of the tenant is judged without these.
    if (news.length > 0) record.growsTo = portsOf({ nics: next, shown });
    try {
      // A cache that is behind has a wish of before; it wakes the claim when it has the last one.
      if (!(await this.#isCurrent(pod, options))) return;
      const body = { metadata: { uid: claim.metadata.uid }, spec: { nics: next } };
      const ref = { name: record.uid, namespace };
      record.claim = await api.patch(nicResources.nicClaims, ref, { type: "merge", body }, options);
    } catch (error) {
      if (!isKubeError(error, "not-found")) throw error;
      return;
    } finally {
      record.growsTo = 0;
    }
    log.info("claim follows its pod", {
      claim: record.uid,
      pod: pod.metadata.name,
      namespace,
      added: news,
      removed: gone,
    });
    // A port of a NIC of this name may be there from before.
    if (news.length > 0) record.isLookedUp = false;
    const changed = new Set(
      next.flatMap((nic) => {
        const old = before.find(({ name }) => name === nic.name);
        return old === undefined || isDeepStrictEqual(groupsOf(old), groupsOf(nic)) ? [] : [nic.name];
      }),
    );
    record.status = {
      ...record.status,
      nics: shown.map((nic) => {
        // Nobody waits for the next attempt of what is not wanted, or is wanted otherwise.
        if (gone.includes(nic.name)) return { ...settled(nic), state: "InProgress" as const };
        return changed.has(nic.name) ? withoutPause(nic) : nic;
      }),
    };
  }

  /** The NICs that a claim should get, if others than it has, and why not all that its pod asks for. */
  #judge(
    record: ClaimRecord,
    wish: PodWish,
  ): { readonly next: NicClaim["spec"]["nics"] | undefined; readonly refusal: string } {
    const { cluster, rules } = this.#deps;
    const { namespace, claim } = record;
    const { nics: before, vpc } = claim.spec;
    const refused = (refusal: string) => ({ next: undefined, refusal });
    if (wish.kind === "faulty")
      return refused(wish.faults.map(({ field, message }) => `${field}: ${message}`).join("; "));
    if (wish.kind !== "wanted") return refused("");
    if (wish.vpc !== vpc) return refused("vpc: may not change");
    const planned = planNics(before, nicsOf(record), wish.nics);
    if (planned === undefined) return refused("");
    const policy = cluster.policy();
    const faults = rules.change(policy, before, planned);
    if (faults.length > 0) return refused(faults.join("; "));
    const news = added(before, planned);
    if (news.length === 0) return { next: [...planned], refusal: "" };
    const access = rules.allow(policy, { ...wish, nics: planned }, namespace, cluster.namespace(namespace));
    const why =
      "refused" in access
        ? access.refused
        : this.#quotaFault(record, portsOf({ nics: planned, shown: nicsOf(record) }));
    if (why === undefined) return { next: [...planned], refusal: "" };
    // What is taken away is taken away all the same.
    const kept = planned.filter(({ name }) => !news.includes(name));
    return { next: isDeepStrictEqual(kept, before) ? undefined : kept, refusal: why };
  }

  /** Takes into the status what the last look at the ports has found. */
  #see(record: ClaimRecord, pod: PodView | undefined): void {
    const { clock, random } = this.#deps;
    const before = completed(record.claim.spec.nics, nicsOf(record));
    const host = this.#hostOf(record, pod);
    // A failure before the pod had a node may be none on the node.
    const isFirstHost = host !== undefined && record.host === undefined && record.status.nodeName === undefined;
    record.host = host;
    if (pod !== undefined && isOver(pod)) record.overSince ??= clock.monotonic();
    const when = { now: clock.now(), random: random() };
    const wishes = new Set(record.claim.spec.nics.map(({ name }) => name));
    const nics = before
      .map((nic) => (isFirstHost ? withoutPause(nic) : nic))
      .map((nic) =>
        wishes.has(nic.name)
          ? observeNic(nic, record.observation, { pod: this.#observedPod(record, pod, nic.name), ...when })
          : nic,
      );
    // A port that is to be made again: nobody knows what else is there.
    if (nics.some((nic, at) => nic.portID === undefined && before[at]?.portID !== undefined)) record.isLookedUp = false;
    record.observation = { ...NOTHING, downSince: record.observation.downSince };
    record.status = { ...record.status, nics: [...nics] };
    this.#tell(record, pod, before);
  }

  #observedPod(record: ClaimRecord, pod: PodView | undefined, nic: string): ObservedPod {
    const has = isPlugged(record.claim, nic);
    // A NIC that was added to a sandbox is not in use before the node has it.
    const isAwaited = !has && hasCondition(record.claim, "Plugged");
    return {
      isPlugged: has,
      isStarted: has || (!isAwaited && (pod?.status.phase ?? "Pending") !== "Pending"),
      isEnding:
        pod === undefined ||
        isOver(pod) ||
        pod.metadata.deletionTimestamp !== undefined ||
        hasCondition(record.claim, "Unplugged"),
    };
  }

  #hostOf(record: ClaimRecord, pod: PodView | undefined): string | undefined {
    const nodeName = pod?.spec.nodeName;
    if (nodeName === undefined) return undefined;
    const node = this.#deps.cluster.node(nodeName);
    const { claim } = record;
    const inUse = wished(claim.spec.nics, nicsOf(record)).filter(({ name }) => isPlugged(claim, name));
    const { host, isKept } = providerHost({ nodeName, node, inUse });
    this.#tellKeptHost(record, pod, isKept && node !== undefined ? host : undefined);
    return host;
  }

  /** An event, once, for a Node whose annotation was lost: new pods are bound to another host than those that run. */
  #tellKeptHost(record: ClaimRecord, pod: PodView | undefined, host: string | undefined): void {
    if (host === record.keptHost) return;
    record.keptHost = host;
    if (host === undefined || pod === undefined) return;
    const note = `the Node ${pod.spec.nodeName} has no annotation ${PROVIDER_HOST_ANNOTATION} any more; the ports stay bound where they are`;
    this.#deps.observer.event(pod, { type: "Warning", reason: "ProviderHostKept", note });
    this.#deps.log.warn("a Node does not say its host at the provider any more, so ports stay where they are", {
      claim: record.uid,
      node: pod.spec.nodeName,
      host,
    });
  }

  #view(record: ClaimRecord, pod: PodView | undefined): ClaimView {
    const { clock } = this.#deps;
    const now = clock.now();
    const { claim, overSince } = record;
    const overForMs = overSince === undefined ? 0 : clock.monotonic() - overSince;
    // The cache of pods may be behind that of claims.
    const nodeName = pod?.spec.nodeName ?? record.status.nodeName;
    const nodeIsLost = this.#isLost(nodeName, now);
    const isFree = nodeName === undefined || nodeIsLost;
    return {
      wishes: claim.spec.nics,
      nics: wished(claim.spec.nics, nicsOf(record)),
      leaving: leaving(claim.spec.nics, nicsOf(record)).map((nic) => ({
        nic,
        isUnplugged: isFree || isLetGo(claim, nic.name),
      })),
      isOriginal: (claim.metadata.generation ?? 1) === 1,
      phase: record.status.phase,
      isDeleted: claim.metadata.deletionTimestamp !== undefined,
      pod: pod === undefined ? undefined : { isOver: isOver(pod), overForMs, nodeName },
      podIsGone: record.podIsGone,
      host: this.#hostOf(record, pod),
      isPlugged: hasCondition(claim, "Plugged"),
      isUnplugged: hasCondition(claim, "Unplugged"),
      lostAt: deviceLostAt(claim),
      nodeIsLost,
      quota: this.#quotaFault(record),
      mayHavePort: record.mayHavePort,
      isLookedUp: record.isLookedUp && !nicsOf(record).some((nic) => record.undeleted.has(nic.name) && isDue(nic, now)),
      now,
    };
  }

  #isLost(nodeName: string | undefined, now: number): boolean {
    if (nodeName === undefined) return false;
    const node = this.#deps.cluster.node(nodeName);
    return node === undefined || (node.notReadySince !== undefined && now - node.notReadySince > NODE_LOST_MS);
  }

  /** `growsTo`: the ports of the claim once it has the NICs that its pod asks for. The check that decides: of pods that the webhooks have admitted together all can be more than the quota. */
  #quotaFault(record: ClaimRecord, growsTo?: number): string | undefined {
    if (growsTo === undefined && isAllowed(record)) return undefined;
    const { cluster, rules } = this.#deps;
    const policy = cluster.policy();
    const tenantOf = (namespace: string) => rules.tenantOf(policy, namespace, cluster.namespace(namespace));
    const tenant = tenantOf(record.namespace);
    if (tenant?.maxPorts === undefined) return undefined;
    const others: QuotaClaim[] = [];
    for (const claim of cluster.claims()) {
      const { uid, namespace = "" } = { ...claim.metadata, uid: claim.metadata.name };
      if ((uid === record.uid && namespace === record.namespace) || tenantOf(namespace)?.name !== tenant.name) continue;
      const known = this.ledger.get(namespace, uid);
      const other = quotaClaim(known?.claim ?? claim, known === undefined ? hasBegun(claim.status) : isAllowed(known));
      others.push({ ...other, ports: Math.max(other.ports, known?.growsTo ?? 0) });
    }
    const own = quotaClaim(record.claim, false);
    return quotaFault({ ...own, ports: growsTo ?? own.ports }, others, tenant);
  }

  async #release(
    record: ClaimRecord,
    provider: VpcProvider,
    options: Options,
  ): Promise<{ readonly requeueAfterMs: number } | undefined> {
    const { api, clock, log } = this.#deps;
    // The write of a failure wakes the claim.
    const leftMs = record.releaseAt - clock.monotonic();
    if (leftMs > 0) return { requeueAfterMs: leftMs };
    record.status = { ...record.status, phase: "Releasing" };
    record.pollAt = undefined;
    await deleteClaim(api, record, options);
    const lane = laneOf({ do: "release" }, record.claim) ?? "";
    if (!this.#turns.begin(lane, keyOf(record))) return undefined;
    const before = nicsOf(record);
    let end: ReleaseEnd;
    try {
      end = await this.#actions.release({ record, provider }, options);
    } finally {
      this.#turns.end(lane);
    }
    const { againAfterMs: requeueAfterMs, hasFreed } = end;
    if (requeueAfterMs === undefined) {
      await finishClaim(api, record, options);
      this.ledger.forget(record);
      log.info("claim released", { claim: record.uid, pod: record.claim.spec.podName, namespace: record.namespace });
      this.#wakeWaiting(record, before);
      return undefined;
    }
    // An address, a place in a subnet or in a quota may be what others wait for.
    if (hasFreed) this.#wakeWaiting(record, before);
    await storeStatus(api, record, options);
    record.releaseAt = clock.monotonic() + requeueAfterMs;
    return { requeueAfterMs };
  }

  /**
   * NICs of a claim have given back their ports, which others may wait for: those that want just these, and of those that wait for any port of the tenant or
   * the project some that have waited longest. All others try again after their pauses.
   */
  #wakeWaiting({ claim, namespace }: ClaimRecord, nics: readonly NicStatus[]): void {
    const { provider, projectID, vpc } = claim.spec;
    const wishes = claim.spec.nics.filter((wish) => nics.some(({ name }) => name === wish.name));
    const freed = new Set([
      ...nics.flatMap(({ ips = [], mac, portID }) => [...ips.map(({ ip }) => ip), mac, portID]),
      // A port need not be recorded.
      ...wishes.flatMap(({ ip, mac, portID }) => [ip, mac, portID]),
    ]);
    const wantsFreed = ({ claim: other }: ClaimRecord, { name }: NicStatus): boolean => {
      const { ip, mac, portID } = other.spec.nics.find((one) => one.name === name) ?? {};
      return [ip, mac, portID].some((one) => one !== undefined && freed.has(one));
    };
    const wantsAny = ({ claim: other, namespace: where }: ClaimRecord, { reason }: NicStatus): boolean => {
      const { spec } = other;
      if (reason === "QuotaExceeded") return true;
      if (reason !== "ProviderQuota" && reason !== "SubnetFull") return false;
      return spec.provider === provider && ((spec.projectID ?? spec.vpc) === (projectID ?? vpc) || where === namespace);
    };
    const waiting = [...this.ledger.records()]
      .filter((record) => record.status.phase !== "Releasing" && nicsOf(record).some((nic) => wantsAny(record, nic)))
      .sort((one, other) => dueAt(one) - dueAt(other))
      .slice(0, MAX_WOKEN);
    const some = new Set(waiting);
    this.tryAgain((nic, phase, record) => {
      if (phase === "Releasing" || !endsByRelease(nic.reason)) return false;
      return (some.has(record) && wantsAny(record, nic)) || wantsFreed(record, nic);
    });
  }

  /** Events for what has become of NICs. */
  #tell(record: ClaimRecord, pod: PodView | undefined, before: readonly NicStatus[]): void {
    const { observer, clock, log } = this.#deps;
    for (const nic of nicsOf(record)) {
      const old = before.find(({ name }) => name === nic.name);
      const { name, state, reason } = nic;
      if (state === "Ready" && old?.state !== "Ready" && record.pluggedAt !== undefined) {
        observer.active((clock.monotonic() - record.pluggedAt) / 1000);
      }
      const isTold = state === "Failed" || reason === "PortLost" || reason === "PortDown";
      if (!isTold || reason === undefined || (old?.state === state && old.reason === reason)) continue;
      log.warn("a NIC has failed", { claim: record.uid, nic: name, reason, why: nic.message });
      if (pod !== undefined) observer.event(pod, { type: "Warning", reason, note: `${name}: ${tenantText(nic)}` });
    }
  }

  /** Writes what the pod shows of its NICs, where it differs. */
  async #show(record: ClaimRecord, pod: PodView, options: Options): Promise<void> {
    const { api, rules, clock } = this.#deps;
    const { annotations, condition } = rules.surface(pod, { ...record.claim, status: record.status }, clock.now());
    const { lastTransitionTime: _, ...state } = condition ?? {};
    const text = JSON.stringify([annotations, state]);
    const { name, namespace = "", uid, resourceVersion: version } = pod.metadata;
    if (annotations === undefined && condition === undefined) return;
    // The cache may be behind our own write. A later pod that shows something else was changed by somebody.
    if (text === record.surface.text && version === record.surface.version) return;
    const ref = { name, namespace };
    try {
      if (annotations !== undefined) {
        await api.patch(
          resources.pods,
          ref,
          { type: "merge", body: { metadata: { uid, annotations } } },
          { ...options, fieldManager: MANAGER },
        );
      }
      if (condition !== undefined) {
        await api.patch(
          resources.pods,
          ref,
          { type: "strategic", body: { metadata: { uid }, status: { conditions: [condition] } } },
          { ...options, fieldManager: MANAGER, subresource: "status" },
        );
      }
      record.surface = { text, version };
    } catch (error) {
      // Another pod of the name, or none: this one shows nothing any more.
      if (!isKubeError(error, "not-found", "conflict")) throw error;
    }
  }

  /** Lets a pod be scheduled that has waited for its ports (docs/spec/vpc-nics.md#7). */
  async #removeGate({ metadata, spec }: PodView, options: Options): Promise<void> {
    if (spec.isGated !== true) return;
    const { name, namespace = "", uid } = metadata;
    const body = { metadata: { uid }, spec: { schedulingGates: [{ $patch: "delete", name: NICS_GATE }] } };
    try {
      const patch = { type: "strategic", body } as const;
      await this.#deps.api.patch(resources.pods, { name, namespace }, patch, { ...options, fieldManager: MANAGER });
      this.#deps.log.info("pod may be scheduled", { pod: name, namespace });
    } catch (error) {
      if (!isKubeError(error, "not-found", "conflict")) throw error;
    }
  }

  #schedulePolls(record: ClaimRecord): void {
    const { clock } = this.#deps;
    const now = clock.monotonic();
    const nics = nicsOf(record);
    // A request whose end is not known may still make the first one.
    if (!nics.some(hasPort) && now >= record.doubtUntil) {
      record.pollAt = undefined;
      return;
    }
    if (hasCondition(record.claim, "Plugged")) record.pluggedAt ??= now;
    const { everyMs, awaited } = this.#paceOf(record, now);
    // With a NIC that was plugged just now, looks begin anew.
    const isFirst = record.pollAt === undefined;
    const isNew = awaited > record.awaited;
    record.awaited = awaited;
    // A pace that is the same has been slowed down by the polls, or goes on.
    if (
      !isFirst &&
      !isNew &&
      (everyMs === POLL_PLUGGED_MS ? record.pollEveryMs <= 2000 : record.pollEveryMs === everyMs)
    )
      return;
    record.pollEveryMs = everyMs;
    if (everyMs === POLL_PLUGGED_MS) record.quickUntil = now + POLL_QUICK_MS;
    // What was stored by an earlier process may be old.
    const isOld = isFirst && record.touchedAt === Number.NEGATIVE_INFINITY;
    record.pollAt = isOld || everyMs === POLL_PLUGGED_MS ? now : now + everyMs;
    this.#options.polls.mark();
  }

  /** How often to look, and how many NICs that are plugged wait to be active. */
  #paceOf({ claim, ...record }: ClaimRecord, now: number): { readonly everyMs: number; readonly awaited: number } {
    const waiting = wished(claim.spec.nics, record.status.nics ?? []).filter(
      (nic) => isPlumbed(nic, undefined) && nic.state !== "Ready",
    );
    const awaited = waiting.filter(({ name }) => isPlugged(claim, name)).length;
    if (awaited > 0) return { everyMs: POLL_PLUGGED_MS, awaited };
    if (now < record.doubtUntil) return { everyMs: POLL_DOUBT_MS, awaited };
    if (waiting.length > 0) return { everyMs: POLL_WAITING_MS, awaited };
    return { everyMs: record.observation.downSince.size > 0 ? POLL_DOWN_MS : POLL_SETTLED_MS, awaited };
  }
}

/** Whether a port was recorded so lately that an earlier request for it, without an answer, may still make another one. */
function isYoung({ createdByController, createdAt = "" }: NicStatus, now: number): boolean {
  // A time that cannot be read, or that is to come by this clock, is no proof of age.
  return createdByController === true && !(now - Date.parse(createdAt) >= DOUBT_MS);
}

function keyOf({ namespace, uid }: ClaimRecord): string {
  return `${namespace}/${uid}`;
}

/** When the first NIC of a claim is tried again, in milliseconds since the epoch: those that are tried earliest have waited longest. */
function dueAt(record: ClaimRecord): number {
  const times = nicsOf(record).flatMap(({ nextRetryAt }) =>
    nextRetryAt === undefined ? [] : [Date.parse(nextRetryAt)],
  );
  return Math.min(...times);
}

/** The ports of NICs, and of those that are not released yet. */
function portsOf({
  nics,
  shown,
}: {
  readonly nics: readonly { readonly name: string }[];
  readonly shown: readonly { readonly name: string }[];
}): number {
  return new Set([...nics, ...shown].map(({ name }) => name)).size;
}

function isOver({ status: { phase } }: PodView): boolean {
  return phase === "Succeeded" || phase === "Failed";
}

/** Whether the claim's ports count already: they are there, or are being made. */
function hasBegun(status: NicClaim["status"]): boolean {
  const { phase = "Pending", nics = [] } = status ?? {};
  return phase !== "Pending" || nics.some(hasPort);
}

function isAllowed(record: ClaimRecord): boolean {
  return hasBegun(record.status);
}

function quotaClaim({ metadata, spec, status }: NicClaim, isAllowedAlready: boolean): QuotaClaim {
  const isReleasing = status?.phase === "Releasing" || metadata.deletionTimestamp !== undefined;
  return {
    uid: metadata.name,
    createdAt: metadata.creationTimestamp ?? "",
    ports: isReleasing ? 0 : portsOf({ nics: spec.nics, shown: status?.nics ?? [] }),
    isAllowed: isAllowedAlready,
  };
}
