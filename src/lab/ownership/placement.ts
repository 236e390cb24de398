import type { Pod } from "#kube/client";
import { LAB_LABEL, type LabIdentity, RUN_LABEL } from "./identity.ts";

/** A taint of a Node. */
export interface Taint {
  readonly key: string;
  readonly value: string;
  readonly effect: "NoSchedule";
}

/** Pure: taints that keep the cluster's own pods off the lab's Nodes. None on the lab's own API server: it has no other pods. */
export function nodeTaints({ lab, isGuest }: LabIdentity): readonly Taint[] {
  return isGuest ? [{ key: LAB_LABEL, value: lab, effect: "NoSchedule" }] : [];
}

/** Pure: the part of a pod's `spec` that places it on the lab's Nodes and spreads it over them. `labels` select its peers. */
export function podPlacement(
  { lab, run, isGuest }: LabIdentity,
  labels: Readonly<Record<string, string>>,
): Readonly<Record<string, unknown>> {
  if (!isGuest) return {};
  return {
    nodeSelector: { [RUN_LABEL]: run },
    tolerations: [{ key: LAB_LABEL, operator: "Equal", value: lab, effect: "NoSchedule" }],
    topologySpreadConstraints: [
      {
        maxSkew: 1,
        topologyKey: "kubernetes.io/hostname",
        whenUnsatisfiable: "ScheduleAnyway",
        labelSelector: { matchLabels: labels },
      },
    ],
    // The pods get no service account token, because no process in them uses the API server.
    automountServiceAccountToken: false,
  };
}

/**
 * Pure: whether the lab runs a pod on its Node. It runs a pod that tolerates the taint by name. A pod of a DaemonSet that tolerates every
 * taint without a name is not run: it waits until the Node is deleted.
 */
export function isForLab({ isGuest }: LabIdentity, { spec }: Pick<Pod, "spec">): boolean {
  return !isGuest || spec?.tolerations?.some(({ key }) => key === LAB_LABEL) === true;
}
