import { hostname } from "node:os";
import { TaskGroup } from "#base/async";
import { systemClock } from "#base/clock";
import type { ListenAddress } from "#base/config";
import { Health, type HealthPart } from "#base/health";
import type { Cidr } from "#base/ip";
import { type Logger, Repeats } from "#base/log";
import { createRegistry, type Registry } from "#base/metrics";
import {
  type KubeApi,
  type KubeObject,
  objectKey,
  type ReadForm,
  type ResourceType,
  type Selection,
} from "#kube/client";
import { EventRecorder } from "#kube/events";
import { type Cached, createInformer, type Informer, type InformerHandler } from "#kube/informer";
import { type HeldLease, type LeaderElectionOptions, runAsLeader } from "#kube/lease";
import { Controller, type ControllerOptions } from "#kube/reconciler";
import { followServers, informerHealth, type LogValues, loggerOf, openClient } from "../daemon/index.ts";
import { serveHealth, serveMetrics } from "../http-endpoints/index.ts";
import { sayOpenFiles } from "../open-files/index.ts";
import { asideMetrics, type NamedObjects, type PassRecording, recordPasses } from "../pass-record/index.ts";
import { EXIT } from "../program/index.ts";
import { BlockedTime } from "./blocked-time.ts";
import { leaderMetrics, reconcileMetrics } from "./metrics.ts";

/** The identity of a controller program, and the values of its flags `endpointFlags`, `kubeFlags`, `recordFlag` and `logFlags`. */
export interface ControllerProgram {
  /** Name of the program, used in its logs and its user agent. */
  readonly name: string;
  readonly values: LogValues & {
    readonly metricsAddr: ListenAddress;
    readonly metricsFrom: readonly Cidr[];
    readonly metricsAuthorization: boolean;
    readonly healthAddr: ListenAddress;
    readonly kubeconfig: string | undefined;
    readonly recordDir: string;
  };
  /** Default: that of Kubernetes' own controllers. */
  readonly leaseTimes?: Pick<LeaderElectionOptions, "leaseDurationMs" | "renewDeadlineMs" | "retryPeriodMs">;
  readonly signal: AbortSignal;
}

/** The work of the replica that holds a Lease. */
export interface LeaderPart {
  /** Name of the Lease in `kube-system`. */
  readonly lease: string;
  /** Makes informers and controllers, which run during leadership. `lease` tells whether another process can lead already. */
  readonly setUp: (leading: LeadingController, lease: HeldLease) => void;
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
  /** The informer of the objects that keys name: their version and events, when one of them is set aside (`--record-dir`). */
  readonly of?: NamedObjects;
  /** No key is handled before the lists of these informers either; their objects are not enqueued. */
  readonly after?: readonly Pick<WatchedObjects, "synced">[];
}

/** Which objects an informer watches, how much of them, and its name in `/readyz` (`watch-NAME`; default: the plural of the type). */
export interface WatchSelection extends Selection, ReadForm {
  readonly name?: string;
  /** True: the program is ready without it. */
  readonly isOptional?: boolean;
}

/** The tools of a controller program while it leads. Everything that is made here runs until leadership ends. */
export interface LeadingController {
  readonly api: KubeApi;
  readonly log: Logger;
  /** Registry for the program's own metrics. It already has the metrics of {@link runController}. */
  readonly registry: Registry;
  /**
   * Makes an informer, with a line of `/readyz`. In a large cluster pass a `transform` that keeps only the needed fields: a Node has 10
   * KiB, mostly names of images.
   */
  readonly watch: <T extends KubeObject, U extends Cached = T>(
    type: ResourceType<T>,
    selection?: WatchSelection & {
      readonly transform?: (object: T) => U;
      /** Indexes of the store, by name. */
      readonly indexers?: Readonly<Record<string, (object: U) => readonly string[]>>;
    },
  ) => Informer<T, U>;
  /** Makes a controller, with metrics and a log of that name. */
  readonly control: (name: string, options: ReconcilerOptions) => Controller;
  /** Runs a task of the program's own. Its failure ends the program. */
  readonly run: (task: (signal: AbortSignal) => Promise<void>) => void;
}

/** The tools of a controller program, whether it leads or waits. Everything that is made here runs until the program ends. */
export interface ControllerReplica extends LeadingController {
  readonly health: Health;
  /** Ends the program with exit code 0, as a signal does. */
  readonly end: (why: string) => void;
}

/**
 * Runs a controller program: serves probes and metrics, calls `setUpReplica`, waits for each Lease to lead, then calls the `setUp` of its part and runs
 * what that has made. Resolves with the exit code when the signal aborts, or when a Lease is lost: the program then ends and is started again.
 */
