import { type AbortOptions, poll } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import { removeObject } from "#features/migrator";
import type { ClusterRemoval } from "#features/uninstall";
import { type KubeApi, resources } from "#kube/client";

/** The time that the removal of one object may take, and the end of all routers of Egresses or of all pods of `coild`, in milliseconds. */
const LIMIT_MS = 100_000;
/** The pause between two looks at pods, in milliseconds. */
const LOOK_MS = 1000;
/** The maximum number of pods that one poll names. */
const MAX_PODS = 500;
/** The pods of `coild`, also of Coil's manifests. */
const COILD: ListOptions = {
  namespace: "kube-system",
  labelSelector: "app.kubernetes.io/name=coil,app.kubernetes.io/component=coild",
};
/** Routers of Egresses, in every namespace. */
const ROUTERS: ListOptions = { labelSelector: "app.kubernetes.io/name=coil,app.kubernetes.io/component=egress" };

/** The options of the lists with which a wait polls pods. */
type ListOptions = Pick<NonNullable<Parameters<KubeApi["list"]>[1]>, "namespace" | "labelSelector">;

/** The cluster, and the callbacks of a removal. */
interface ClusterDeps {
  readonly api: KubeApi;
  readonly clock: Clock;
  /** Called with what is waited for: at once, and whenever that changes. */
  readonly onWait: (text: string) => void;
}

/**
 * Makes the removals in their order; one that fails does not keep the others from being made. `coild` waits until no router of an Egress is left, because
 * without it their interfaces cannot be removed. Addresses wait until no pod of `coild` is left, because it cuts pods off whose blocks are gone. If one is
 * left, or pods cannot be listed, that removal and all later ones are not made. `onDone` is called after each. Returns the failures, one line each. Rejects with the signal's reason.
 */
export async function applyCluster(
  deps: ClusterDeps,
  removals: readonly ClusterRemoval[],
  onDone: (removal: ClusterRemoval) => void,
  { signal }: AbortOptions,
): Promise<readonly string[]> {
  const { api, clock } = deps;
  const failures: string[] = [];
  const ended = new Set<ListOptions>();
  for (const removal of removals) {
    const { type, ref, finalizer, what, isAfterPrograms, isAfterRouters } = removal;
    for (const pods of [...(isAfterRouters ? [ROUTERS] : []), ...(isAfterPrograms ? [COILD] : [])]) {
      if (ended.has(pods)) continue;
      const fault = await faultOfWait(deps, pods, { signal });
      if (fault !== undefined) return [...failures, fault];
      ended.add(pods);
    }
    try {
      await removeObject({ api, clock }, type, ref, {
        ...{ signal, finalizer, limitMs: LIMIT_MS, propagationPolicy: "Background" },
      });
      onDone(removal);
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      failures.push(`${what}: ${describeError(error)}`);
    }
  }
  return failures;
}

/** Waits for the end of these pods. Returns why nothing may be removed that needs it; `undefined` if none is left. Rejects with the signal's reason. */
async function faultOfWait(deps: ClusterDeps, pods: ListOptions, options: AbortOptions): Promise<string | undefined> {
  try {
    const left = await waitForPods(deps, pods, options);
    return left.length === 0 ? undefined : leftText(pods, left);
  } catch (error) {
    if (!(error instanceof ExpectedError)) throw error;
    return `the end of pods of ${nameOf(pods)} cannot be waited for, and nothing that needs it was removed: ${describeError(error)}`;
  }
}

/** Waits until none of these pods is left. Returns those that are left at the end, as `namespace/name`. Rejects with `KubeError` and the signal's reason. */
async function waitForPods(
  { api, clock, onWait }: ClusterDeps,
  pods: ListOptions,
  { signal }: AbortOptions,
): Promise<readonly string[]> {
  let told = "";
  const look = async (): Promise<readonly string[]> => {
    const { items } = await api.list(resources.pods, { ...pods, signal, limit: MAX_PODS });
    const left = items.map(({ metadata: { namespace, name } }) => `${namespace}/${name}`);
    const text = waitText(pods, left);
    if (left.length > 0 && text !== told) onWait(text);
    told = text;
    return left;
  };
  return poll(look, {
    until: (left) => left.length === 0,
    everyMs: LOOK_MS,
    deadlineMs: LIMIT_MS,
    clock,
    signal,
  });
}

function waitText(pods: ListOptions, left: readonly string[]): string {
  const names = `${left.slice(0, 3).join(", ")}${left.length > 3 ? ", ..." : ""}`;
  return `waiting for the end of ${left.length} pods of ${nameOf(pods)} (${names})`;
}

function nameOf(pods: ListOptions): string {
  return pods === ROUTERS ? "routers of Egresses" : "coild";
}

function leftText(pods: ListOptions, [pod = ""]: readonly string[]): string {
  const after = `has not ended after ${LIMIT_MS / 1000} s`;
  return pods === ROUTERS
    ? `Pod ${pod}, a router of an Egress, ${after}, and its interface cannot be removed without coild: look at its node, or delete the Node if the machine is off`
    : `Pod ${pod} of coild ${after}, and would cut pods off whose blocks are gone: look at its node, or delete the Node if the machine is off`;
}
