import type { Dirty } from "#base/async";
import type { Clock } from "#base/clock";
import type { Health } from "#base/health";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";
import { type GuardMode, removeGuard, SourceGuard } from "#features/source-guard";
import { isKernelError } from "#kernel/errors";
import { NftError, openNft } from "#kernel/nft";
import { openNftElements } from "#kernel/nft-elements";
import type { GuardKeeper } from "./guard-keeper.ts";

/** The interval at which the number of nftables' transactions is read, milliseconds: a flushed table is back within this time. */
const LOOK_MS = 2000;

/**
 * The guard that the flags want; `undefined` where they want none, and where this process cannot use nftables, which `health` then says. Without a guard, the
 * tables of an earlier run are removed. The caller disposes the result.
 */
export function openGuard(
  parts: { readonly netns: { readonly fd: number }; readonly health: Health; readonly log: Logger },
  flags: { readonly sourceGuard: GuardMode | "off"; readonly enableIpam: boolean },
): { readonly guard: SourceGuard | undefined } & Disposable {
  using opened = new DisposableStack();
  const isWanted = flags.sourceGuard !== "off" && flags.enableIpam;
  try {
    const kernel = { nft: opened.use(openNft(parts.netns)), elements: opened.use(openNftElements(parts.netns)) };
    if (isWanted) {
      const kept = opened.move();
      return { guard: new SourceGuard(kernel, { mode: flags.sourceGuard }), [Symbol.dispose]: () => kept.dispose() };
    }
    const removed = removeGuard(kernel);
    if (removed > 0) parts.log.info("the source guard's tables were removed", { tables: removed });
  } catch (error) {
    if (!(error instanceof NftError) && !isKernelError(error)) throw error;
    // A kernel without nf_tables has no tables to remove.
    if (isWanted) parts.health.part("source-guard").degraded(error);
    const text = isWanted
      ? "packets of pods are not checked: nftables cannot be used; give the kernel nf_tables, or set --source-guard=off"
      : "cannot find out whether tables of the source guard are left";
    parts.log.warn(text, { error: error.message });
  }
  return { guard: undefined, [Symbol.dispose]: () => undefined };
}

/** Marks `dirty` when another program has removed or changed the guard's tables, until the signal aborts. */
export async function watchGuard(
  parts: { readonly guard: Pick<GuardKeeper, "isDamaged">; readonly dirty: Dirty; readonly clock: Clock },
  { signal }: { readonly signal: AbortSignal },
): Promise<void> {
  await repeat(
    async () => {
      if (parts.guard.isDamaged()) parts.dirty.mark("guard damaged");
    },
    // It reports nothing: the comparison that it asks for does.
    { signal, everyMs: LOOK_MS, clock: parts.clock, onFailure: () => undefined },
  );
}
