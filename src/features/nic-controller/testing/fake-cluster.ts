import { Dirty } from "#base/async";
import type { FakeClock } from "#base/clock";
import { type Logger, nullLogger } from "#base/log";
import type { VpcProvider } from "#cloud/vpc";
import { KubeError, type KubeObject } from "#kube/client";
import type { NicClaim, NicClaimStatus, NicPolicySpec } from "#kube/nic";
import { Controller } from "#kube/reconciler";
import { ClaimReconciler } from "../run/claim-reconciler.ts";
import type { NicControllerDeps, PodEvent } from "../run/deps.ts";
import type { ClaimApi } from "../run/guarded-api.ts";
import { GuardedProvider } from "../run/guarded-provider.ts";
import { CLAIM_WORKERS } from "../run/lanes.ts";
import { OrphanCollector } from "../run/orphan-collector.ts";
import { PortPoller } from "../run/poller.ts";
import type { NicRules, PodView, PodWish } from "../world.ts";

/** A pod of the fake cluster, with what it asks for. */
interface FakePod extends PodView {
  readonly wish: PodWish;
}

/** Pods, claims and the controllers that work on them, on a clock that the test moves. Caches are right, but for {@link FakeCluster.unseen} and {@link FakeCluster.former}. */
export class FakeCluster {
  readonly claims = new Map<string, NicClaim>();
  readonly pods = new Map<string, FakePod>();
  readonly events: (PodEvent & { readonly pod: string })[] = [];
  /** Pods that the API server has, and the controllers' caches have not yet. */
  readonly unseen = new Set<string>();
  /** Pods as the controllers' caches still have them, by uid. */
  readonly former = new Map<string, FakePod>();
  /** The error with which the API server answers for every pod. */
  podFailure: KubeError | undefined;
  policy: NicPolicySpec = {};
  /** Ports of claims that were deleted as second ones. */
  duplicates = 0;
  statusWrites = 0;
  /** The error with which the API server refuses every claim. */
  refusal: KubeError | undefined;
  /** True if nodes have not been ready for long. */
  lostNodes = false;
  /** Nodes that the cluster does not have. */
  readonly goneNodes = new Set<string>();
  /** The annotations of nodes that have some. */
  readonly nodeAnnotations = new Map<string, Readonly<Record<string, string>>>();
  readonly clock: FakeClock;
  readonly #vpc: VpcProvider;
  readonly #log: Logger;
  #version = 0;
  #enqueue: (key: string) => void = () => undefined;

  constructor(clock: FakeClock, vpc: VpcProvider, log: Logger = nullLogger) {
    this.clock = clock;
    this.#vpc = vpc;
    this.#log = log;
  }

