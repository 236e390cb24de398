import type { AbortOptions } from "#base/async";
import { describeError, ExpectedError } from "#base/errors";
import type { Cidr } from "#base/ip";
import type { Logger } from "#base/log";
import {
  type Deployment,
  type Draft,
  findObject,
  isAway,
  isKubeError,
  type KubeApi,
  type KubeObject,
  type PodDisruptionBudget,
  type ResourceType,
  resources,
  type Service,
  type ServiceAccount,
} from "#kube/client";
import {
  type AddressPool,
  coilResources,
  type Egress,
  egressLabels,
  egressSelector,
  podSpecFaults,
  type SpecifiedEgress,
} from "#kube/coil";
import { addressPoolOf, egressOfPool, notAllowed } from "./address-pool.ts";
import { AppliedStates, wishOf } from "./applied.ts";
import { accountOf, childrenOf } from "./children.ts";
import { inheritFields } from "./inherit.ts";
import { replacementOf } from "./replacement.ts";
import type { RouterSettings } from "./router-pod.ts";

/** The manager of the fields that this controller applies. */
const MANAGER = "coil-egress-controller";

/**
 * The way in which kube-apiserver refuses to apply a list with two items of one key, such as two ports of one number, and unknown fields: with status 500.
 * It stores both when it is asked to create or replace, as Coil does.
 */
const REPEATED = "failed to create typed patch object";

/** `invalid`: stored without a webhook, which would have refused it. `taken`: an object of the Egress's name belongs to something else. `incomplete`: several objects could not be written. `leaving`: the pool of its former addresses is not gone yet. */
export type EgressErrorCode = "invalid" | "taken" | "incomplete" | "leaving";

/** An Egress cannot have one of its objects, or several. The message names each. */
export class EgressError extends ExpectedError<EgressErrorCode> {
  override readonly name = "EgressError";
}

/** Caches, by `NAMESPACE/NAME`. */
export interface EgressCaches {
  readonly egress: (key: string) => Egress | undefined;
  readonly deployment: (key: string) => Deployment | undefined;
  readonly service: (key: string) => Service | undefined;
  readonly budget: (key: string) => PodDisruptionBudget | undefined;
  /** The pool of an Egress's addresses, by the Egress's key; never one without `addressRanges`. */
  readonly pool: (key: string) => AddressPool | undefined;
  /** The pods that use an Egress, and those that may not; `undefined` while it is not known, which leaves the status as it is. */
  readonly clients: (key: string) => { readonly clients: number; readonly refused: number } | undefined;
  /** The account of the routers of a namespace. */
  readonly account: (namespace: string) => ServiceAccount | undefined;
}

/** The collaborators of an {@link EgressReconciler}. */
export interface EgressDeps {
  readonly api: KubeApi;
  readonly caches: EgressCaches;
  /** Returns the settings that all routers share. It may ask the API server, and is called for each reconciliation. */
  readonly router: (options: AbortOptions) => Promise<RouterSettings>;
  /** The ranges that `spec.addresses` may be of. None: no Egress may have addresses of its own, and no right on pools is needed. */
  readonly addressRanges: readonly Cidr[];
  readonly log: Logger;
}

/** Gives one Egress its objects and its status (docs/spec/pod-network.md#8). Idempotent; nothing is written without a difference. */
export class EgressReconciler {
  readonly #deps: EgressDeps;
  readonly #applied = new AppliedStates();

  constructor(deps: EgressDeps) {
    this.#deps = deps;
  }

