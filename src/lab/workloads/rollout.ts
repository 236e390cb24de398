/** The part of a Deployment's pod that a rollout reads. */
export interface RolloutPod {
  readonly name: string;
  /** True if it was made from the current template. */
  readonly current: boolean;
  readonly ready: boolean;
  readonly deleting: boolean;
}

/** The next step. */
export interface RolloutPlan {
  readonly create: number;
  readonly delete: readonly string[];
}

/**
 * Pure: the next step of a rolling update. At most `maxSurge` pods above `replicas` exist, and at least
 * `replicas - maxUnavailable` stay ready if they were ready before.
 */
export function planRollout(
  pods: readonly RolloutPod[],
  options: { readonly replicas: number; readonly maxSurge: number; readonly maxUnavailable: number },
): RolloutPlan {
  const { replicas, maxSurge, maxUnavailable } = options;
  const alive = pods.filter((pod) => !pod.deleting);
  const current = alive.filter((pod) => pod.current);
  const old = alive.filter((pod) => !pod.current);
  const room = Math.max(0, replicas + (old.length > 0 ? maxSurge : 0) - alive.length);
  const create = Math.min(room, Math.max(0, replicas - current.length));
  const surplus = lastFirst(current, current.length - replicas);
  const kept = alive.filter((pod) => !surplus.includes(pod));
  const readyNow = kept.filter((pod) => pod.ready).length;
  const oldUnready = old.filter((pod) => !pod.ready);
  const mayGo = Math.max(0, readyNow - (replicas - maxUnavailable));
  const oldReady = lastFirst(
    old.filter((pod) => pod.ready),
    mayGo,
  );
  return { create, delete: [...surplus, ...oldUnready, ...oldReady].map((pod) => pod.name) };
}

/** Unready pods are deleted first, then the pods with the highest names. */
function lastFirst(pods: readonly RolloutPod[], count: number): RolloutPod[] {
  return [...pods]
    .sort((a, b) => Number(a.ready) - Number(b.ready) || b.name.localeCompare(a.name))
    .slice(0, Math.max(0, count));
}
