/**
 * A small kubelet for labs: pods of one node become network namespaces with a real process, attached by the real CNI
 * executable. Containers, images and volumes are not its business.
 *
 * Owns: its Node and its Lease, the namespaces `isthmus-<lab>-<node>-<id>` and the processes in them, the status of its node's pods, commands that are
 * run in them for `kubectl exec`.
 * Refuses to know: how networks are made.
 */
export { CniCallError, type CniPluginSettings, type CniRunner, execCni } from "./cni-exec.ts";
export {
  EXEC_PROTOCOLS,
  ExecError,
  type ExecErrorCode,
  type ExecPlace,
  type ExecRequest,
  type ExecServerOptions,
  serveExec,
} from "./exec/index.ts";
export { Heartbeat, type HeartbeatDeps } from "./heartbeat.ts";
export { Kubelet, type KubeletDeps, type KubeletOptions, NETNS_ANNOTATION } from "./kubelet.ts";
export { type Capacity, machineCapacity, type NodeSettings, nodeDraft, nodeStatus } from "./node-object.ts";
