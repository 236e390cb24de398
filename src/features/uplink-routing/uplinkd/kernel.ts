import { ExpectedError } from "#base/errors";
import type { Logger } from "#base/log";
import type { Settings } from "#base/uplink-model";
import type { NetStack } from "#kernel/net";
import type { Nft } from "#kernel/nft";
import {
  type Anchors,
  clearPortGuard,
  flushAnchors,
  GUARD_TABLE,
  hasTransparentRouting,
  removeTransparent,
  syncPortGuard,
  TRANSPARENT_TABLE,
  transparentMarks,
  wantedGuard,
} from "../guard/index.ts";
import {
  applyRouting,
  planAdditions,
  planFlush,
  planRouting,
  type RoutingMarks,
  type UplinkTables,
} from "../routing/index.ts";
import { readKernel } from "../state/index.ts";

/** The kernel ports that are used. */
export interface KernelDeps {
  readonly stack: Pick<NetStack, "links" | "addresses" | "routes" | "rules">;
  readonly nft: Nft;
}

/** The result of a pass. */
export interface KernelSync {
  readonly changes: number;
  readonly tables: UplinkTables;
  /** Errors of the parts that failed. */
  readonly errors: readonly ExpectedError[];
}

/**
 * Programs the kernel as the settings want: routing, closed ports, the pods' anchor address. An error in one part does not
 * stop the others. Throws {@link KernelError} if the listing fails.
 */
export function syncKernel(
  { stack, nft }: KernelDeps,
  settings: Settings,
  options: { readonly former: readonly RoutingMarks[]; readonly anchors: Anchors; readonly log: Logger },
): KernelSync {
  const { log, former, anchors } = options;
  const listing = readKernel(stack);
  const plan = planRouting(settings, listing, former);
  const parts = collect([
    () => {
      applyRouting(stack, plan.changes);
      if (plan.changes.length > 0) log.info("the routing of uplinks was changed", { changes: plan.changes.length });
      return plan.changes.length;
    },
    () => syncPortGuard(nft, wantedGuard(settings)),
    ...anchors.plan(listing, podListeners(settings)),
  ]);
  return { ...parts, tables: plan.tables };
}

/**
 * Makes the routes and rules that the settings want and the kernel has not; removes none. Throws {@link KernelError} if the listing fails, and
 * `RoutingError` after all changes were tried.
 */
export function addRouting(stack: KernelDeps["stack"], settings: Settings): void {
  applyRouting(stack, planAdditions(settings, readKernel(stack)));
}

/** Removes all our kernel objects; returns the number of changes. Throws the first error, after everything was tried. */
export function flushKernel({ stack, nft }: KernelDeps, settings: Settings): number {
  const listing = readKernel(stack);
  const { changes, errors } = collect([
    () => removeTransparent(stack, nft, transparentMarks(settings)),
    () => {
      const plan = planFlush(listing, settings.routing);
      applyRouting(stack, plan);
      return plan.length;
    },
    () => clearPortGuard(nft),
    ...flushAnchors(stack, listing, podListeners(settings)),
  ]);
  const [first] = errors;
  if (first !== undefined) throw first;
  return changes;
}

/** Returns the objects that {@link flushKernel} would remove, one line each; empty without any. Reads only. Throws {@link KernelError} and `NftError`. */
export function describeFlush({ stack, nft }: KernelDeps, settings: Settings): readonly string[] {
  const listing = readKernel(stack);
  const tables = [TRANSPARENT_TABLE, GUARD_TABLE].filter((own) =>
    nft.listTables(own.family).some(({ name }) => name === own.name),
  );
  const plan = planFlush(listing, settings.routing);
  const countOf = (word: string, ops: readonly string[]): readonly string[] => {
    const { length } = plan.filter(({ op }) => ops.includes(op));
    return length === 0 ? [] : [`${length} ${word} of uplinks`];
  };
  const anchors = flushAnchors(stack, listing, podListeners(settings)).length;
  return [
    ...tables.map(({ family, name }) => `nftables table ${family} ${name}`),
    ...countOf("rules", ["delete-rule", "add-rule"]),
    ...countOf("routes", ["delete-route"]),
    ...(hasTransparentRouting(stack, transparentMarks(settings)) ? ["rule and routes of the transparent mode"] : []),
    ...(anchors === 0 ? [] : [`${anchors} addresses of pod listeners`]),
  ];
}

function podListeners({ listeners }: Settings): Settings["listeners"] {
  return listeners.filter(({ role }) => role === "pod");
}

function collect(parts: readonly (() => number)[]): {
  readonly changes: number;
  readonly errors: readonly ExpectedError[];
} {
  let changes = 0;
  const errors: ExpectedError[] = [];
  for (const part of parts) {
    try {
      changes += part();
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      errors.push(error);
    }
  }
  return { changes, errors };
}
