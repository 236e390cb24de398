import type { Health } from "#base/health";
import type { InformerHealth } from "#kube/informer";

/**
 * Adds a line of `/readyz` for the objects that an informer watches: not ready until the first list was read. If the API server cannot be
 * reached later, the program stays ready.
 */
export function informerHealth(health: Health, plural: string): (state: InformerHealth) => void {
  const part = health.part(`watch-${plural}`);
  return (state) => (state.state === "ready" ? part.ok() : part.degraded(state.error));
}