  /**
   * Rejects with `KubeError` and {@link EgressError} after it has tried every object; the caller then tries again. The objects of a deleted Egress go
   * by their owner reference.
   */
  async reconcile(key: string, options: AbortOptions): Promise<void> {
    const { caches, router } = this.#deps;
    const found = caches.egress(key);
    if (found === undefined) {
      this.#forget(key);
      return this.#removePool(caches.pool(key), options);
    }
    if (found.metadata.deletionTimestamp !== undefined) return;
    const egress = sound(found);
    const settings = pulledBy(caches.account(egress.metadata.namespace ?? ""), await router(options));
    const { deployment, service, budget } = childrenOf(egress, settings);
    // Pods are refused without their account, and tried again later and later.
    const account = await settle(() => this.#ensureAccount(egress.metadata.namespace ?? "", options));
    const pool = await settle(() => this.#ensurePool(egress, caches.pool(key), options));
    // The others do not depend on each other: an API server takes milliseconds for each request.
    const others = await Promise.all(
      [
        () => this.#ensure(resources.deployments, egress, deployment, caches.deployment(key), options),
        () => this.#ensure(resources.services, egress, service, caches.service(key), options),
        () => this.#ensureBudget(egress, budget, caches.budget(key), options),
        () => this.#ensureStatus(egress, caches.deployment(key), options),
      ].map(settle),
    );
    const failed = [account, pool, ...others].filter((error) => error !== undefined);
    const [first, ...more] = failed;
    if (first === undefined) return;
    if (more.length === 0) throw first;
    throw new EgressError("incomplete", failed.map(describeError).join("; "));
  }

  #forget(key: string): void {
    const types = [
      resources.deployments,
      resources.services,
      resources.podDisruptionBudgets,
      coilResources.addressPools,
    ];
    for (const { kind } of types) {
      this.#applied.forget(`${kind} ${key}`);
    }
  }

  /** The pool of the routers' own addresses: applied when it is another than the Egress's, and deleted when the Egress wants none. */
  async #ensurePool(egress: SpecifiedEgress, cached: AddressPool | undefined, options: AbortOptions): Promise<void> {
    const { api, log, addressRanges } = this.#deps;
    const wanted = addressPoolOf(egress);
    if (wanted === undefined) return this.#removePool(cached, options);
    const { namespace = "", name } = egress.metadata;
    const refused = notAllowed(egress, addressRanges);
    if (refused !== undefined)
      throw new EgressError("invalid", `Egress ${namespace}/${name} cannot have its addresses: ${refused}`);
    if (cached?.metadata.deletionTimestamp !== undefined)
      throw new EgressError(
        "leaving",
        `Egress ${namespace}/${name} cannot have its addresses yet: AddressPool ${cached.metadata.name} of former ones is being deleted, which ends with the last pod that has one of them`,
      );
    const key = `${coilResources.addressPools.kind} ${namespace}/${name}`;
    if (cached !== undefined && this.#applied.isSettled(key, wanted, cached)) return;
    const ref = { name: wanted.metadata.name ?? "" };
    const before = cached ?? (await findObject(api, coilResources.addressPools, ref, options));
    if (before !== undefined && egressOfPool(before) !== `${namespace}/${name}`)
      throw new EgressError(
        "taken",
        `Egress ${namespace}/${name} cannot have its AddressPool: ${ref.name} is not of it; delete it`,
      );
    const apply = { type: "apply", body: wanted, fieldManager: MANAGER, force: true } as const;
    const after = await api.patch(coilResources.addressPools, ref, apply, options);
    this.#applied.note(key, wanted, after);
    if (before !== undefined && wishOf(before) === wishOf(after)) return;
    log.info(`pool of an Egress's addresses ${before === undefined ? "created" : "changed"}`, {
      namespace,
      egress: name,
      pool: ref.name,
    });
  }

  /** The pool's finalizer holds it until the last router has ended. */
  async #removePool(cached: AddressPool | undefined, options: AbortOptions): Promise<void> {
    if (cached === undefined || cached.metadata.deletionTimestamp !== undefined) return;
    const { name, uid } = cached.metadata;
    try {
      await this.#deps.api.delete(coilResources.addressPools, { name }, { ...options, preconditions: { uid } });
      this.#deps.log.info("pool of an Egress's addresses deleted", { pool: name });
    } catch (error) {
      if (!isKubeError(error, "not-found")) throw error;
    }
  }

