import { ExpectedError } from "#base/errors";
import type { Logger } from "#base/log";
import type { Settings } from "#base/uplink-model";
import type { NetStack } from "#kernel/net";
import type { Nft } from "#kernel/nft";
import {
  type Anchors,
  clearPortGuard,
  flushAnchors,
  removeTransparent,
  syncPortGuard,
  transparentMarks,
  wantedGuard,
} from "../guard/index.ts";
import { applyRouting, planFlush, planRouting, type RoutingMarks, type UplinkTables } from "../routing/index.ts";
import { readKernel } from "../state/index.ts";

/** What of the kernel is programmed. */
export interface KernelDeps {
  readonly stack: Pick<NetStack, "links" | "addresses" | "routes" | "rules">;
  readonly nft: Nft;
}

/** What a pass came to. */
export interface KernelSync {
  readonly changes: number;
  readonly tables: UplinkTables;
  /** What could not be done; the rest was. */
  readonly errors: readonly ExpectedError[];
}

/**
 * Brings the kernel to what the settings want: routing, closed ports, the pods' anchor address. Trouble with one part does not
 * keep the others. Throws {@link KernelError} when not even the listing can be had.
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
      if (plan.changes.length > 0) log.info("uplink routing changed", { changes: plan.changes.length });
      return plan.changes.length;
    },
    () => syncPortGuard(nft, wantedGuard(settings)),
    ...anchors.plan(listing, podListeners(settings)),
  ]);
  return { ...parts, tables: plan.tables };
}

/** Removes everything of ours, as far as can be; how many changes that took. Throws the first refusal, when all was tried. */
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
