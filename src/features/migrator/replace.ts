import { type AbortOptions, sleep } from "#base/async";
import { describeError, ExpectedError } from "#base/errors";
import type { Logger } from "#base/log";
import { resources } from "#kube/client";
import { type AddressBlock, COIL_FINALIZER, coilResources } from "#kube/coil";
import { BlockFinder, isReserved, type PodRef, planRelease, podsToReplace, refOf } from "./replacement.ts";
import { persist, remove, type StepDeps } from "./settle.ts";

const { addressBlocks } = coilResources;
/** The time for one pod to end, in milliseconds. */
const POD_LIMIT_MS = 600_000;
/** The time in which a pod that is starting gets its address, in milliseconds. */
const ADDRESS_LIMIT_MS = 30_000;
/** The pause between two checks of pods that are starting, in milliseconds. */
const LOOK_MS = 1000;
/** The time limit for the deletion of a block, and for an API server that cannot be reached, in milliseconds. */
const PATIENCE_MS = 100_000;
/** The number of blocks that are deleted concurrently. */
const AT_ONCE = 8;
/** The pods of `coild`. */
const COILD = "app.kubernetes.io/name=coil,app.kubernetes.io/component=coild";

export interface ReplaceOptions extends AbortOptions {
  /** The pause between two nodes on which pods were replaced, in milliseconds. */
  readonly intervalMs: number;
  /** The time for one pod to end, in milliseconds. Default: ten minutes. */
  readonly podLimitMs?: number | undefined;
  /** The time in which a pod that is starting gets its address, in milliseconds. Default: 30 s. */
  readonly addressLimitMs?: number | undefined;
}

type ReplaceDeps = StepDeps & { readonly log: Logger };

/**
 * Replaces the pods that v1 connected, node by node and one at a time, then deletes the reserved blocks of which no pod has an address any
 * more, and the pods of `coild` (docs/spec/pod-network.md#14). Returns the failed steps, one line each. It can be run again at any time,
 * and then continues with the remaining pods. Rejects with `KubeError` if the API server refuses a read, or cannot be reached.
 */
export async function replace(deps: ReplaceDeps, options: ReplaceOptions): Promise<string[]> {
  const { failures, failed } = await replacePods(deps, options);
  failures.push(...(await releaseBlocks(deps, failed, options)));
  failures.push(...(await restartCoild(deps, options)));
  return failures;
}

interface Replaced {
  readonly failures: string[];
  /** Pods that could not be replaced, by node. */
  readonly failed: ReadonlyMap<string, readonly string[]>;
}

async function replacePods(deps: ReplaceDeps, options: ReplaceOptions): Promise<Replaced> {
  const { api, clock, log } = deps;
  const { signal, intervalMs } = options;
  const failures: string[] = [];
  const failed = new Map<string, string[]>();
  const nodes = await patiently(deps, () => api.listAll(resources.nodes, { signal }), options);
  const fail = (node: string, { namespace, name }: PodRef, failure: string): void => {
    log.warn(failure);
    failures.push(failure);
    failed.set(node, [...(failed.get(node) ?? []), `${namespace}/${name}`]);
  };
  let isFirst = true;
  for (const node of nodes.items.map(({ metadata }) => metadata.name).sort()) {
    const { due, waiting } = await podsOf(deps, node, options);
    for (const pod of waiting) {
      const name = `${pod.namespace}/${pod.name}`;
      fail(node, pod, `Pod ${name} has no address yet, so replace cannot know whether v1 made it: run replace again`);
    }
    if (due.length === 0) continue;
    if (!isFirst) await sleep(intervalMs, { signal, clock });
    isFirst = false;
    log.info("replacing the pods of a node", { node, pods: due.length });
    for (const pod of due) {
      const failure = await replacePod(deps, pod, options);
      if (failure !== undefined) fail(node, pod, failure);
    }
  }
  return { failures, failed };
}

