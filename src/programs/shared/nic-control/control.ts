import { hostname } from "node:os";
import { Dirty } from "#base/async";
import { systemClock } from "#base/clock";
import { isEqual } from "#base/collections";
import { ConfigError, type FlagValues } from "#base/config";
import { lookAt, watchFiles } from "#base/file";
import { repeat } from "#base/reconcile";
import {
  CLAIM_WORKERS,
  ClaimReconciler,
  type ClusterIdentity,
  clusterIdentity,
  guardedApi,
  type NicObserver,
  OrphanCollector,
  PortPoller,
} from "#features/nic-controller";
import { objectKey, resources } from "#kube/client";
import { EventRecorder, regarding } from "#kube/events";
import { CLAIM_CLUSTER_LABEL } from "#kube/nic";
import type { LeaderPart, LeadingController } from "../controller/index.ts";
import { asksForNics, type KeptNode, type KeptPod, type NicInformers } from "./cluster.ts";
import type { nicFlags } from "./flags.ts";
import type { NicMetrics } from "./metrics.ts";
import { Providers } from "./providers.ts";
import { nicRules } from "./rules.ts";

/** The pauses between the tries of a claim after failures of the API server, and their rate. */
const RETRY = { initialMs: 200, maxMs: 30_000, ratePerSecond: 50, burst: 200 };

/** The controller of NICs in a program: what its leader does with the informers of its replica. */
export function nicLeader(
  values: FlagValues<typeof nicFlags>,
  parts: () => { readonly informers: NicInformers; readonly metrics: NicMetrics },
): LeaderPart {
  return {
    lease: "nic-controller-leader",
    setUp: (leading, lease) => {
      const { informers, metrics } = parts();
      const { cluster, claims, pods, namespaces, policies, nodes } = informers;
      const { log, control, run } = leading;
      const providers = new Providers(
        { policy: cluster.policy, isLeading: () => lease.isFresh, metrics, log: log.child("provider") },
        values.credentials,
      );
      const ended = new AbortController();
      const polls = new Dirty();
      const enqueue = (key: string, delayMs = 0): void => controller.enqueueAfter(key, delayMs);
      const deps = claimDeps(leading, lease, { cluster, providers, metrics });
      const { gatherTime: gatherMs, maxBulk } = values;
      const identity = identityOf(values.clusterId, informers, log);
      const reconciler = new ClaimReconciler(deps, {
        clusterId: () => identity().id,
        signal: ended.signal,
        enqueue,
        polls,
        gatherMs,
        maxBulk,
      });
      const controller = control("nicclaim", {
        of: claims,
        on: [claims],
        after: [pods, namespaces, policies, nodes],
        workers: CLAIM_WORKERS,
        retry: RETRY,
        reconcile: (key, { signal }) => reconciler.reconcile(key, { signal }),
      });
      metrics.observe({ phases: () => reconciler.ledger.phases(), depth: () => controller.depth });
      const watching = new Restarts();
      const again = follow(informers, enqueue, () => {
        providers.reload();
        reconciler.tryAgain();
        // The files of providers follow from the policy.
        watching.restart();
      });
      const poller = new PortPoller(deps, { enqueue, ledger: reconciler.ledger, polls });
      run((signal) => poller.run({ signal }));
      run((signal) =>
        collectOrphans({ providers, deps, informers, identity, ledger: reconciler.ledger }, values, signal),
      );
      const onFiles = (): void => {
        providers.reload();
        reconciler.tryAgain();
        again();
      };
      run((signal) => watching.run(signal, (round) => watchCredentials(providers, onFiles, round)));
      run((signal) => closeAtEnd({ providers, ended }, signal));
    },
  };
}

/** The collaborators of the controller of NICs. */
function claimDeps(
  leading: LeadingController,
  lease: { readonly isFresh: boolean },
  { cluster, providers, metrics }: Pick<NicInformers, "cluster"> & { providers: Providers; metrics: NicMetrics },
) {
  const { api, log } = leading;
  return {
    api: guardedApi(api, () => lease.isFresh),
    cluster,
    rules: nicRules,
    provider: (name: string | undefined) => providers.get(name),
    observer: observerOf(leading, metrics),
    log: log.child("claim"),
    clock: systemClock,
    random: Math.random,
  };
}

/** Calls `onChange` when a file with the credentials of a provider has changed, until the signal aborts. */
function watchCredentials(providers: Providers, onChange: () => void, signal: AbortSignal): Promise<void> {
  const files = providers.files();
  return watchFiles(files, onChange, { signal, clock: systemClock, since: lookAt(files) });
}

/** Ends the requests of claims, and closes the providers, when the signal aborts. */
async function closeAtEnd(
  { providers, ended }: { readonly providers: Providers; readonly ended: AbortController },
  signal: AbortSignal,
): Promise<void> {
  const end = Promise.withResolvers<void>();
  signal.addEventListener("abort", () => end.resolve(), { once: true });
  if (!signal.aborted) await end.promise;
  ended.abort(signal.reason);
  await providers[Symbol.asyncDispose]();
}

