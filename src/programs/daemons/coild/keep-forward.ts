import type { Dirty } from "#base/async";
import type { HealthPart } from "#base/health";
import type { Cidr } from "#base/ip";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";
import { ForwardPass, openIptables } from "#features/forward-pass";
import { isKernelError } from "#kernel/errors";
import { openNftElements } from "#kernel/nft-elements";

/** The interval at which others' changes of nftables are looked for, milliseconds; and after how many of these rules of the old variant are listed. */
const LOOK_MS = 1000;
const LEGACY_LOOKS = 10;
const RETRY_MS = 10_000;

/**
 * Keeps the rules by which packets of this node's pods pass iptables' FORWARD, until the signal aborts: within a second of a change of nftables or of the
 * node's blocks, and within ten of one of the old variant. A failure degrades the health part, and keeps no pod from starting.
 */
export async function keepForward(
  parts: {
    readonly pass: Pick<ForwardPass, "mayDiffer" | "hasLegacy" | "sync">;
    readonly blocks: () => readonly Cidr[];
    /** Marked when the set of this node's blocks has changed. */
    readonly dirty: Dirty;
    readonly health: HealthPart;
    readonly log: Logger;
  },
  { signal }: { readonly signal: AbortSignal },
): Promise<void> {
  const { pass, dirty, health, log } = parts;
  health.ok();
  let looks = 0;
  await repeat(
    async () => {
      const blocks = parts.blocks();
      looks += 1;
      if (!pass.mayDiffer(blocks) && (looks < LEGACY_LOOKS || !pass.hasLegacy())) return;
      looks = 0;
      for (const { family, variant } of await pass.sync(blocks))
        log.info("rules by which packets of pods pass the chain FORWARD of iptables were written or removed", {
          family: `IPv${family}`,
          variant,
        });
      health.ok();
    },
    { signal, dirty, everyMs: LOOK_MS, retryAfterMs: () => RETRY_MS, onFailure: (error) => health.degraded(error) },
  );
}

/** As {@link keepForward}, for a network namespace. A kernel without nfnetlink has no rules to write, which the health part says. */
export async function keepForwardOf(
  parts: Omit<Parameters<typeof keepForward>[0], "pass"> & { readonly netns: { readonly fd: number } },
  options: { readonly signal: AbortSignal },
): Promise<void> {
  const { netns, health } = parts;
  using opened = new DisposableStack();
  let elements: ReturnType<typeof openNftElements>;
  try {
    elements = opened.use(openNftElements(netns));
  } catch (error) {
    if (!isKernelError(error)) throw error;
    health.degraded(error);
    return;
  }
  await keepForward({ ...parts, pass: new ForwardPass({ iptables: openIptables(netns), elements }) }, options);
}