/** The pods of a node. Pods that are starting are waited for, above all the replacements of deleted pods. */
async function podsOf(
  deps: ReplaceDeps,
  node: string,
  options: ReplaceOptions,
): Promise<ReturnType<typeof podsToReplace>> {
  const { api, clock, log } = deps;
  const { signal, addressLimitMs = ADDRESS_LIMIT_MS } = options;
  const startedAt = clock.monotonic();
  for (let isFirst = true; ; isFirst = false) {
    const fieldSelector = `spec.nodeName=${node}`;
    const pods = await patiently(deps, () => api.listAll(resources.pods, { fieldSelector, signal }), options);
    const blocks = await patiently(deps, () => api.listAll(addressBlocks, { signal }), options);
    const found = podsToReplace(pods.items, new BlockFinder(blocks.items));
    const isOver = clock.monotonic() - startedAt >= addressLimitMs;
    if (found.waiting.length === 0 || isOver) return found;
    if (isFirst) log.info("waiting for the addresses of pods that start", { node, pods: found.waiting.length });
    await sleep(Math.min(LOOK_MS, addressLimitMs), { signal, clock });
  }
}

/** Returns the reason if the pod could not be replaced. */
async function replacePod(deps: ReplaceDeps, pod: PodRef, options: ReplaceOptions): Promise<string | undefined> {
  const { namespace, name, uid } = pod;
  if (pod.isMirror) {
    return `Pod ${namespace}/${name} is a static pod, which keeps its address when its object is deleted: on the node, move its manifest to another folder and back, and run replace again`;
  }
  const limitMs = options.podLimitMs ?? POD_LIMIT_MS;
  const failure = await tryTo(`delete Pod ${namespace}/${name}`, () =>
    remove(deps, resources.pods, { namespace, name }, { signal: options.signal, uid, limitMs }),
  );
  if (failure === undefined) deps.log.info("deleted", { pod: `${namespace}/${name}` });
  return failure;
}

async function releaseBlocks(
  deps: ReplaceDeps,
  failed: ReadonlyMap<string, readonly string[]>,
  options: AbortOptions,
): Promise<string[]> {
  const { api, log } = deps;
  const { signal } = options;
  const blocks = await patiently(deps, () => api.listAll(addressBlocks, { signal }), options);
  if (!blocks.items.some(isReserved)) return [];
  const pods = await patiently(deps, () => api.listAll(resources.pods, { signal }), options);
  const { release, held } = planRelease(blocks.items, pods.items, failed);
  const failures = held.map(({ block, pods: holders }) => {
    const fix = "delete these pods, and run replace again";
    return `AddressBlock ${block.metadata.name} is kept, because pods still have addresses of it: ${holders.join(", ")}; ${fix}`;
  });
  const queue = release.values();
  const work = async (): Promise<void> => {
    for (const block of queue) {
      const failure = await tryTo(`delete AddressBlock ${block.metadata.name}`, () =>
        removeBlock(deps, block, options),
      );
      if (failure !== undefined) failures.push(failure);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  log.info("reserved blocks", { deleted: release.length, kept: held.length });
  return failures;
}

function removeBlock(deps: StepDeps, { metadata }: AddressBlock, { signal }: AbortOptions): Promise<boolean> {
  const options = { signal, uid: metadata.uid, limitMs: PATIENCE_MS, finalizer: COIL_FINALIZER };
  return remove(deps, addressBlocks, { name: metadata.name }, options);
}

/** Deletes the pods of `coild`, whose DaemonSet makes new pods, which read the blocks again. */
async function restartCoild(deps: ReplaceDeps, options: ReplaceOptions): Promise<string[]> {
  const { api } = deps;
  const { signal } = options;
  const { items } = await patiently(deps, () => api.listAll(resources.pods, { labelSelector: COILD, signal }), options);
  const failures: string[] = [];
  for (const pod of items) {
    const failure = await replacePod(deps, refOf(pod), options);
    if (failure !== undefined) failures.push(failure);
  }
  return failures;
}

function patiently<T>(deps: StepDeps, work: () => Promise<T>, { signal }: AbortOptions): Promise<T> {
  return persist(deps, work, { signal, limitMs: PATIENCE_MS });
}

/** Returns the reason if it failed. */
async function tryTo(what: string, work: () => Promise<unknown>): Promise<string | undefined> {
  try {
    await work();
    return undefined;
  } catch (error) {
    if (!(error instanceof ExpectedError)) throw error;
    return `cannot ${what}: ${describeError(error)}`;
  }
}
