import { statfsSync } from "node:fs";
import { availableParallelism, release, totalmem } from "node:os";
import type { Draft, Node } from "#kube/client";

type NodeCondition = NonNullable<NonNullable<Node["status"]>["conditions"]>[number];

/** The resources of a machine, as Kubernetes' quantities. */
export type Capacity = Readonly<Record<"cpu" | "memory" | "pods" | "ephemeral-storage", string>>;

/** The settings of a node that its kubelet reports. */
export interface NodeSettings {
  readonly name: string;
  readonly addresses: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
  readonly taints: readonly { readonly key: string; readonly value: string; readonly effect: string }[];
}

/** Pods of a lab are nearly idle processes, so a node has more of them than the 110 of other kubelets. */
const MAX_PODS = 1000;

/** The resources of this machine. Every node reports all of them, as kubelets in containers do. */
export function machineCapacity(): Capacity {
  const { blocks, bsize } = statfsSync("/");
  return {
    cpu: String(availableParallelism()),
    memory: `${Math.floor(totalmem() / 1024)}Ki`,
    pods: String(MAX_PODS),
    "ephemeral-storage": `${Math.floor((blocks * bsize) / 1024)}Ki`,
  };
}

/** Pure: the Node for its creation, without status. */
export function nodeDraft({ name, labels, taints }: NodeSettings): Draft<Node> {
  const own = { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64" };
  return {
    metadata: { name, labels: { ...own, ...labels } },
    ...(taints.length === 0 ? {} : { spec: { taints: [...taints] } }),
  };
}

/** Pure: the whole status of a node that is not ready yet. */
export function nodeStatus({ name, addresses }: NodeSettings, capacity: Capacity, nowMs: number): object {
  return {
    addresses: [...addresses.map((address) => ({ type: "InternalIP", address })), { type: "Hostname", address: name }],
    capacity,
    allocatable: capacity,
    conditions: nodeConditions({ isReady: false, sinceMs: nowMs, nowMs }),
    nodeInfo: {
      architecture: "amd64",
      bootID: "",
      containerRuntimeVersion: "isthmus-lab://1",
      kernelVersion: release(),
      kubeProxyVersion: "",
      kubeletVersion: "v1.36.0-isthmus-lab",
      machineID: "",
      operatingSystem: "linux",
      osImage: "network namespace",
      systemUUID: "",
    },
  };
}

/** Pure: the conditions in each report of a kubelet. */
export function nodeConditions(at: {
  readonly isReady: boolean;
  /** The time of the last change. */
  readonly sinceMs: number;
  readonly nowMs: number;
}): readonly NodeCondition[] {
  const times = { lastHeartbeatTime: seconds(at.nowMs), lastTransitionTime: seconds(at.sinceMs) };
  const pressure = (type: string, reason: string): NodeCondition => ({
    type,
    status: "False",
    reason,
    message: "the lab does not measure this condition",
    ...times,
  });
  return [
    pressure("MemoryPressure", "KubeletHasSufficientMemory"),
    pressure("DiskPressure", "KubeletHasNoDiskPressure"),
    pressure("PIDPressure", "KubeletHasSufficientPID"),
    {
      type: "Ready",
      status: at.isReady ? "True" : "False",
      reason: at.isReady ? "KubeletReady" : "KubeletNotReady",
      message: at.isReady ? "the lab's kubelet is running" : "the network plugin does not answer yet",
      ...times,
    },
  ];
}

function seconds(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`;
}
