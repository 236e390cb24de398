import type { Health } from "#base/health";
import type { InformerHealth } from "#kube/informer";

/**
 * A line of `/readyz` for what an informer watches: not ready until the first list was read. An API server that goes away later
 * leaves the program ready.
 */
export function informerHealth(health: Health, plural: string): (state: InformerHealth) => void {
  const part = health.part(`watch-${plural}`);
  return (state) => (state.state === "ready" ? part.ok() : part.degraded(state.error));
}
