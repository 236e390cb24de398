import type { AbortOptions } from "#base/async";
import { type KubeApi, resources } from "#kube/client";
import { coilCrds } from "#kube/coil";
import type { Topology } from "#lab/topology";

const FIELD_MANAGER = "isthmus-lab";

/** The API types of the suite and the lab's Nodes, by server-side apply: repeating it changes nothing. */
export async function prepareCluster(api: KubeApi, topology: Topology, { signal }: AbortOptions): Promise<void> {
  for (const crd of coilCrds) {
    await api.patch(
      resources.customResourceDefinitions,
      { name: crd.metadata.name },
      { type: "apply", body: crd, fieldManager: FIELD_MANAGER, force: true },
      { signal },
    );
  }
  await Promise.all(topology.nodes.map((node) => applyNode(api, node.name, node.addresses.map(String), signal)));
}

async function applyNode(
  api: KubeApi,
  name: string,
  addresses: readonly string[],
  signal: AbortSignal | undefined,
): Promise<void> {
  const identity = { apiVersion: "v1", kind: "Node" };
  const labels = { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64" };
  await api.patch(
    resources.nodes,
    { name },
    { type: "apply", body: { ...identity, metadata: { name, labels } }, fieldManager: FIELD_MANAGER, force: true },
    { signal },
  );
  const status = {
    addresses: [...addresses.map((address) => ({ type: "InternalIP", address })), { type: "Hostname", address: name }],
    conditions: [readyCondition(false)],
    nodeInfo: {
      architecture: "amd64",
      bootID: "",
      containerRuntimeVersion: "isthmus-lab://1",
      kernelVersion: "",
      kubeProxyVersion: "",
      kubeletVersion: "v1.30.0-isthmus-lab",
      machineID: "",
      operatingSystem: "linux",
      osImage: "network namespace",
      systemUUID: "",
    },
  };
  // Not by apply: addresses of both families have the same type, which is the key of the list.
  await api.patch(resources.nodes, { name }, { type: "merge", body: { status } }, { subresource: "status", signal });
}

/** Makes a node schedulable: its network plugin answers. Rejects with `KubeError`. */
export async function markNodeReady(api: KubeApi, name: string, { signal }: AbortOptions): Promise<void> {
  const body = { status: { conditions: [readyCondition(true)] } };
  await api.patch(resources.nodes, { name }, { type: "merge", body }, { subresource: "status", signal });
}

function readyCondition(ready: boolean): object {
  const now = `${new Date().toISOString().slice(0, 19)}Z`;
  return {
    type: "Ready",
    status: ready ? "True" : "False",
    reason: ready ? "KubeletReady" : "KubeletNotReady",
    message: ready ? "the lab's kubelet is running" : "the network plugin does not answer yet",
    lastHeartbeatTime: now,
    lastTransitionTime: now,
  };
}
