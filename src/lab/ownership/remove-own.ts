import { type AbortOptions, sleep } from "#base/async";
import type { Clock } from "#base/clock";
import {
  type Event,
  isKubeError,
  type KubeApi,
  type KubeObject,
  objectKey,
  type ResourceType,
  resources,
} from "#kube/client";
import { COIL_FINALIZER, coilCrds, coilResources, NODE_LABEL, POOL_LABEL } from "#kube/coil";
import { OwnershipError } from "./errors.ts";
import { guestIdentity, LAB_LABEL, ownSelector, RUN_LABEL } from "./identity.ts";
import { type Found, type FoundObject, type FoundType, nextRemoval, type Removal } from "./removal.ts";
import { type FoundRun, noneWithoutType } from "./survey.ts";

/** Interval of polls of the cluster, in milliseconds. */
const LOOK_MS = 200;
const EVENTS_LOOK_MS = 500;
/**
 * If nothing is removed for this time, milliseconds, `removeOwn` rejects and names the rest. A cluster's namespace controller takes some 10
 * s.
 */
const STUCK_MS = 90_000;
/** The time to wait for the cluster's Event on the deletion of a Node, in milliseconds: its node controller polls every 5 s. */
const LAST_WORDS_MS = 8000;
/** Reasons of the Events of the cluster's node controller for a new and for a deleted Node. */
const FIRST_WORD = "RegisteredNode";
const LAST_WORD = "RemovingNode";
/** Maximum number of requests at the same time. */
const AT_ONCE = 16;
/** Maximum number of names in a message. */
const MAX_NAMES = 5;

const TYPES: Readonly<Record<FoundType, ResourceType<KubeObject>>> = {
  deployments: resources.deployments,
  replicaSets: resources.replicaSets,
  services: resources.services,
  pods: resources.pods,
  blockRequests: coilResources.blockRequests,
  addressBlocks: coilResources.addressBlocks,
  addressPools: coilResources.addressPools,
  leases: resources.leases,
  nodes: resources.nodes,
  namespaces: resources.namespaces,
  events: resources.events,
  customResourceDefinitions: resources.customResourceDefinitions,
};

type Api = Pick<KubeApi, "list" | "listAll" | "patch" | "delete">;

/** A definition that stays, because other objects use it now. */
export interface KeptDefinition {
  readonly definition: string;
  readonly inUseBy: string;
}

/**
 * Removes all objects of a run on a foreign cluster, and the objects that the cluster created because of them. The programs of the lab
 * must have ended. It needs no state: objects are found by label, and by the run's names. Rejects with {@link OwnershipError}
 * `not-removed`, with `KubeError`, and with the signal's reason; it can be called again then.
 */
export async function removeOwn(
  api: Api,
  of: FoundRun,
  options: AbortOptions & { readonly clock: Clock },
): Promise<readonly KeptDefinition[]> {
  const { signal, clock } = options;
  const handedOver: KeptDefinition[] = [];
  const strays = new Set<string>();
  let left = "";
  let since = clock.monotonic();
  for (;;) {
    const found = await look(api, of, { signal });
    for (const { uid } of found.strayPods) strays.add(uid);
    const next = nextRemoval(found);
    if (next === undefined) break;
    const now = `${next.phase}: ${next.waitingFor.length}`;
    const isNews = now !== left;
    if (isNews) since = clock.monotonic();
    left = now;
    if (clock.monotonic() - since > STUCK_MS) throw stuck(of, next.phase, next.waitingFor);
    for (const step of next.steps)
      if (step.op === "hand-over") handedOver.push({ definition: step.object.name, inUseBy: step.inUseBy });
    await inTurns(next.steps, (step) => apply(api, step, { signal }));
    if (next.steps.length === 0 || !isNews) await sleep(LOOK_MS, { signal, clock });
  }
  await removeEvents(api, of, strays, { signal, clock });
  return handedOver;
}

/** Events of the cluster about the lab's Nodes and their pods. The node controller writes its last one after the Node is deleted. */
async function removeEvents(
  api: Api,
  { lab, run }: FoundRun,
  strays: ReadonlySet<string>,
  { signal, clock }: AbortOptions & { readonly clock: Clock },
): Promise<void> {
  const { prefix } = guestIdentity(lab, run);
  const isOwn = ({ regarding, note }: Event): boolean =>
    (regarding?.kind === "Node" && regarding.name?.startsWith(prefix) === true) ||
    note?.includes(prefix) === true ||
    strays.has(regarding?.uid ?? "");
  const deadline = clock.monotonic() + LAST_WORDS_MS;
  for (;;) {
    const events = (await api.listAll(resources.events, { signal })).items.filter(isOwn);
    const said = (reason: string): number =>
      new Set(events.filter((event) => event.reason === reason).map(({ regarding }) => regarding?.name)).size;
    if (said(LAST_WORD) >= said(FIRST_WORD) || clock.monotonic() >= deadline) {
      const steps = events.map(
        (event): Removal => ({ op: "delete", type: "events", object: foundObject(event), force: false }),
      );
      return inTurns(steps, (step) => apply(api, step, { signal }));
    }
    await sleep(EVENTS_LOOK_MS, { signal, clock });
  }
}

