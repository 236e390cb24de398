import { type Dirty, TaskGroup } from "#base/async";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import { Loop } from "#base/reconcile";
import type { PodNetwork } from "#features/pod-network";
import type { KernelError } from "#kernel/errors";
import { type MonitorEvent, Monitors } from "#kernel/monitor";
import type { NetNs } from "#kernel/net";

/** The kernel reports a flushed table route by route: a repair waits for this time for the remaining events, in milliseconds. */
const COALESCE_MS = 20;
/**
 * After a pause this number of repairs run without delay; later repairs have an interval of `EVERY_MS`, even if another program continues
 * to remove objects.
 */
const BURST = 6;
const EVERY_MS = 500;
/** Longest time without a repair of this kind, in milliseconds: the surveys on the timer do not depend on it. */
const IDLE_MS = 3_600_000;

/**
 * Passes the kernel's events to `network`, and marks `pods` or `exported` dirty as soon as another program has removed one of our objects,
 * at a bounded rate, until the signal aborts. When the kernel's events cannot be read any more, that is logged, and surveys continue on the
 * timer.
 */
export async function watchKernel(
  parts: {
    readonly netns: NetNs;
    readonly network: Pick<PodNetwork, "isLoss" | "isWatched" | "note">;
    readonly exportedTo: { readonly table: number; readonly protocol: number };
    readonly pods: Dirty;
    readonly exported: Dirty;
    readonly clock: Clock;
    readonly log: Logger;
  },
  options: { readonly signal: AbortSignal },
): Promise<void> {
  const { network, exportedTo, clock, log } = parts;
  const onFailure = (error: KernelError): void => {
    network.isWatched = false;
    log.error("kernel events cannot be watched: removals by other programs are found only at the next survey", {
      error: error.message,
    });
  };
  await using monitors = new Monitors({ onFailure });
  const timing = { everyMs: IDLE_MS, startsIdle: true, gatherMs: () => COALESCE_MS, clock };
  const pace = { minMs: EVERY_MS, burst: BURST };
  const pods = new Loop({ ...timing, pace });
  const exported = new Loop({ ...timing, pace });
  await using _watch = monitors.watch(
    parts.netns,
    { links: true, addresses: true, routes: true, rules: true, forwarding: true },
    (event) => {
      network.note(event);
      if (network.isLoss(event)) pods.wake("kernel event");
      if (isExportLoss(event, exportedTo)) exported.wake("kernel event");
    },
  );
  network.isWatched = true;
  // This first repair finds objects that were removed before the watch began.
  pods.wake("start");
  exported.wake("start");
  const group = new TaskGroup(options.signal);
  const marking = (dirty: Dirty) => async (): Promise<void> => {
    dirty.mark("removed by another program");
  };
  group.spawn((signal) => pods.run(marking(parts.pods), { signal }));
  group.spawn((signal) => exported.run(marking(parts.exported), { signal }));
  await group.wait();
}

function isExportLoss(event: MonitorEvent, { table, protocol }: { readonly table: number; readonly protocol: number }) {
  if (event.kind === "resync") return true;
  return (
    event.kind === "route" && event.op === "delete" && event.route.table === table && event.route.protocol === protocol
  );
}
