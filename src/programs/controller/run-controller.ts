import { hostname } from "node:os";
import { TaskGroup } from "#base/async";
import { systemClock } from "#base/clock";
import type { ListenAddress } from "#base/config";
import { Health, type HealthPart, serveHealth, serveMetrics } from "#base/health";
import { type Logger, Repeats } from "#base/log";
import { createRegistry, type Registry } from "#base/metrics";
import { type KubeApi, type KubeObject, objectKey, type ResourceType } from "#kube/client";
import { createInformer, type Informer, type InformerHandler } from "#kube/informer";
import { type LeaderElectionOptions, runAsLeader } from "#kube/lease";
import { Controller, type ControllerOptions } from "#kube/reconciler";
import { informerHealth, type LogValues, loggerOf, openClient } from "../daemon/index.ts";
import { EXIT } from "../program/index.ts";
import { leaderMetrics, reconcileMetrics } from "./metrics.ts";

/** The identity of a controller program, and the values of its flags `endpointFlags`, `kubeFlags` and `logFlags`. */
export interface ControllerProgram {
  /** Name of the program, used in its logs and its user agent. */
  readonly name: string;
  /** Name of the Lease in `kube-system`. */
  readonly lease: string;
  readonly values: LogValues & {
    readonly metricsAddr: ListenAddress;
    readonly healthAddr: ListenAddress;
    readonly kubeconfig: string | undefined;
  };
  readonly signal: AbortSignal;
}

/** The part of an informer that a controller needs. */
interface WatchedObjects {
  readonly synced: Promise<void>;
  addHandler(handler: InformerHandler<KubeObject>): unknown;
}

/** Settings of one controller; see {@link ControllerOptions}. */
export interface ReconcilerOptions extends Pick<ControllerOptions, "reconcile" | "workers" | "retry"> {
  /** The keys of objects that these informers report as added, changed or deleted are enqueued. No key is handled before their lists. */
  readonly on?: readonly WatchedObjects[];
}

/** What a controller program works with while it leads. Everything that is made here runs until leadership ends. */
export interface LeadingController {
  readonly api: KubeApi;
  readonly log: Logger;
  /** Registry for the program's own metrics. It already has the metrics of {@link runController}. */
  readonly registry: Registry;
  /** Makes an informer, with a line of `/readyz`. */
  readonly watch: <T extends KubeObject>(type: ResourceType<T>) => Informer<T, T>;
  /** Makes a controller, with metrics and a log of that name. */
  readonly control: (name: string, options: ReconcilerOptions) => Controller;
}

/**
 * Runs a controller program: serves probes and metrics, waits to lead, then calls `setUp`, which makes informers and controllers, and runs
 * them. Resolves with the exit code when the signal aborts, or when leadership is lost: the program then starts anew.
 */
export async function runController(
  program: ControllerProgram,
  setUp: (leading: LeadingController) => void,
): Promise<number> {
  const { name, lease, values, signal } = program;
  const log = loggerOf(name, values);
  const registry = createRegistry();
  const health = new Health({ log: log.child("health") });
  await using api = await openClient(name, values, { registry, clock: systemClock });
  await using _metrics = await serveMetrics({ registry }, { address: values.metricsAddr });
  await using _health = await serveHealth({ health }, { address: values.healthAddr });
  const reconciles = reconcileMetrics(registry);
  const isLeader = leaderMetrics(registry)(lease);
  const election = health.part("leader-election");
  log.info("started");
  const end = await runAsLeader(api, electionOptions(lease, { election, log }), {
    signal,
    lead: async (leading) => {
      isLeader(true);
      election.ok("leading");
      const runs: ((signal: AbortSignal) => Promise<void>)[] = [];
      setUp(leadingController({ api, log, registry, health, reconciles, runs }));
      const group = new TaskGroup(leading);
      for (const run of runs) group.spawn(run);
      await group.wait();
    },
    onStopped: () => isLeader(false),
  });
  if (end !== "lost") return EXIT.ok;
  log.error("lost the lease; ending, because another replica may lead now");
  return EXIT.failed;
}

function electionOptions(
  lease: string,
  { election, log }: { readonly election: HealthPart; readonly log: Logger },
): LeaderElectionOptions {
  const identity = electionIdentity();
  const repeats = new Repeats();
  return {
    namespace: "kube-system",
    name: lease,
    identity,
    onNewLeader: (leader) => {
      log.info("leader seen", { identity: leader });
      // A replica that waits is ready: it serves its probes and takes over when the lease is free.
      election.ok(leader === identity ? "leading" : `waiting: ${leader} leads`);
    },
    onError: (error) => {
      election.degraded(error);
      if (repeats.isNew("election", error.message)) {
        log.warn("leader election failed, trying again", { error: error.message });
      }
    },
    clock: systemClock,
  };
}

/** `runs` receives the informers and controllers, which run during leadership, in the order in which they were made. */
function leadingController(parts: {
  readonly api: KubeApi;
  readonly log: Logger;
  readonly registry: Registry;
  readonly health: Health;
  readonly reconciles: ReturnType<typeof reconcileMetrics>;
  readonly runs: ((signal: AbortSignal) => Promise<void>)[];
}): LeadingController {
  const { api, log, registry, health, reconciles, runs } = parts;
  return {
    api,
    log,
    registry,
    watch: (type) => {
      const informer = createInformer(api, type, { onHealth: informerHealth(health, type.plural), clock: systemClock });
      runs.push((signal) => informer.run({ signal }));
      return informer;
    },
    control: (name, { on = [], ...options }) => {
      const controller = new Controller({
        name,
        ...options,
        waitFor: on,
        log: log.child(name),
        ...reconciles(name),
        clock: systemClock,
      });
      for (const informer of on) informer.addHandler(enqueueAll(controller));
      runs.push((signal) => controller.run({ signal }));
      return controller;
    },
  };
}

function enqueueAll(controller: Controller): InformerHandler<KubeObject> {
  return {
    onAdd: (object) => controller.enqueue(objectKey(object)),
    onUpdate: (_before, object) => controller.enqueue(objectKey(object)),
    onDelete: (object) => controller.enqueue(objectKey(object)),
  };
}

/** An identity for leader election: the pod's name if this process runs in a pod, and a part that each start changes. */
function electionIdentity(): string {
  return `${process.env["COIL_POD_NAME"] ?? hostname()}_${crypto.randomUUID()}`;
}
