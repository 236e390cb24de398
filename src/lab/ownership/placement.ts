import type { Pod } from "#kube/client";
import { LAB_LABEL, type LabIdentity, RUN_LABEL } from "./identity.ts";

/** A taint of a Node. */
export interface Taint {
  readonly key: string;
  readonly value: string;
  readonly effect: "NoSchedule";
}

/** Pure: keeps the cluster's own pods off the lab's Nodes. None on the lab's own API server: there are no other pods. */
export function nodeTaints({ lab, isGuest }: LabIdentity): readonly Taint[] {
  return isGuest ? [{ key: LAB_LABEL, value: lab, effect: "NoSchedule" }] : [];
}

/** Pure: the part of a pod's `spec` that brings it to the lab's Nodes, and spreads it over them. `labels` select its peers. */
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
    // Nothing in a lab's pod speaks with the API server.
    automountServiceAccountToken: false,
  };
}

/**
 * Pure: whether a pod on a Node of the lab is for the lab to run. One that names the taint is; a pod of a DaemonSet that tolerates every
 * taint there is, without naming one, is not: it waits until the Node has gone.
 */
export function isForLab({ isGuest }: LabIdentity, { spec }: Pick<Pod, "spec">): boolean {
  return !isGuest || spec?.tolerations?.some(({ key }) => key === LAB_LABEL) === true;
}
