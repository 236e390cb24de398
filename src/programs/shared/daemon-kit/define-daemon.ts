import { mkdirSync } from "node:fs";
import { TaskGroup, untilAborted } from "#base/async";
import { systemClock } from "#base/clock";
import { ConfigError, type FlagSet, type FlagValues } from "#base/config";
import type { Estate } from "#base/estate";
import { Health } from "#base/health";
import type { Logger } from "#base/log";
import { createRegistry, type Registry } from "#base/metrics";
import { acquireFileLock, type FileLock } from "#kernel/lock";
import type { KubeClient } from "#kube/client";
import {
  type endpointFlags,
  followServers,
  type kubeFlags,
  type logFlags,
  loggerOf,
  openClient,
} from "../daemon/index.ts";
import { leaveEstate } from "../estate/index.ts";
import { serveHealth, serveMetrics } from "../http-endpoints/index.ts";
import { restClientMetrics } from "../metrics/index.ts";
import { sayOpenFiles } from "../open-files/index.ts";
import { asideMetrics } from "../pass-record/index.ts";
import { defineProgram, EXIT, type Privileges, type Program, requirePrivileges } from "../program/index.ts";
import { type Part, startParts } from "./part.ts";

/** The flags that each daemon of {@link defineDaemon} has. */
export type DaemonFlags = FlagSet & ReturnType<typeof endpointFlags> & typeof kubeFlags & typeof logFlags;
type CommonValues = FlagValues<ReturnType<typeof endpointFlags> & typeof kubeFlags & typeof logFlags>;

/** The furniture of a daemon before anybody can ask it. */
export interface DaemonStart<Values, Environment> {
  readonly values: Values;
  readonly environment: Environment;
  readonly log: Logger;
  readonly registry: Registry;
  readonly health: Health;
  /** Aborts when the daemon is asked to end. */
  readonly signal: AbortSignal;
  /** Disposes of a resource when the daemon ends: after all parts, and in the reverse order of these calls. Returns the resource. */
  readonly use: <T extends Disposable | AsyncDisposable>(resource: T) => T;
}

/** The furniture of a daemon whose parts are made. */
export interface DaemonKit<Values, Environment, Metrics> extends DaemonStart<Values, Environment> {
  readonly api: KubeClient;
  readonly metrics: Metrics;
  /** Ends the daemon with an error that reached a callback. */
  readonly onBug: (error: unknown) => void;
  /** `work` runs once all parts have ended as they were asked to; not after a failure. */
  readonly atEnd: (work: () => Promise<void>) => void;
}

/** A daemon with a client of the API server: what it is as data, and the functions that make its parts (docs/design/node.md). */
export interface Daemon<Flags extends DaemonFlags, Environment, Metrics, Opened>
  extends Pick<Program<Flags>, "name" | "summary" | "flags" | "notes"> {
  /** Declares the program's metrics. The kit adds those of the API client and, with `--record-dir`, of objects that are set aside. */
  readonly metrics: (registry: Registry) => Metrics;
  readonly estate: (values: FlagValues<Flags>) => Estate;
  /** False: what the daemon owns ends with its network namespace, and no estate is written. Default: true. */
  readonly leavesEstate?: boolean;
  /** Reads the environment. Throws `ConfigError` naming every fault. */
  readonly environment: (env: Readonly<Record<string, string | undefined>>) => Environment;
  /** Pure: the faults of the flags; each text names the flag. */
  readonly faults?: (values: FlagValues<Flags>) => readonly string[];
  readonly privileges: Privileges;
  /** Folders that are made, mode 0755, before the lock is taken. */
  readonly folders?: (values: FlagValues<Flags>) => readonly string[];
  /** The file that a second daemon of this node waits for. */
  readonly lock?: (values: FlagValues<Flags>) => string;
  /** Opens what must be there before anybody can ask the daemon, such as the kernel. */
  readonly open: (start: DaemonStart<FlagValues<Flags>, Environment>) => Opened | Promise<Opened>;
  /** Makes the parts, and opens what they share. */
  readonly parts: (
    kit: DaemonKit<FlagValues<Flags>, Environment, Metrics>,
    opened: Opened,
  ) => readonly Part[] | Promise<readonly Part[]>;
  /** Runs after the daemon was asked to end; the parts go on until it resolves. Default: the parts end at once. */
  readonly drain?: (
    start: DaemonStart<FlagValues<Flags>, Environment>,
    options: { readonly signal: AbortSignal },
  ) => Promise<void>;
}

