/** The objects of a large cluster, as an API server holds them: Nodes with their images, bound Pods, and blocks of both families. */
import { randomUUID } from "node:crypto";
import { Cidr } from "#base/ip";
import {
  blockCidrs,
  COIL_FINALIZER,
  NODE_LABEL,
  POOL_ANNOTATION,
  POOL_LABEL,
  parsePool,
  REQUEST_LABEL,
} from "#kube/coil";
import type { SeedObject } from "#lab/api-server";

/** The node of the only `coild`. */
export const OUR_NODE = "bench-node";
/** The pool of all blocks. */
export const POOL = "default";
/** The namespace of our node's pods. */
export const OUR_NAMESPACE = "ns-0";
/** Addresses of a block: 2^5. */
export const BLOCK_ADDRESSES = 32;
/** The pool's subnets: 131,072 blocks in both families. */
export const POOL_SPEC = {
  blockSizeBits: 5,
  subnets: [{ ipv4: "10.64.0.0/10", ipv6: "fd10:64::/106" }],
};
/** The link of each node, on which all nodes are neighbours. */
export const UPLINK = { ipv4: Cidr.parse("172.16.0.0/12"), ipv6: Cidr.parse("fd00:172::/64") };
const NAMESPACES = 500;
/** A kubelet reports at most 50 images. */
const IMAGES = Array.from({ length: 50 }, (_, at) => ({
  names: [
    `registry.example/team-${at}/service-${at}@sha256:${"0123456789abcdef".repeat(4)}`,
    `registry.example/team-${at}/service-${at}:v1.${at}.0`,
  ],
  sizeBytes: 50_000_000 + at,
}));
const LAYOUT = parsePool(POOL_SPEC);

/** The size of the cluster. */
export interface Sizes {
  readonly nodes: number;
  readonly pods: number;
  readonly blocks: number;
}

/** The name of a simulated node. */
export const nodeName = (at: number): string => `node-${at}`;

/** A Node as a kubelet reports it, some 13 KiB of JSON. */
export function nodeObject(name: string, at: number): SeedObject {
  const addresses = [UPLINK.ipv4, UPLINK.ipv6].map((cidr) => ({
    type: "InternalIP",
    address: cidr.subnet(cidr.base.bits, at + 1).base.toString(),
  }));
  const condition = (type: string, status: string, reason: string) => ({
    type,
    status,
    reason,
    message: `kubelet reports ${reason}`,
    lastHeartbeatTime: "2026-01-01T00:00:00Z",
    lastTransitionTime: "2026-01-01T00:00:00Z",
  });
  const capacity = {
    cpu: "64",
    memory: "263856604Ki",
    pods: "110",
    "ephemeral-storage": "959786032Ki",
    "hugepages-2Mi": "0",
  };
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: {
      name,
      labels: {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": `zone-${at % 3}`,
      },
      annotations: { "node.alpha.kubernetes.io/ttl": "300" },
    },
    spec: { providerID: `example:///zone-${at % 3}/${name}` },
    status: {
      addresses: [...addresses, { type: "Hostname", address: name }],
      capacity,
      allocatable: capacity,
      conditions: [
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID"),
        condition("Ready", "True", "KubeletReady"),
      ],
      nodeInfo: {
        machineID: name,
        systemUUID: name,
        bootID: name,
        kernelVersion: "6.1.0-40-amd64",
        osImage: "Debian GNU/Linux 12 (bookworm)",
        containerRuntimeVersion: "containerd://2.1.0",
        kubeletVersion: "v1.34.0",
        kubeProxyVersion: "v1.34.0",
        operatingSystem: "linux",
        architecture: "amd64",
      },
      images: IMAGES,
      daemonEndpoints: { kubeletEndpoint: { Port: 10_250 } },
    },
  };
}

const CONTAINERS = [
  {
    name: "main",
    image: "registry.example/team-0/service-0:v1.0.0",
    env: Array.from({ length: 10 }, (_, at) => ({ name: `SETTING_${at}`, value: `value ${at}` })),
    resources: { requests: { cpu: "100m", memory: "128Mi" }, limits: { memory: "256Mi" } },
    volumeMounts: [{ name: "token", mountPath: "/var/run/secrets/kubernetes.io/serviceaccount", readOnly: true }],
    imagePullPolicy: "IfNotPresent",
  },
];

/** A Pod that is bound to a node. */
export function podObject(namespace: string, name: string, node: string): SeedObject {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, namespace, labels: { app: "bench" } },
    spec: { nodeName: node, containers: CONTAINERS, serviceAccountName: "default", restartPolicy: "Always" },
  };
}

/** A block of the pool, given to a node in answer to a request that does not exist any more. */
export function blockObject(at: number, node: string, poolUid: string): SeedObject {
  const { ipv4, ipv6 } = blockCidrs(LAYOUT, at) ?? {};
  const owner = { apiVersion: "coil.cybozu.com/v2", kind: "AddressPool", name: POOL, uid: poolUid };
  return {
    apiVersion: "coil.cybozu.com/v2",
    kind: "AddressBlock",
    metadata: {
      name: `${POOL}-${at}`,
      labels: { [POOL_LABEL]: POOL, [NODE_LABEL]: node, [REQUEST_LABEL]: randomUUID() },
      finalizers: [COIL_FINALIZER],
      ownerReferences: [{ ...owner, controller: true, blockOwnerDeletion: true }],
    },
    index: at,
    ipv4: ipv4?.toString(),
    ipv6: ipv6?.toString(),
  };
}

/** Everything that the cluster has before the programs start, our node without blocks. */
export function* clusterObjects({ nodes, pods, blocks }: Sizes): Generator<SeedObject> {
  const poolUid = randomUUID();
  yield {
    apiVersion: "coil.cybozu.com/v2",
    kind: "AddressPool",
    metadata: { name: POOL, uid: poolUid, finalizers: [COIL_FINALIZER] },
    spec: POOL_SPEC,
  };
  for (let at = 0; at < NAMESPACES; at += 1)
    yield {
      apiVersion: "v1",
      kind: "Namespace",
      metadata: { name: `ns-${at}`, annotations: { [POOL_ANNOTATION]: POOL } },
      status: { phase: "Active" },
    };
  yield nodeObject(OUR_NODE, nodes);
  for (let at = 0; at < nodes; at += 1) yield nodeObject(nodeName(at), at);
  for (let at = 0; at < pods; at += 1)
    yield podObject(`ns-${at % NAMESPACES}`, `pod-${at}`, nodeName(at % Math.max(1, nodes)));
  for (let at = 0; at < blocks; at += 1) yield blockObject(at, nodeName(at % Math.max(1, nodes)), poolUid);
}
