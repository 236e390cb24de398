import { type AbortOptions, Backoff, retry, sleep } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import {
  findObject,
  isAway,
  isKubeError,
  type KubeApi,
  type KubeObject,
  type ObjectRef,
  type ResourceType,
} from "#kube/client";
import { MigratorError } from "./errors.ts";

/** The API server and the time, for steps that wait. */
export interface StepDeps {
  readonly api: KubeApi;
  readonly clock: Clock;
}

/** The options for removing an object. */
export interface RemoveOptions extends AbortOptions {
  /** The time after which the object counts as stuck, in milliseconds. */
  readonly limitMs: number;
  /** The object to remove. Absent: the object that has this name when it is first read. */
  readonly uid?: string | undefined;
  readonly propagationPolicy?: "Foreground" | "Background" | undefined;
  /** A finalizer of Coil, which is removed once the object is being deleted. */
  readonly finalizer?: string | undefined;
}

/** The longest pause between two checks, in milliseconds. */
const LOOK_MS = 1000;

/**
 * Deletes one object and waits until it does not exist any more, or another object has its name. Level-triggered: each check does the
 * remaining steps, so a lost answer, a conflict or a killed earlier run have no effect. Returns false if there was nothing to delete.
 * Rejects with {@link MigratorError} `stuck` after `limitMs`, and with `KubeError` at once if the server refuses for good.
 */
export async function remove<T extends KubeObject>(
  { api, clock }: StepDeps,
  type: ResourceType<T>,
  ref: ObjectRef,
  options: RemoveOptions,
): Promise<boolean> {
  const { signal, limitMs, finalizer } = options;
  const startedAt = clock.monotonic();
  const backoff = new Backoff({ initialMs: 20, maxMs: LOOK_MS, jitter: 0 });
  let uid = options.uid;
  let isSeen = false;
  let why = "the object still exists";
  for (;;) {
    try {
      const live = await findObject(api, type, ref, { signal });
      if (live === undefined || (uid !== undefined && live.metadata.uid !== uid)) return isSeen;
      isSeen = true;
      uid = live.metadata.uid;
      const { deletionTimestamp, finalizers = [] } = live.metadata;
      if (deletionTimestamp === undefined) {
        const { propagationPolicy } = options;
        await api.delete(type, ref, { signal, preconditions: { uid }, propagationPolicy });
      } else if (finalizer !== undefined && finalizers.includes(finalizer)) {
        const kept = finalizers.filter((one) => one !== finalizer);
        const { resourceVersion } = live.metadata;
        const body = { metadata: { finalizers: kept, resourceVersion } };
        await api.patch(type, ref, { type: "merge", body }, { signal });
      }
      why =
        finalizers.length === 0 ? "the pod has not ended" : `its finalizers are still there: ${finalizers.join(", ")}`;
    } catch (error) {
      // Another program has deleted the object; the next check finds nothing.
      if (!isKubeError(error, "not-found") && !isPassing(error)) throw error;
      why = describeError(error);
    }
    if (clock.monotonic() - startedAt >= limitMs)
      throw new MigratorError("stuck", `${describe(type, ref)} still exists after ${limitMs / 1000} s: ${why}`);
    await sleep(backoff.next(), { signal, clock });
  }
}

/** Repeats a call while the API server cannot be reached or is busy, for at most `limitMs`. */
export async function persist<T>(
  { clock }: Pick<StepDeps, "clock">,
  work: () => Promise<T>,
  options: AbortOptions & { readonly limitMs: number },
): Promise<T> {
  const backoff = new Backoff({ initialMs: 20, maxMs: LOOK_MS, jitter: 0 });
  return retry(work, { ...options, clock, backoff, isPassing });
}

/** `Pod default/web`. */
export function describe<T extends KubeObject>({ kind }: ResourceType<T>, { namespace, name }: ObjectRef): string {
  return namespace === undefined ? `${kind} ${name}` : `${kind} ${namespace}/${name}`;
}

/** Returns true if a later try can succeed. */
function isPassing(error: unknown): boolean {
  return isAway(error) || isKubeError(error, "conflict", "server", "too-many-requests", "gone", "bad-response");
}
