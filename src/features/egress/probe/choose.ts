import { createHash } from "node:crypto";
import type { RouterVerdict } from "./judge.ts";

/** A router of an Egress, as the choice of a client's router needs it. */
export interface ServingRouter {
  /** Unique among the routers of the Egress. */
  readonly id: string;
  /** Whether its Service sends new flows to it: the pod is ready and not being deleted. */
  readonly isReady: boolean;
  readonly verdict: RouterVerdict;
}

/**
 * Pure: the router to which a client sends its tunnel itself, or `undefined`: the Service chooses. That is so while no ready router is dead, and while none is left that is
 * ready and not dead: then nothing better is known. `current`: the router that has the client's flows, which keeps them if it lives. Other clients spread over the living
 * routers by their id, and the end of one moves its own clients alone. `stays`: the client was moved to `current`, and the router that it left is gone: it stays while
 * `current` lives, since the Service could send its connections elsewhere.
 */
export function chooseRouter<T extends ServingRouter>(
  routers: readonly T[],
  {
    client,
    current,
    stays = false,
  }: { readonly client: string; readonly current?: string | undefined; readonly stays?: boolean },
): T | undefined {
  const ready = routers.filter(({ isReady }) => isReady);
  const living = ready.filter(({ verdict }) => verdict !== "dead");
  const kept = living.find(({ id }) => id === current);
  if (living.length === ready.length) return stays ? kept : undefined;
  const proven = living.filter(({ verdict }) => verdict === "alive");
  if (kept !== undefined) return kept;
  return (proven.length > 0 ? proven : living)
    .map((router) => ({ router, weight: weightOf(client, router.id) }))
    .toSorted((a, b) => (a.weight < b.weight ? -1 : 1))[0]?.router;
}

/** Rendezvous hashing: each client has an order of routers of its own. */
function weightOf(client: string, router: string): string {
  return createHash("sha1").update(`${client} ${router}`).digest("hex");
}
