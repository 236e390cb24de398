import type { AbortOptions } from "#base/async";
import { isEqual } from "#base/collections";
import { isKubeError, type KubeApi } from "#kube/client";
import { type NicClaim, type NicClaimStatus, type NicCondition, nicResources } from "#kube/nic";
import type { DeviceLoss } from "./lost-devices.ts";

/** The manager of the fields that the agent applies. */
export const FIELD_MANAGER = "nic-agent";

/** The state of a pod's NICs on the node. */
export interface PlugState {
  readonly isPlugged: boolean;
  /** The loss of devices with the last sandbox, as far as it is known. */
  readonly lost: DeviceLoss | undefined;
  /** The NICs that the node has; `undefined`: that is about to change. */
  readonly nics: NonNullable<NicClaimStatus["plugged"]>["nics"] | undefined;
}

/** The agent's part of a claim's status. */
export interface NicReport {
  /** `Plugged` and `Unplugged`; none if nothing was ever plugged, and the claim is not being deleted. */
  readonly conditions: readonly NicCondition[];
  readonly plugged?: NicClaimStatus["plugged"];
}

/**
 * The agent's part of a claim's status; `undefined` if it is right already, or nothing was ever plugged and nobody waits for a report: of a claim that is
 * being deleted the controller does, and no ADD plugs it any more; of a loss of devices it does too. Of the conditions `Plugged` and `Unplugged` exactly one is
 * true. A time of transition moves only with the status, and with a loss of devices, of which it is the time: the controller tells losses by it. Pure.
 */
export function plannedReport(
  claim: NicClaim,
  state: PlugState,
  context: { readonly nodeName: string; readonly now: number },
): NicReport | undefined {
  const before = claim.status?.conditions?.filter(({ type }) => type === "Plugged" || type === "Unplugged") ?? [];
  const conditions = plannedConditions(claim, state, context);
  const plugged = plannedPlugged(claim, state);
  if (conditions === undefined && plugged === claim.status?.plugged) return undefined;
  return { conditions: conditions ?? before, ...(plugged === undefined ? {} : { plugged }) };
}

/** The NICs that the node has, as the claim should show them; what it shows already if that is right. */
function plannedPlugged({ spec, status = {}, metadata }: NicClaim, { nics }: PlugState): NicClaimStatus["plugged"] {
  const { plugged: shown } = status;
  if (nics === undefined) return shown;
  const { generation = 0 } = metadata;
  const isLeaving = (status.nics ?? []).some(({ name }) => !spec.nics.some((nic) => nic.name === name));
  // The controller releases a port only after a report of the claim without its NIC.
  const isAwaited = isLeaving && (shown?.generation ?? 0) < generation;
  if (shown === undefined && nics.length === 0 && !isAwaited) return shown;
  if (isEqual(shown?.nics, nics) && !isAwaited) return shown;
  return { generation, nics: [...nics] };
}

/** The conditions; `undefined` if they are right already, or nothing was ever plugged and nobody waits for them. */
function plannedConditions(
  { status, metadata }: NicClaim,
  { isPlugged, lost, nics }: PlugState,
  { nodeName, now }: { readonly nodeName: string; readonly now: number },
): readonly NicCondition[] | undefined {
  const before = (type: string): NicCondition | undefined => status?.conditions?.find((one) => one.type === type);
  const isAwaited = metadata.deletionTimestamp !== undefined && nics !== undefined;
  const loss = isPlugged ? undefined : lost;
  if (!isPlugged && before("Plugged") === undefined && !isAwaited && loss === undefined) return undefined;
  const time = timeText(loss?.at ?? now);
  const reason = isPlugged ? "Plugged" : loss === undefined ? "Unplugged" : "DeviceLost";
  const message =
    loss === undefined ? `on ${nodeName}` : `on ${nodeName}; lost with the sandbox: ${loss.names.join(", ")}`;
  const wanted = (["Plugged", "Unplugged"] as const).map((type): NicCondition => {
    const value = (type === "Plugged") === isPlugged ? "True" : "False";
    const old = before(type);
    const generation = metadata.generation;
    return {
      type,
      status: value,
      reason,
      message,
      lastTransitionTime: old?.status === value && loss === undefined ? (old.lastTransitionTime ?? time) : time,
      ...(typeof generation === "number" ? { observedGeneration: generation } : {}),
    };
  });
  const isRight = wanted.every((one) => {
    const old = before(one.type);
    if (old?.status !== one.status) return false;
    if (loss !== undefined) return old.reason === "DeviceLost" && old.lastTransitionTime === time;
    // After a restart nobody remembers a loss.
    return old.reason === one.reason || (!isPlugged && old.reason === "DeviceLost");
  });
  return isRight ? undefined : wanted;
}

/** An instant in whole seconds, as conditions have it. */
function timeText(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+Z$/, "Z");
}

/** Applies the agent's part of a claim's status. A claim that is gone needs none, nor does one that was made again. Rejects with `KubeError`. */
export async function applyReport(
  api: Pick<KubeApi, "patch">,
  { metadata }: NicClaim,
  status: NicReport,
  options: AbortOptions,
): Promise<void> {
  const { name, namespace, uid } = metadata;
  const type = nicResources.nicClaims;
  const body = { apiVersion: "isthmus.dev/v1alpha1", kind: type.kind, metadata: { name, uid }, status };
  try {
    await api.patch(
      type,
      { name, ...(namespace === undefined ? {} : { namespace }) },
      { type: "apply", fieldManager: FIELD_MANAGER, force: true, body },
      { ...options, subresource: "status" },
    );
  } catch (error) {
    if (!isKubeError(error, "not-found", "conflict")) throw error;
  }
}