/** The program of a daemon. */
export function defineDaemon<const Flags extends DaemonFlags, Environment, Metrics, Opened>(
  daemon: Daemon<Flags, Environment, Metrics, Opened>,
): Program {
  const { name, summary, flags, notes = [], estate, privileges, metrics } = daemon;
  return defineProgram({
    ...{ name, summary, flags, notes, estate, privileges },
    metrics: [metrics, restClientMetrics, ...("recordDir" in flags ? [asideMetrics] : [])],
    run: ({ values, signal }) => runDaemon(daemon, { values, signal }),
  });
}

/** Runs a daemon until the signal aborts. Resolves with the exit code; rejects with the failure of the first part that fails. */
export async function runDaemon<Flags extends DaemonFlags, Environment, Metrics, Opened>(
  daemon: Daemon<Flags, Environment, Metrics, Opened>,
  { values, signal }: { readonly values: FlagValues<Flags>; readonly signal: AbortSignal },
  { env = process.env }: { readonly env?: Readonly<Record<string, string | undefined>> } = {},
): Promise<number> {
  const { name } = daemon;
  const common = values as unknown as CommonValues;
  const environment = daemon.environment(env);
  const log = loggerOf(name, common);
  const registry = createRegistry();
  const health = new Health({ log: log.child("health") });
  const faults = daemon.faults?.(values) ?? [];
  if (faults.length > 0) throw new ConfigError("invalid-flags", faults);
  requirePrivileges(daemon.privileges.task, daemon.privileges.needs);
  sayOpenFiles(log);
  await using opened = new AsyncDisposableStack();
  const use = <T extends Disposable | AsyncDisposable>(resource: T): T => opened.use(resource);
  const start = { values, environment, log, registry, health, signal, use };
  for (const folder of daemon.folders?.(values) ?? []) mkdirSync(folder, { recursive: true, mode: 0o755 });
  const lock = await lockOf(daemon, start);
  const ready = await daemon.open(start);
  if (daemon.leavesEstate !== false) leaveEstate(name, daemon.estate(values), { log, env });
  const api = use(await openClient(name, common, { registry, clock: systemClock }));
  use(followServers(name, [api], { log, env }));
  use(await serveMetrics({ registry, log, api }, common));
  use(await serveHealth({ health, log }, { address: common.healthAddr }));
  const group = daemon.drain === undefined ? new TaskGroup(signal) : new TaskGroup();
  const ends: (() => Promise<void>)[] = [];
  const kit = {
    ...start,
    api,
    metrics: daemon.metrics(registry),
    onBug: (error: unknown) => group.fail(error),
    atEnd: (work: () => Promise<void>) => void ends.push(work),
  };
  const parts = await daemon.parts(kit, ready);
  startParts([...parts, ...lockParts(lock, start), ...drainParts(daemon, start, group)], group);
  await group.wait();
  for (const work of ends) await work();
  log.info("ended");
  return EXIT.ok;
}

type AnyDaemon = Pick<Daemon<DaemonFlags, unknown, unknown, unknown>, "name">;
type AnyStart = Omit<DaemonStart<unknown, unknown>, "values">;

/** Waits until no other daemon of the node has the lock: two of them would do the same work. */
async function lockOf<Values>(
  { name, lock }: AnyDaemon & { readonly lock?: (values: Values) => string },
  { values, log, signal, use }: AnyStart & { readonly values: Values },
): Promise<FileLock | undefined> {
  if (lock === undefined) return undefined;
  const onWait = (): void => log.info(`waiting for another ${name} on this node to end`);
  return use(await acquireFileLock(lock(values), { signal, onWait }));
}

function lockParts(lock: FileLock | undefined, { health, log }: AnyStart): readonly Part[] {
  if (lock === undefined) return [];
  const part = health.part("lock", { needed: "always" });
  return [{ name: "lock", run: (at) => lock.keep({ health: part, log, clock: systemClock }, at) }];
}

/** The parts of a daemon that drains are told to end by this one. */
function drainParts<Values, Environment>(
  {
    drain,
  }: {
    readonly drain?: (
      start: DaemonStart<Values, Environment>,
      options: { readonly signal: AbortSignal },
    ) => Promise<void>;
  },
  start: DaemonStart<Values, Environment>,
  group: TaskGroup,
): readonly Part[] {
  if (drain === undefined) return [];
  const run: Part["run"] = async ({ signal: at }) => {
    await untilAborted(AbortSignal.any([start.signal, at]));
    if (at.aborted) return;
    await drain(start, { signal: at });
    group.abort();
  };
  return [{ name: "drain", run }];
}
