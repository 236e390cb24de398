import type { AbortOptions } from "#base/async";
import { isKubeError, type KubeApi } from "#kube/client";
import { type NicClaim, type NicCondition, nicResources } from "#kube/nic";

/** The manager of the fields that the agent applies. */
export const FIELD_MANAGER = "nic-agent";

/** What the node has of a pod's NICs. */
export interface PlugState {
  readonly isPlugged: boolean;
  /** Names of NICs whose device was lost with the sandbox. */
  readonly lost: readonly string[];
}

/**
 * The conditions `Plugged` and `Unplugged` of a claim; `undefined` if they are right already, or nothing was ever plugged. Both are written
 * together, so exactly one of them is true. A time of transition moves only with the status. Pure.
 */
export function plannedConditions(
  { status, metadata }: NicClaim,
  { isPlugged, lost }: PlugState,
  { nodeName, now }: { readonly nodeName: string; readonly now: number },
): readonly NicCondition[] | undefined {
  const before = (type: string): NicCondition | undefined => status?.conditions?.find((one) => one.type === type);
  if (!isPlugged && before("Plugged") === undefined) return undefined;
  const time = new Date(now).toISOString().replace(/\.\d+Z$/, "Z");
  const reason = isPlugged ? "Plugged" : lost.length > 0 ? "DeviceLost" : "Unplugged";
  const message =
    lost.length > 0 && !isPlugged ? `on ${nodeName}; lost with the sandbox: ${lost.join(", ")}` : `on ${nodeName}`;
  const wanted = (["Plugged", "Unplugged"] as const).map((type): NicCondition => {
    const value = (type === "Plugged") === isPlugged ? "True" : "False";
    const old = before(type);
    const generation = metadata.generation;
    return {
      type,
      status: value,
      reason,
      message,
      lastTransitionTime: old?.status === value ? (old.lastTransitionTime ?? time) : time,
      ...(typeof generation === "number" ? { observedGeneration: generation } : {}),
    };
  });
  const isRight = wanted.every((one) => {
    const old = before(one.type);
    return old?.status === one.status && (old.reason === one.reason || (!isPlugged && old.reason === "DeviceLost"));
  });
  return isRight ? undefined : wanted;
}

/** Applies conditions of a claim, as the agent's own fields. A claim that is gone needs none. Rejects with `KubeError`. */
export async function applyConditions(
  api: Pick<KubeApi, "patch">,
  { metadata }: NicClaim,
  conditions: readonly NicCondition[],
  options: AbortOptions,
): Promise<void> {
  const { name, namespace } = metadata;
  const type = nicResources.nicClaims;
  const body = { apiVersion: "isthmus.dev/v1alpha1", kind: type.kind, metadata: { name }, status: { conditions } };
  try {
    await api.patch(
      type,
      { name, ...(namespace === undefined ? {} : { namespace }) },
      { type: "apply", fieldManager: FIELD_MANAGER, force: true, body },
      { ...options, subresource: "status" },
    );
  } catch (error) {
    if (!isKubeError(error, "not-found")) throw error;
  }
}
