import type { AbortOptions } from "#base/async";
import { describeError, ExpectedError } from "#base/errors";
import type { Logger } from "#base/log";
import { resources } from "#kube/client";
import { POOL_ANNOTATION } from "#kube/coil";
import { MigratorError } from "./errors.ts";
import { manifestsOf } from "./manifests.ts";
import { planAnnotations, planV2, type V2Plan } from "./plan.ts";
import { persist, type StepDeps } from "./settle.ts";
import { uninstall } from "./uninstall.ts";
import { readV1, type V1Data, type V1Entry } from "./v1-data.ts";

/** A step is tried again for this time while the API server cannot be reached, in milliseconds. */
const PATIENCE_MS = 100_000;

export interface DumpDeps extends StepDeps {
  readonly log: Logger;
  /** Reads all keys of v1. */
  readonly read: () => Promise<readonly V1Entry[]>;
}

export interface DumpOptions extends AbortOptions {
  /** The prefix of v1's keys; it ends in a slash. */
  readonly prefix: string;
  /** True if v1's objects are deleted first. */
  readonly uninstall: boolean;
  /**
   * True if `read` returns the same data each time, because it reads an export. An export can be used only if v1 was deleted before it was
   * made.
   */
  readonly isExport: boolean;
}

/** The manifests, and the failed steps, one line each. With failures there are no manifests. */
export interface Dumped {
  readonly manifests: string;
  readonly failures: readonly string[];
}

/**
 * Removes v1, annotates namespaces, and returns v1's pools and blocks as manifests of v2 (docs/spec/pod-network.md#14). The data is read
 * and checked before any change, and is read again when v1 can no longer change it. It can be run again at any time. Rejects with {@link
 * MigratorError}, and `KubeError` if the API server refuses or cannot be reached.
 */
export async function dump(deps: DumpDeps, options: DumpOptions): Promise<Dumped> {
  const { log } = deps;
  await plan(deps, options, () => undefined);
  if (options.uninstall) {
    const { deleted, failures } = await uninstall(deps, options);
    if (failures.length > 0) return { manifests: "", failures };
    if (deleted > 0 && options.isExport) {
      const why = "Coil v1 was still installed, so it can have changed its data after the export was made";
      throw new MigratorError("stale-export", `${why}; v1 is deleted now: make the export again, and run dump again`);
    }
  } else log.warn("Coil v1 is not uninstalled; the result lacks blocks that v1 assigns after the dump");
  const { data, v2 } = await plan(deps, options, (line) => log.warn(line));
  const failures = await annotate(deps, data, options);
  if (failures.length > 0) return { manifests: "", failures };
  log.info("converted", { pools: v2.pools.length, blocks: v2.blocks.length });
  return { manifests: manifestsOf(v2), failures: [] };
}

/** Reads and plans. Rejects with `invalid-data` if there is any fault. */
async function plan(
  { api, read, clock }: DumpDeps,
  options: DumpOptions,
  onWarning: (line: string) => void,
): Promise<{ readonly data: V1Data; readonly v2: V2Plan }> {
  const { data, faults, warnings } = readV1(await read(), options.prefix);
  const nodes = await persist({ clock }, () => api.listAll(resources.nodes, options), {
    ...options,
    limitMs: PATIENCE_MS,
  });
  const v2 = planV2(data, new Set(nodes.items.map(({ metadata }) => metadata.name)));
  const all = [...faults, ...v2.faults];
  if (all.length > 0)
    throw new MigratorError("invalid-data", `the data of Coil v1 has ${all.length} faults`, { faults: all });
  if (data.pools.length === 0)
    throw new MigratorError("invalid-data", `etcd has no pool under ${options.prefix}pool/; check --etcd-prefix`);
  for (const line of [...warnings, ...v2.warnings]) onWarning(line);
  return { data, v2 };
}

/** Annotates namespaces with the pool of their name; returns a line for each namespace that could not be changed. */
async function annotate({ api, log, clock }: DumpDeps, data: V1Data, options: AbortOptions): Promise<string[]> {
  const limits = { ...options, limitMs: PATIENCE_MS };
  const { items } = await persist({ clock }, () => api.listAll(resources.namespaces, options), limits);
  const views = items.map(({ metadata }) => ({ name: metadata.name, pool: metadata.annotations?.[POOL_ANNOTATION] }));
  const { annotations, warnings } = planAnnotations(data.pools, views);
  for (const line of warnings) log.warn(line);
  const failures: string[] = [];
  for (const { namespace, pool } of annotations) {
    const body = { metadata: { annotations: { [POOL_ANNOTATION]: pool } } };
    try {
      const write = () => api.patch(resources.namespaces, { name: namespace }, { type: "merge", body }, options);
      await persist({ clock }, write, limits);
      log.info("annotated", { namespace, pool });
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      failures.push(`cannot annotate Namespace ${namespace} with pool ${pool}: ${describeError(error)}`);
    }
  }
  return failures;
}
