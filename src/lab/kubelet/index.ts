/**
 * A small kubelet for labs: pods of one node become network namespaces with a real process, attached by the real CNI
 * executable. It has no containers, images and volumes.
 *
 * Owns: its Node and its Lease, the namespaces `isthmus-<lab>-pod-<node>-<id>` and the processes in them, the status of its node's pods,
 * commands that are run in them for `kubectl exec`.
 * Does not know: how networks are made.
 */
export { CniCallError, type CniPluginSettings, execChain, execCni } from "./cni-exec.ts";
export { serveExec } from "./exec/index.ts";
export { Heartbeat } from "./heartbeat.ts";
export { Kubelet, NETNS_ANNOTATION } from "./kubelet.ts";
export { machineCapacity, type NodeSettings, nodeDraft, nodeStatus } from "./node-object.ts";
