import type { Dirty } from "#base/async";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import { Loop } from "#base/reconcile";
import { type NodeRoutes, RouteEvents } from "#features/routes";
import { Monitors } from "#kernel/monitor";
import type { NetNs } from "#kernel/net";

/** The kernel reports the loss of a link route by route: a comparison waits this long for the rest, in milliseconds. */
const COALESCE_MS = 20;
/** After a rest this number of comparisons are at once; then each waits `EVERY_MS` for the next, as with 40,000 routes each takes 0.2 s. */
const BURST = 4;
const EVERY_MS = 1000;
/** Longest time without a comparison of this kind, in milliseconds: those on the timer do not depend on it. */
const IDLE_MS = 3_600_000;

/**
 * Has all routes compared, or single ones set again, at a bounded rate, as soon as an event of the kernel says that some may be gone or may be
 * possible now, until the signal aborts. When the kernel's events cannot be read any more, that is logged, and comparisons on the timer go on.
 */
export async function watchRoutes(
  parts: {
    readonly netns: NetNs;
    readonly routes: Pick<NodeRoutes, "wants" | "isBehind" | "links" | "compareNext" | "setNext">;
    readonly place: { readonly table: number; readonly protocol: number };
    readonly dirty: Dirty;
    readonly clock: Clock;
    readonly log: Logger;
  },
  { signal }: { readonly signal: AbortSignal },
): Promise<void> {
  const { routes, clock, log } = parts;
  await using monitors = new Monitors({
    onFailure: (error) => log.error("lost routes are found by the next comparison only", { error: error.message }),
  });
  const events = new RouteEvents(parts.place);
  const pace = { minMs: EVERY_MS, burst: BURST };
  const due = new Loop({ everyMs: IDLE_MS, startsIdle: true, gatherMs: () => COALESCE_MS, pace, clock });
  let areAllDue = false;
  await using _watch = monitors.watch(parts.netns, { links: true, addresses: true, routes: true }, (event) => {
    const dueNow = events.due(event, routes);
    if (dueNow === "none") return;
    if (dueNow === "all") areAllDue = true;
    else routes.setNext(dueNow);
    due.wake("kernel event");
  });
  await due.run(
    async () => {
      if (areAllDue) routes.compareNext();
      areAllDue = false;
      parts.dirty.mark("routes lost");
    },
    { signal },
  );
}