  /** A controller that works until it is disposed: at once and in the middle of anything, as if it were killed. */
  start(): Disposable & { readonly poller: PortPoller; readonly collector: OrphanCollector } {
    const stop = new AbortController();
    const { signal } = stop;
    let isAlive = true;
    const provider = new GuardedProvider({ provider: this.#vpc, clock: this.clock, isLeading: () => isAlive });
    const polls = new Dirty(this.clock);
    const deps: NicControllerDeps = {
      api: this.#api(() => isAlive),
      cluster: {
        claim: (_namespace, uid) => this.claims.get(uid),
        claims: () => this.claims.values(),
        pod: (uid) => (this.unseen.has(uid) ? undefined : (this.former.get(uid) ?? this.pods.get(uid))),
        namespace: () => undefined,
        node: (name) =>
          this.goneNodes.has(name)
            ? undefined
            : { annotations: this.nodeAnnotations.get(name), notReadySince: this.lostNodes ? 0 : undefined },
        policy: () => this.policy,
      },
      rules: RULES,
      provider: () => provider,
      observer: {
        event: ({ metadata }, event) => void this.events.push({ ...event, pod: metadata.name }),
        created: () => undefined,
        duplicates: (count) => {
          this.duplicates += count;
        },
        active: () => undefined,
        orphans: () => undefined,
      },
      log: this.#log,
      clock: this.clock,
      random: () => 0.5,
    };
    const enqueue = (key: string, delayMs = 0): void => controller.enqueueAfter(key, delayMs);
    const reconciler = new ClaimReconciler(deps, { clusterId: () => "c1", signal, enqueue, polls });
    const controller = new Controller({
      name: "claim",
      workers: CLAIM_WORKERS,
      retry: { initialMs: 200, maxMs: 30_000, ratePerSecond: 100, burst: 1000, jitter: 0 },
      reconcile: (key, options) => reconciler.reconcile(key, options),
      log: this.#log,
      clock: this.clock,
    });
    const poller = new PortPoller(deps, { enqueue, ledger: reconciler.ledger, polls });
    this.#enqueue = (key) => controller.enqueue(key);
    for (const uid of new Set([...this.claims.keys(), ...this.pods.keys()])) this.touch(uid);
    // What a killed controller was doing fails.
    const unlessKilled = (error: unknown): void => {
      if (isAlive) throw error;
    };
    controller.run({ signal }).catch(unlessKilled);
    poller.run({ signal }).catch(unlessKilled);
    const collector = new OrphanCollector(deps, {
      ...{ clusterId: "c1", minAgeMs: 900_000, isDryRun: false },
      wasOwn: (namespace, uid) => reconciler.ledger.hasHad(namespace, uid),
    });
    return {
      poller,
      collector,
      [Symbol.dispose]: () => {
        isAlive = false;
        this.#enqueue = () => undefined;
        stop.abort(new DOMException("killed", "AbortError"));
      },
    };
  }

  addPod(uid: string, wish: PodWish, nodeName?: string): void {
    this.pods.set(uid, {
      metadata: { name: `pod-${uid.slice(-4)}`, namespace: "default", uid, resourceVersion: "1" },
      spec: { nodeName },
      status: { phase: "Pending" },
      wish,
    });
    this.touch(uid);
  }

  changePod(uid: string, change: Partial<Pick<PodView, "spec" | "status">>): void {
    const pod = this.pods.get(uid);
    if (pod === undefined) return;
    this.pods.set(uid, { ...pod, ...change });
    this.touch(uid);
  }

  /** Changes the annotations of a pod as a user does. */
  changeWish(uid: string, wish: PodWish): void {
    const pod = this.pods.get(uid);
    if (pod === undefined) return;
    this.#version += 1;
    this.pods.set(uid, { ...pod, metadata: { ...pod.metadata, resourceVersion: `w${this.#version}` }, wish });
    this.touch(uid);
  }

  /** The node's agent: it has plugged and unplugged what the claim says, and tells it. */
  follow(uid: string): void {
    const claim = this.claims.get(uid);
    if (claim === undefined) return;
    const names = claim.spec.nics.flatMap(({ name }) =>
      claim.status?.nics?.some((nic) => nic.name === name && nic.vifType === "ovs") ? [{ name }] : [],
    );
    const plugged = { generation: claim.metadata.generation ?? 0, nics: names };
    const others = (claim.status?.conditions ?? []).filter(({ type }) => type !== "Plugged" && type !== "Unplugged");
    const conditions = [...others, { type: "Plugged", status: "True" as const }];
    this.#store({ ...claim, status: { ...claim.status, conditions, plugged } });
  }

  deletePod(uid: string): void {
    this.pods.delete(uid);
    this.touch(uid);
  }

  /** The agent's part of a claim's status, as the agent applies it. */
  report(uid: string, status: Pick<NicClaimStatus, "conditions" | "plugged">): void {
    const claim = this.claims.get(uid);
    if (claim !== undefined) this.#store({ ...claim, status: { ...claim.status, ...status } });
  }

  /** A condition of the node's agent. */
  tell(uid: string, type: "Plugged" | "Unplugged"): void {
    const claim = this.claims.get(uid);
    if (claim === undefined) return;
    const conditions = [...(claim.status?.conditions ?? []), { type, status: "True" as const }];
    this.#store({ ...claim, status: { ...claim.status, conditions } });
  }

  /** The sandbox has ended with the devices in it, and the node's agent tells it. */
  loseDevices(uid: string): void {
    const claim = this.claims.get(uid);
    if (claim === undefined) return;
    const lastTransitionTime = new Date(this.clock.now()).toISOString().replace(/\.\d+Z$/, "Z");
    const conditions = (["Plugged", "Unplugged"] as const).map((type) => {
      const status = type === "Unplugged" ? ("True" as const) : ("False" as const);
      return { type, status, reason: "DeviceLost", lastTransitionTime };
    });
    const { generation = 0 } = claim.metadata;
    this.#store({ ...claim, status: { ...claim.status, conditions, plugged: { generation, nics: [] } } });
  }

  touch(uid: string): void {
    this.#enqueue(`default/${uid}`);
  }

  #store(claim: NicClaim): NicClaim {
    this.#version += 1;
    const stored = { ...claim, metadata: { ...claim.metadata, resourceVersion: String(this.#version) } };
    this.claims.set(claim.metadata.name, stored);
    this.touch(claim.metadata.name);
    return stored;
  }

  #find(name: string): NicClaim {
    const claim = this.claims.get(name);
    if (claim === undefined) throw new KubeError("not-found", `there is no claim ${name}`);
    return claim;
  }

  #findPod(name: string): FakePod {
    if (this.podFailure !== undefined) throw this.podFailure;
    const pod = [...this.pods.values()].find(({ metadata }) => metadata.name === name);
    if (pod === undefined) throw new KubeError("not-found", `there is no pod ${name}`);
    return pod;
  }

  /** The API server for claims; pods take every patch. A controller that was killed writes no more. */
  #api(isAlive: () => boolean): ClaimApi {
    const call = async <T>(work: () => NicClaim | FakePod): Promise<T> => {
      await new Promise<void>((resolve) => void this.clock.after(3, resolve));
      if (!isAlive()) throw new KubeError("unreachable", "this controller was killed");
      return work() as unknown as T;
    };
    return {
      get: (type, { name }) => call(() => (type.kind === "Pod" ? this.#findPod(name) : this.#find(name))),
      create: (_type, draft) =>
        call(() => {
          const claim = draft as unknown as NicClaim;
          const { name } = claim.metadata;
          if (this.refusal !== undefined) throw this.refusal;
          if (this.claims.has(name)) throw new KubeError("already-exists", `claim ${name} exists`);
          const created = {
            creationTimestamp: new Date(this.clock.now()).toISOString(),
            uid: crypto.randomUUID(),
            generation: 1,
          };
          return this.#store({ ...claim, metadata: { ...claim.metadata, ...created } });
        }),
      patch: (type, { name }, patch) =>
        call(() => {
          if (type.kind === "Pod") {
            const pod = [...this.pods.values()].find(({ metadata }) => metadata.name === name);
            if (JSON.stringify(patch).includes('"schedulingGates"') && pod !== undefined) {
              this.changePod(pod.metadata.uid, { spec: { ...pod.spec, isGated: false } });
            }
            return {} as NicClaim;
          }
          const claim = this.#find(name);
          const body = ("body" in patch ? patch.body : {}) as Partial<KubeObject> & {
            readonly status?: NicClaimStatus;
            readonly spec?: Partial<NicClaim["spec"]>;
          };
          if (patch.type === "apply") {
            this.statusWrites += 1;
            const { conditions, plugged } = claim.status ?? {};
            const theirs = { ...(conditions && { conditions }), ...(plugged && { plugged }) };
            return this.#store({ ...claim, status: { ...body.status, ...theirs } });
          }
          const { finalizers, labels } = body.metadata ?? {};
          if (finalizers?.length === 0 && claim.metadata.deletionTimestamp !== undefined) {
            this.claims.delete(name);
            this.touch(name);
            return claim;
          }
          const generation = (claim.metadata.generation ?? 0) + (body.spec === undefined ? 0 : 1);
          return this.#store({
            ...claim,
            metadata: {
              ...claim.metadata,
              generation,
              ...(labels && { labels: { ...claim.metadata.labels, ...labels } }),
            },
            spec: { ...claim.spec, ...body.spec },
          });
        }),
      delete: (_type, { name }) =>
        call(() => {
          const claim = this.#find(name);
          const deletionTimestamp = new Date(this.clock.now()).toISOString();
          return this.#store({ ...claim, metadata: { ...claim.metadata, deletionTimestamp } });
        }),
    };
  }
}

/** Rules that allow everything; the quota is that of the policy's first tenant. */
const RULES: NicRules = {
  wishOf: (pod) => (pod as FakePod).wish,
  allow: () => ({ provider: undefined, projectID: undefined }),
  tenantOf: ({ tenants = [] }) => tenants[0],
  change: ({ hotplug }, before, after) =>
    hotplug === false && before.length !== after.length ? ["nics: Forbidden: NICs are immutable"] : [],
  surface: () => ({}),
};