async function inTurns<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const rest = items.values();
  const worker = async (): Promise<void> => {
    for (const item of rest) await work(item);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

async function apply(api: Api, step: Removal, options: AbortOptions): Promise<void> {
  const { name, namespace, uid, resourceVersion, finalizers } = step.object;
  const ref = { name, namespace };
  try {
    if (step.op === "delete") {
      await api.delete(TYPES[step.type], ref, {
        ...options,
        preconditions: { uid },
        propagationPolicy: "Background",
        ...(step.force ? { gracePeriodSeconds: 0 } : {}),
      });
    } else if (step.op === "release") {
      const metadata = { uid, finalizers: finalizers.filter((finalizer) => finalizer !== COIL_FINALIZER) };
      await api.patch(TYPES[step.type], ref, { type: "merge", body: { metadata } }, options);
    } else {
      const metadata = { uid, resourceVersion, labels: { [LAB_LABEL]: null, [RUN_LABEL]: null } };
      await api.patch(resources.customResourceDefinitions, ref, { type: "merge", body: { metadata } }, options);
    }
  } catch (error) {
    // The object was deleted or replaced; the next poll shows which.
    if (!isKubeError(error, "not-found", "conflict")) throw error;
  }
}

async function look(api: Api, { lab, run }: FoundRun, { signal }: AbortOptions): Promise<Found> {
  const identity = guestIdentity(lab, run);
  const isOurName = (name: string | undefined): boolean => name?.startsWith(identity.prefix) === true;
  const labelled = { labelSelector: ownSelector(identity), signal };
  const [namespaces, nodes, leases, crds, pools, blocks, requests, pods] = await Promise.all([
    api.listAll(resources.namespaces, labelled),
    api.listAll(resources.nodes, labelled),
    api.listAll(resources.leases, { signal }),
    api.listAll(resources.customResourceDefinitions, labelled),
    api.listAll(coilResources.addressPools, { signal }).catch(noneWithoutType),
    api.listAll(coilResources.addressBlocks, { signal }).catch(noneWithoutType),
    api.listAll(coilResources.blockRequests, { signal }).catch(noneWithoutType),
    api.listAll(resources.pods, { signal }),
  ]);
  const own = new Set(namespaces.items.map(({ metadata }) => metadata.name));
  const within = async <T extends KubeObject>(type: ResourceType<T>): Promise<FoundObject[]> => {
    const lists = await Promise.all([...own].map((namespace) => api.listAll(type, { namespace, signal })));
    return lists.flatMap(({ items }) => items.map(foundObject));
  };
  const isLabelled = ({ metadata: { labels } }: KubeObject): boolean =>
    labels?.[LAB_LABEL] === lab && labels[RUN_LABEL] === run;
  const bound = pods.items.filter(({ spec }) => isOurName(spec?.nodeName));
  const ownPool = new Set(pools.items.filter(isLabelled).map(({ metadata }) => metadata.name));
  const isOwnBlock = ({ metadata: { labels } }: KubeObject): boolean =>
    ownPool.has(labels?.[POOL_LABEL] ?? "") || isOurName(labels?.[POOL_LABEL]) || isOurName(labels?.[NODE_LABEL]);
  return {
    deployments: await within(resources.deployments),
    replicaSets: await within(resources.replicaSets),
    services: await within(resources.services),
    pods: pods.items.filter(({ metadata }) => own.has(metadata.namespace ?? "")).map(foundObject),
    strayPods: bound.filter(({ metadata }) => !own.has(metadata.namespace ?? "")).map(foundObject),
    blockRequests: requests.items
      .filter(({ spec }) => isOurName(spec?.nodeName) || isOurName(spec?.poolName))
      .map(foundObject),
    addressBlocks: blocks.items.filter(isOwnBlock).map(foundObject),
    addressPools: pools.items.filter(isLabelled).map(foundObject),
    leases: leases.items
      .filter(
        (lease) =>
          isLabelled(lease) || (lease.metadata.namespace === "kube-node-lease" && isOurName(lease.metadata.name)),
      )
      .map(foundObject),
    nodes: nodes.items.map(foundObject),
    namespaces: namespaces.items.map(foundObject),
    customResourceDefinitions: crds.items.map(foundObject),
    foreignInstances: await foreignInstances(
      api,
      crds.items.map(({ metadata }) => metadata.name),
      { signal },
    ),
  };
}

/** For each definition the name of an object of its type; read after all objects of the lab were removed. */
async function foreignInstances(
  api: Api,
  definitions: readonly string[],
  { signal }: AbortOptions,
): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>();
  for (const type of Object.values<ResourceType<KubeObject>>(coilResources)) {
    const definition = `${type.plural}.${type.group}`;
    if (!definitions.includes(definition) || !coilCrds.some(({ metadata }) => metadata.name === definition)) continue;
    const { items } = await api.list(type, { limit: 1, signal }).catch(noneWithoutType);
    if (items[0] !== undefined) found.set(definition, `${type.kind} ${objectKey(items[0])}`);
  }
  return found;
}

function foundObject({ metadata }: KubeObject): FoundObject {
  const { name, namespace, uid, resourceVersion, deletionTimestamp, finalizers = [] } = metadata;
  return { name, namespace, uid, resourceVersion, isDeleting: deletionTimestamp !== undefined, finalizers };
}

function stuck({ lab }: FoundRun, phase: string, left: readonly FoundObject[]): OwnershipError {
  const names = left.slice(0, MAX_NAMES).map(({ name, finalizers }) => {
    return finalizers.length === 0 ? name : `${name} (finalizers ${finalizers.join(", ")})`;
  });
  const more = left.length > MAX_NAMES ? `, and ${left.length - MAX_NAMES} others` : "";
  return new OwnershipError(
    "not-removed",
    `lab ${lab}: ${phase} were not removed in time: ${names.join(", ")}${more}; isthmus lab down --name=${lab} tries again`,
  );
}