  async #ensureAccount(namespace: string, options: AbortOptions): Promise<void> {
    const { api, caches, log } = this.#deps;
    if (caches.account(namespace) !== undefined) return;
    try {
      await api.create(resources.serviceAccounts, accountOf(namespace), options);
      log.info("account of routers created", { namespace });
    } catch (error) {
      if (!isKubeError(error, "already-exists")) throw error;
    }
  }

  async #ensure<T extends KubeObject>(
    type: ResourceType<T>,
    egress: Egress,
    wanted: Draft<T>,
    cached: T | undefined,
    options: AbortOptions,
  ): Promise<void> {
    const { name, namespace = "" } = egress.metadata;
    const key = `${type.kind} ${namespace}/${name}`;
    if (cached !== undefined && this.#applied.isSettled(key, wanted, cached)) return;
    // The caches have only objects with our labels.
    const before = cached ?? (await findObject(this.#deps.api, type, { name, namespace }, options));
    if (before !== undefined) refuseForeign(type, egress, before);
    const after = await this.#write(type, wanted, before, options);
    this.#applied.note(key, wanted, after);
    if (before !== undefined && wishOf(before) === wishOf(after)) return;
    const verb = before === undefined ? "created" : "changed";
    this.#deps.log.info(`object of an Egress ${verb}`, { kind: type.kind, namespace, egress: name });
  }

  /** Applies an object. If the server refuses what that would make of `before`, replaces its spec first. */
  async #write<T extends KubeObject>(
    type: ResourceType<T>,
    wanted: Draft<T>,
    before: T | undefined,
    options: AbortOptions,
  ): Promise<T> {
    const { api, log } = this.#deps;
    try {
      return await this.#apply(type, wanted, options);
    } catch (error) {
      if (isKubeError(error) && error.message.includes(REPEATED))
        throw new EgressError(
          "invalid",
          `Egress ${wanted.metadata.namespace}/${wanted.metadata.name} cannot have its ${type.kind}: the API server cannot apply its template: ${error.message}; take out repeated entries and unknown fields`,
          { cause: error },
        );
      if (before === undefined || !isKubeError(error, "invalid") || error.httpStatus !== 422) throw error;
      const { name, namespace } = wanted.metadata;
      // Fails as well, with the same words, if it is the Egress that is not valid.
      await api.replace(type, replacementOf(wanted, before), options);
      const why = "fields of others exclude the Egress's";
      log.warn("spec of an Egress's object replaced", {
        kind: type.kind,
        namespace,
        egress: name,
        why,
        refused: error.message,
      });
      return this.#apply(type, wanted, options);
    }
  }

  async #apply<T extends KubeObject>(type: ResourceType<T>, wanted: Draft<T>, options: AbortOptions): Promise<T> {
    const { api } = this.#deps;
    const { name = "", namespace = "" } = wanted.metadata;
    const ref = { name, namespace };
    const apply = { type: "apply", body: wanted, fieldManager: MANAGER, force: true } as const;
    const applied = await api.patch(type, ref, apply, options);
    const { managedFields, resourceVersion } = applied.metadata;
    const inherited = inheritFields(managedFields, MANAGER);
    if (inherited === undefined) return applied;
    const operations = [
      { op: "replace", path: "/metadata/managedFields", value: inherited },
      { op: "replace", path: "/metadata/resourceVersion", value: resourceVersion },
    ] as const;
    await api.patch(type, ref, { type: "json", operations }, options);
    return api.patch(type, ref, apply, options);
  }

  async #ensureBudget(
    egress: Egress,
    wanted: Draft<PodDisruptionBudget> | undefined,
    cached: PodDisruptionBudget | undefined,
    options: AbortOptions,
  ): Promise<void> {
    const { name, namespace = "" } = egress.metadata;
    const type = resources.podDisruptionBudgets;
    if (wanted !== undefined) return this.#ensure(type, egress, wanted, cached, options);
    if (cached === undefined || !isOwned(cached, egress)) return;
    try {
      const { uid } = cached.metadata;
      await this.#deps.api.delete(type, { name, namespace }, { ...options, preconditions: { uid } });
      this.#deps.log.info("disruption budget of an Egress deleted", { namespace, egress: name });
    } catch (error) {
      if (!isKubeError(error, "not-found")) throw error;
    }
  }

  async #ensureStatus(egress: Egress, deployment: Deployment | undefined, options: AbortOptions): Promise<void> {
    const { name, namespace = "" } = egress.metadata;
    const own = deployment !== undefined && isOwned(deployment, egress) ? deployment : undefined;
    const counted = this.#deps.caches.clients(`${namespace}/${name}`);
    const status = {
      replicas: own?.status?.availableReplicas ?? 0,
      selector: egressSelector(name),
      ...(counted === undefined ? {} : { clients: counted.clients, refusedClients: counted.refused }),
    };
    const before: Partial<typeof status> = egress.status ?? {};
    const isSame = (Object.keys(status) as (keyof typeof status)[]).every((key) => before[key] === status[key]);
    if (isSame) return;
    const patch = { type: "merge", body: { metadata: { uid: egress.metadata.uid }, status } } as const;
    await this.#deps.api.patch(coilResources.egresses, { name, namespace }, patch, {
      ...options,
      subresource: "status",
    });
  }
}