export async function runController(
  program: ControllerProgram,
  leaders: readonly LeaderPart[],
  setUpReplica: (replica: ControllerReplica) => void = () => undefined,
): Promise<number> {
  const { name, values, signal } = program;
  const log = loggerOf(name, values);
  const registry = createRegistry();
  const health = new Health({ log: log.child("health") });
  await using api = await openClient(name, values, { registry, clock: systemClock });
  await using _servers = followServers(name, [api], { log });
  // After what can be wrong with its configuration: such a fault is one line.
  sayOpenFiles(log);
  await using _metrics = await serveMetrics({ registry, log, api }, values);
  await using _health = await serveHealth({ health, log }, { address: values.healthAddr });
  const events = new EventRecorder(api, {
    controller: name,
    instance: hostname(),
    onLoss: ({ reason }, error) => log.warn("an Event could not be written to the API server", { reason, error }),
    clock: systemClock,
  });
  // Its listener is before that of the group, which ends leadership within its own.
  const recording = recordPasses({ folder: values.recordDir, signal }, { events, log, clock: systemClock });
  const parts = { api, log, registry, health, reconciles: reconcileMetrics(registry), recording };
  asideMetrics(registry)(() => recording?.passes.aside ?? []);
  const leadership = leaderMetrics(registry);
  const group = new TaskGroup(signal);
  using blocked = new BlockedTime(systemClock);
  if (recording !== undefined) group.spawn((at) => events.run({ signal: at }));
  const end = (why: string): void => {
    log.info("ending", { why });
    recording?.stop();
    group.abort(new DOMException(why, "AbortError"));
  };
  const always: Run[] = [];
  setUpReplica({ ...leadingController({ ...parts, runs: always }), health, end });
  for (const run of always) group.spawn(run);
  log.info("started");
  const outcomes: Awaited<ReturnType<typeof runAsLeader>>[] = [];
  for (const leader of leaders) {
    const election = health.part(leaders.length === 1 ? "leader-election" : `leader-election-${leader.lease}`);
    const isLeader = leadership(leader.lease);
    const lead = { ...parts, election, isLeader, blocked, leaseTimes: program.leaseTimes };
    group.spawn(async (at) => {
      outcomes.push(await runLeader(leader, lead, at));
      // If the election has failed, the program has no reason to continue.
      group.abort(new DOMException("the leader election has ended", "AbortError"));
    });
  }
  await group.wait();
  if (!outcomes.includes("lost")) return EXIT.ok;
  log.error("this process has lost a Lease and ends, because another replica may lead now");
  return EXIT.failed;
}

/** Waits for a Lease, and runs the work of its leader. Resolves when the signal aborts, or when the Lease is lost. */
function runLeader(
  { lease, setUp }: LeaderPart,
  parts: Omit<Parameters<typeof leadingController>[0], "runs"> & {
    readonly election: HealthPart;
    readonly isLeader: (isLeading: boolean) => void;
    readonly blocked: BlockedTime;
    readonly leaseTimes: ControllerProgram["leaseTimes"];
  },
  signal: AbortSignal,
): ReturnType<typeof runAsLeader> {
  const { api, log, recording, election, isLeader, blocked } = parts;
  const lead = async (leading: AbortSignal, held: HeldLease): Promise<void> => {
    // A task that fails ends leadership; so does a pass that blocks the process for longer than a Lease lives, but not one that waits while the API server does
    // not answer. After an asked for end this has no effect.
    const onEnd = (): void => recording?.passes.close({ isFault: signal.aborted || blocked.lately >= BLOCKED_MS });
    leading.addEventListener("abort", onEnd, { once: true });
    isLeader(true);
    election.ok("leading");
    const runs: Run[] = [];
    setUp(leadingController({ ...parts, runs }), held);
    const led = new TaskGroup(leading);
    for (const run of runs) led.spawn(run);
    await led.wait();
  };
  const options = { ...electionOptions(lease, { election, log }), ...parts.leaseTimes };
  return runAsLeader(api, options, { signal, lead, onStopped: () => isLeader(false) });
}

type Run = (signal: AbortSignal) => Promise<void>;

/** A Lease is lost by what blocks the process if that was so for half of the renew deadline, in milliseconds. */
const BLOCKED_MS = 5000;

function electionOptions(
  lease: string,
  { election, log }: { readonly election: HealthPart; readonly log: Logger },
): LeaderElectionOptions {
  const identity = electionIdentity();
  const repeats = new Repeats();
  let leader = "";
  // A replica that waits is ready: it serves its probes and takes over when the lease is free.
  const well = (): void => election.ok(leader === identity ? "leading" : `this replica waits: ${leader} leads`);
  return {
    namespace: "kube-system",
    name: lease,
    identity,
    onNewLeader: (seen) => {
      leader = seen;
      log.info("leader seen", { lease, identity: leader });
      well();
    },
    onRecovered: () => {
      repeats.forget("election");
      well();
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
  readonly recording: PassRecording | undefined;
  readonly runs: Run[];
}): LeadingController {
  const { api, log, registry, health, reconciles, recording, runs } = parts;
  return {
    api,
    log,
    registry,
    run: (task) => runs.push(task),
    watch: (type, { name = type.plural, isOptional = false, ...selection } = {}) => {
      if (isOptional) health.part(`watch-${name}`).ok();
      const onHealth = informerHealth(health, name);
      const steps = recording?.stepsFor(type, name);
      const informer = createInformer(api, type, { ...selection, onHealth, steps, clock: systemClock });
      runs.push((signal) => informer.run({ signal }));
      return informer;
    },
    control: (name, { on = [], after = [], of, ...options }) => {
      const ownLog = log.child(name);
      const controller = new Controller({
        name,
        ...options,
        waitFor: [...on, ...after],
        log: ownLog,
        ...reconciles(name),
        ...recording?.optionsFor(of, ownLog),
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
