import type { Pod } from "#kube/client";

type PodStatus = NonNullable<Pod["status"]>;

/** The state of a pod that the kubelet has started. */
export interface Observed {
  readonly ips: readonly string[];
  readonly hostIps: readonly string[];
  readonly sandboxId: string;
  /** Set once the pod's process has ended. */
  readonly exit: { readonly code: number | null } | undefined;
  /** True if the pod's readiness probes succeed, or if it has none. */
  readonly isReady: boolean;
  readonly nowMs: number;
}

/** Pure: the status to write, or `undefined` if the pod has it already. */
export function runningStatus(pod: Pod, observed: Observed): Record<string, unknown> | undefined {
  const { exit, ips, hostIps } = observed;
  const phase = exit === undefined ? "Running" : exit.code === 0 ? "Succeeded" : "Failed";
  const now = timestamp(observed.nowMs);
  const known = pod.status;
  const ready = phase === "Running" && observed.isReady;
  const wasReady = known?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") === true;
  const same =
    wasReady === ready &&
    known?.message === undefined &&
    known?.phase === phase &&
    known.podIP === ips[0] &&
    known.podIPs?.length === ips.length;
  if (same) return undefined;
  const state =
    phase === "Running"
      ? { running: { startedAt: now } }
      : {
          terminated: {
            exitCode: exit?.code ?? 128,
            reason: phase === "Succeeded" ? "Completed" : "Error",
            finishedAt: now,
          },
        };
  return {
    phase,
    // In a merge patch null removes: the message of an earlier failure must not stay.
    ...(known?.message === undefined ? {} : { reason: null, message: null }),
    startTime: known?.startTime ?? now,
    ...(hostIps[0] === undefined ? {} : { hostIP: hostIps[0], hostIPs: hostIps.map((ip) => ({ ip })) }),
    ...(ips[0] === undefined ? {} : { podIP: ips[0], podIPs: ips.map((ip) => ({ ip })) }),
    conditions: ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map((type) => ({
      type,
      status: ready || type === "PodScheduled" || type === "Initialized" ? "True" : "False",
      lastTransitionTime: now,
    })),
    containerStatuses: (pod.spec?.containers ?? []).map((container) => ({
      name: container.name,
      image: container.image ?? "",
      imageID: "",
      containerID: `isthmus-lab://${observed.sandboxId}`,
      ready,
      started: phase === "Running",
      restartCount: 0,
      state,
    })),
  };
}

/** Pure: the status of a pod that waits, such as for its network; `undefined` if the pod has it already. */
export function waitingStatus(
  pod: Pod,
  { reason, message }: { readonly reason: string; readonly message: string },
  nowMs: number,
): PodStatus | undefined {
  if (pod.status?.message === message) return undefined;
  return {
    phase: "Pending",
    reason,
    message,
    startTime: pod.status?.startTime ?? timestamp(nowMs),
  };
}

function timestamp(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`;
}
