import { availableParallelism } from "node:os";
import { TaskGroup } from "#base/async";
import { integerFlag } from "#base/config";
import type { Logger } from "#base/log";
import { thisWorker, type Worker, WorkerGroup } from "#base/workers";
import { endWithParent } from "#kernel/process";
import { ownCommand } from "../program/index.ts";
import { type EndpointParts, serveEndpointsOf } from "./endpoints.ts";
import type { Faults } from "./flag-helpers.ts";

/** With `--workers=0` there is a worker for each processor, but no more than this: each needs some 60 MiB. */
const MAX_AUTOMATIC = 8;

/** `--workers`, of both programs. */
export const workersFlag = {
  workers: integerFlag(
    "workers",
    1,
    `processes that share the work, each with links of its own; 0: one for each processor, ${MAX_AUTOMATIC} at most`,
    { min: 0, max: 64 },
  ),
};

/** The number of workers that a value of `--workers` asks for. */
export function workerCount(given: number): number {
  return given === 0 ? Math.min(MAX_AUTOMATIC, availableParallelism()) : given;
}

/**
 * The worker that this process is; `undefined` if it is none. A worker ends with its leader by their channel, and by the kernel if it does not
 * read that: stuck, it would keep its ports from the next leader.
 */
export function ownWorker(): Worker | undefined {
  const worker = thisWorker();
  if (worker !== undefined) endWithParent();
  return worker;
}

/** Checks that a profile is not asked of several processes. */
export function checkWorkers(
  { enableProfiling, heapSnapshotSocket }: { readonly enableProfiling: boolean; readonly heapSnapshotSocket: string },
  workers: number,
  faults: Faults,
): void {
  faults.check(
    workers === 1 || !enableProfiling,
    "enable-profiling",
    "profiles one process: remove this flag, or set --workers=1",
  );
  faults.check(
    workers === 1 || heapSnapshotSocket === "",
    "heap-snapshot-socket",
    "shows the memory of one process: remove this flag, or set --workers=1",
  );
}

export interface LeadParts {
  readonly count: number;
  /** Environment variables of the workers, besides those of the leader. */
  readonly env: Readonly<Record<string, string>>;
  /** Descriptors that each worker inherits. */
  readonly descriptors: readonly number[];
  /** The ports, with the metrics and checks of the leader itself. */
  readonly endpoints: Omit<EndpointParts, "onBug">;
  readonly log: Logger;
  /** Tasks of the leader itself, which end with the signal. */
  readonly tasks?: readonly ((signal: AbortSignal, workers: WorkerGroup) => Promise<void>)[];
  /** Registers a handler that is called at each SIGHUP. */
  readonly onReload?: (handler: () => void) => void;
}

/**
 * Leads workers that run this command line: has the ports for probes, passes orders on, and ends when they have ended. A worker that ends by
 * itself ends all. Resolves with the exit code; rejects with `WorkerError`, `HealthServerError`.
 */
export async function leadWorkers(
  parts: LeadParts,
  { signal, hurry }: { readonly signal: AbortSignal; readonly hurry: AbortSignal },
): Promise<number> {
  const { count, env, descriptors, log, tasks = [] } = parts;
  const group = new TaskGroup(signal);
  let started: WorkerGroup | undefined;
  const endpoints = { ...parts.endpoints, onBug: (error: unknown) => group.fail(error) };
  await using _endpoints = await serveEndpointsOf(() => started, endpoints);
  const command = [...ownCommand(), ...process.argv.slice(2)];
  await using workers = await WorkerGroup.start({ command, count, env, descriptors }, { signal: group.signal });
  started = workers;
  // A signal while they start ends those that are there, in order.
  if (!group.signal.aborted) {
    parts.onReload?.(() => workers.tell("reload"));
    for (const task of tasks) group.spawn((at) => task(at, workers));
    group.spawn((aborted) => workers.watch({ signal: aborted }));
    log.info("workers started", { workers: count });
  }
  await group.wait();
  workers.tell("end");
  hurry.addEventListener("abort", () => workers.tell("hurry"), { once: true });
  if (hurry.aborted) workers.tell("hurry");
  return await workers.ended();
}