/** The Egress. Throws {@link EgressError} `invalid` for one that only a webhook would have refused. */
function sound(egress: Egress): SpecifiedEgress {
  const { metadata, spec } = egress;
  const refused = (why: string): EgressError =>
    new EgressError("invalid", `Egress ${metadata.namespace}/${metadata.name} cannot be had: ${why}`);
  if (spec === undefined) throw refused("spec: it has none; give it spec.destinations");
  const faults = podSpecFaults(spec.template?.spec).map(({ field, message }) => `${field}: ${message}`);
  if (faults.length > 0) throw refused(faults.join("; "));
  return { ...egress, spec };
}

/** Runs a step to its end, and resolves to its failure, so that others are done all the same. An absent API server ends all at once. */
async function settle(step: () => Promise<void>): Promise<ExpectedError | undefined> {
  try {
    await step();
    return undefined;
  } catch (error) {
    if (!(error instanceof ExpectedError) || isAway(error)) throw error;
    return error;
  }
}

function isOwned(object: KubeObject, egress: Egress): boolean {
  return (object.metadata.ownerReferences ?? []).some(({ uid }) => uid === egress.metadata.uid);
}

/** Throws for an object of the name that is not the Egress's. One with all its labels and without an owner has lost its reference, and is. */
function refuseForeign<T extends KubeObject>(type: ResourceType<T>, egress: Egress, { metadata }: T): void {
  const { name, namespace } = egress.metadata;
  const owner = (metadata.ownerReferences ?? []).find(({ controller }) => controller === true);
  if (owner?.uid === egress.metadata.uid) return;
  const isLabelled = Object.entries(egressLabels(name)).every(([key, value]) => metadata.labels?.[key] === value);
  if (owner === undefined && isLabelled) return;
  const whose =
    owner === undefined ? "does not belong to it" : `belongs to ${owner.kind} ${owner.name} (uid ${owner.uid})`;
  throw new EgressError(
    "taken",
    `Egress ${namespace}/${name} cannot have its ${type.kind}: one of that name exists and ${whose}; delete it, or choose another name`,
  );
}

/** Kubernetes gives a pod the Secrets of its account only if the pod has none: those of an account, which somebody has put there for the routers, go before ours. Pure. */
function pulledBy(account: ServiceAccount | undefined, router: RouterSettings): RouterSettings {
  return (account?.imagePullSecrets ?? []).length === 0 ? router : { ...router, pullSecrets: [] };
}
