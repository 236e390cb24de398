import { type AbortOptions, poll } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import { removeObject } from "#features/migrator";
import type { ClusterRemoval } from "#features/uninstall";
import { type KubeApi, resources } from "#kube/client";

/** The time that the removal of one object may take, and the end of all pods of `coild`, in milliseconds. */
const LIMIT_MS = 100_000;
/** The pause between two looks at the pods of `coild`, in milliseconds. */
const LOOK_MS = 1000;
/** The pods of `coild`, also of Coil's manifests. */
const COILD = {
  namespace: "kube-system",
  labelSelector: "app.kubernetes.io/name=coil,app.kubernetes.io/component=coild",
};

/**
 * Makes the removals in their order; one that fails does not keep the others from being made. Addresses wait until no pod of `coild` is left, because it
 * cuts pods off whose blocks are gone; if one is left, addresses and API types stay. `onDone` is called after each. Returns the failures, one line each.
 * Rejects with the signal's reason.
 */
export async function applyCluster(
  { api, clock }: { readonly api: KubeApi; readonly clock: Clock },
  removals: readonly ClusterRemoval[],
  onDone: (removal: ClusterRemoval) => void,
  { signal }: AbortOptions,
): Promise<readonly string[]> {
  const failures: string[] = [];
  let isEnded = false;
  for (const removal of removals) {
    const { type, ref, finalizer, what, isAfterPrograms } = removal;
    try {
      if (isAfterPrograms && !isEnded) {
        const left = await waitForCoild({ api, clock }, { signal });
        if (left !== undefined) return [...failures, left];
        isEnded = true;
      }
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

/** Waits until no pod of `coild` is left. Returns what is left at the end. Rejects with `KubeError` and the signal's reason. */
async function waitForCoild(
  { api, clock }: { readonly api: KubeApi; readonly clock: Clock },
  { signal }: AbortOptions,
): Promise<string | undefined> {
  const [pod] = await poll(async () => (await api.list(resources.pods, { ...COILD, signal, limit: 1 })).items, {
    until: (pods) => pods.length === 0,
    everyMs: LOOK_MS,
    deadlineMs: LIMIT_MS,
    clock,
    signal,
  });
  if (pod === undefined) return undefined;
  return `Pod ${COILD.namespace}/${pod.metadata.name} of coild has not ended after ${LIMIT_MS / 1000} s, and would cut pods off whose blocks are gone: look at its node, or delete the Node if the machine is off`;
}