function observerOf({ api, log, run }: LeadingController, metrics: NicMetrics): NicObserver {
  const events = new EventRecorder(api, {
    controller: "nic-controller",
    instance: hostname(),
    onLoss: ({ reason }, why) => log.debug("event lost", { reason, why }),
    clock: systemClock,
  });
  run((signal) => events.run({ signal }));
  return {
    event: ({ metadata }, { type, reason, note }) => {
      const about = { metadata: { ...metadata, annotations: {} } as KeptPod["metadata"] };
      events.record({ regarding: regarding(resources.pods, about), type, reason, note });
    },
    created: metrics.created,
    duplicates: metrics.duplicates,
    active: metrics.active,
    orphans: metrics.orphans,
  };
}

/** A task that is begun anew when what it was begun with has changed. */
class Restarts {
  #round = new AbortController();

  restart(): void {
    this.#round.abort();
  }

  /** Runs `task` until the signal aborts; its own signal aborts at each restart as well. */
  async run(signal: AbortSignal, task: (round: AbortSignal) => Promise<void>): Promise<void> {
    while (!signal.aborted) {
      this.#round = new AbortController();
      await task(AbortSignal.any([signal, this.#round.signal]));
    }
  }
}

/** Marks claims whose pods, namespaces, nodes or policy have changed. Returns what marks all pods that have no claim. */
function follow(
  { pods, claims, namespaces, nodes, policies, cluster }: NicInformers,
  enqueue: (key: string) => void,
  onPolicy: () => void,
): () => void {
  const keyOf = ({ metadata: { namespace = "", uid } }: KeptPod): string => `${namespace}/${uid}`;
  const mark = (pod: KeptPod): void => {
    if (asksForNics(pod)) enqueue(keyOf(pod));
  };
  pods.addHandler({ onAdd: mark, onUpdate: (_before, pod) => mark(pod), onDelete: mark });
  const markAll = (isMeant: (pod: KeptPod) => boolean): void => {
    for (const pod of pods.store.values()) if (isMeant(pod)) mark(pod);
  };
  namespaces.addHandler({
    onUpdate: (before, { metadata: { name }, view }) => {
      if (!isEqual(before.view, view)) markAll((pod) => pod.metadata.namespace === name);
    },
  });
  const markThoseOf = ({ metadata: { name } }: KeptNode): void => {
    for (const pod of pods.store.byIndex("node", name)) mark(pod);
  };
  nodes.addHandler({
    onAdd: markThoseOf,
    onUpdate: (before, node) => {
      if (!isEqual(before.view, node.view)) markThoseOf(node);
    },
    onDelete: markThoseOf,
  });
  // Pods that were refused have no claim, so no failure that could be tried again.
  const again = (): void =>
    markAll(({ metadata: { namespace = "", uid } }) => cluster.claim(namespace, uid) === undefined);
  const onAny = (): void => {
    onPolicy();
    again();
    for (const claim of claims.store.values()) if (claim.status?.phase === "Pending") enqueue(objectKey(claim));
  };
  policies.addHandler({ onAdd: onAny, onUpdate: onAny, onDelete: onAny });
  return again;
}

interface Collecting {
  readonly providers: Providers;
  readonly deps: ConstructorParameters<typeof OrphanCollector>[0];
  readonly informers: NicInformers;
  readonly identity: () => ClusterIdentity;
  readonly ledger: ClaimReconciler["ledger"];
}

/**
 * The id of the cluster, which is settled when it is first asked for: claims and namespaces are listed by then. It stays while this process leads.
 * Throws `ConfigError` if nothing says one.
 */
function identityOf(
  given: string | undefined,
  { claims, namespaces }: NicInformers,
  log: LeadingController["log"],
): () => ClusterIdentity {
  let settled: ClusterIdentity | undefined;
  return () => {
    if (settled !== undefined) return settled;
    const claimed = [...claims.store.values()].flatMap(({ metadata }) => metadata.labels?.[CLAIM_CLUSTER_LABEL] ?? []);
    const uid = namespaces.store.get("kube-system")?.metadata.uid;
    settled = clusterIdentity({ given, uid, claimed });
    if (settled === undefined) {
      throw new ConfigError("invalid-flags", [
        "--cluster-id: give an id, since the namespace kube-system cannot be read",
      ]);
    }
    const { id, note } = settled;
    if (note === undefined) log.info("cluster id", { id });
    else log.warn("cluster id", { id, why: note });
    return settled;
  };
}

async function collectOrphans(
  { providers, deps, informers: { claims, pods, namespaces }, identity, ledger }: Collecting,
  { gcInterval, gcMinAge, gcDryRun }: FlagValues<typeof nicFlags>,
  signal: AbortSignal,
): Promise<void> {
  await Promise.race([
    Promise.all([claims.synced, pods.synced, namespaces.synced]),
    new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true })),
  ]);
  if (signal.aborted) return;
  const { id, isUid } = identity();
  const wasOwn = (namespace: string, uid: string): boolean => ledger.hasHad(namespace, uid);
  const options = { clusterId: id, isUnique: isUid, wasOwn, minAgeMs: gcMinAge, isDryRun: gcDryRun };
  const collector = new OrphanCollector(deps, options);
  await repeat(() => collector.passAll(providers, { signal }), {
    signal,
    everyMs: gcInterval,
    clock: systemClock,
    onFailure: (error) => deps.log.warn("ports without a claim cannot be looked for", { error: error.message }),
  });
}
