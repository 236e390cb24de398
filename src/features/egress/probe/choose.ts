import { createHash } from "node:crypto";
import type { RouterVerdict } from "./witness.ts";

/** A router of an Egress, as the choice of a client's router needs it. */
export interface ServingRouter {
  /** Unique among the routers of the Egress. */
  readonly id: string;
  /** True if its Service sends new flows to it: the pod is ready and not being deleted. */
  readonly isReady: boolean;
  readonly verdict: RouterVerdict;
}

/**
 * Pure: the router to which a client sends its tunnel itself, or `undefined`: the Service chooses. That is so while every ready router lives, and while none has
 * answers: then nothing better is known. A router that returns serves only where none lives. `current`: the router that has the client's flows, which keeps them if it
 * serves. Other clients spread over the serving routers by their id, and the end of one moves its own clients alone. `stays`: the client was moved to `current`, and the
 * router that it left is gone: it stays while `current` lives, since the Service could send its connections elsewhere.
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
  const living = ready.filter(({ verdict }) => !isAway(verdict));
  const serving = living.length > 0 ? living : ready.filter(({ verdict }) => verdict === "returning");
  const kept = serving.find(({ id }) => id === current);
  if (living.length === ready.length) return stays ? kept : undefined;
  if (kept !== undefined) return kept;
  const proven = serving.filter(({ verdict }) => verdict !== "unproven");
  return (proven.length > 0 ? proven : serving)
    .map((router) => ({ router, weight: weightOf(client, router.id) }))
    .toSorted((a, b) => (a.weight < b.weight ? -1 : 1))[0]?.router;
}

/** Pure: whether clients leave a router. */
export function isAway(verdict: RouterVerdict): boolean {
  return verdict === "dead" || verdict === "returning";
}

/** Rendezvous hashing: each client has an order of routers of its own. */
function weightOf(client: string, router: string): string {
  return createHash("sha1").update(`${client} ${router}`).digest("hex");
}
