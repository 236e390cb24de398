import { isPlumbable, isReadyWhenPlugged, type VpcPort } from "#cloud/vpc";
import type { NicStatus } from "#kube/nic";
import { bindingOf, failed, hasPort, instant, isPlumbed, settled, withoutPort } from "./nic.ts";

/** For how long a port may be down before its NIC is not ready any more, in milliseconds (docs/spec/vpc-nics.md#5.2). */
export const DOWN_MS = 30_000;

/** The result of a poll of a claim's ports. */
export interface Observation {
  /** Ports by id; status and binding are known of them. */
  readonly ports: ReadonlyMap<string, Pick<VpcPort, "id" | "status" | "binding">>;
  /** Ids of recorded ports that do not exist any more. */
  readonly missing: ReadonlySet<string>;
  /** For each port id, the time at which the port was first seen down, in milliseconds since the epoch. */
  readonly downSince: ReadonlyMap<string, number>;
}

/** The facts of a pod by which a change of its port is judged. */
export interface ObservedPod {
  /** The node has told that its interfaces are plugged. */
  readonly isPlugged: boolean;
  /** True if its sandbox has been plugged: a container may run. */
  readonly isStarted: boolean;
  /** True if the pod ends, so that ports that go down are expected. */
  readonly isEnding: boolean;
}

/** One NIC after a look at its port. Pure. */
export function observeNic(
  nic: NicStatus,
  { ports, missing, downSince }: Observation,
  { pod, now, random }: { pod: ObservedPod; now: number; random: number },
): NicStatus {
  if (nic.portID === undefined || !hasPort(nic)) return nic;
  if (missing.has(nic.portID)) return lost(nic, pod, { now, random });
  const port = ports.get(nic.portID);
  if (port === undefined) return nic;
  const { binding, status } = port;
  const seen = bindingSeen(nic, port);
  if (status === "ERROR") {
    if (seen.reason === "PortError") return seen;
    const message = `the provider says that port ${port.id} is in error`;
    return failed(seen, { reason: "PortError", message, retry: "slow" }, { now, random });
  }
  const isActive = isReadyWhenPlugged(binding) ? pod.isPlugged : status === "ACTIVE";
  if (isActive && isPlumbed(seen, undefined)) {
    if (seen.state === "Ready") return seen;
    return { ...settled(seen), state: "Ready", activeAt: seen.activeAt ?? instant(now) };
  }
  const downMs = now - (downSince.get(port.id) ?? now);
  if (status === "DOWN" && seen.state === "Ready" && !pod.isEnding && downMs >= DOWN_MS) {
    const message = `port ${port.id} has been down for ${Math.round(downMs / 1000)} s`;
    return { ...seen, state: "InProgress", reason: "PortDown", message };
  }
  return seen;
}

/** A NIC with the binding of its port, if that is another one. */
function bindingSeen(nic: NicStatus, port: Pick<VpcPort, "binding">): NicStatus {
  // The provider has bound it after all, as when the host's agent is back. No further attempt follows, so this ends the failure.
  if ((nic.reason === "BindingFailed" || nic.reason === "VifTypeUnsupported") && isPlumbable(port))
    return { ...settled(nic), ...bindingOf(port), state: "InProgress" };
  const { host, vifType } = port.binding;
  if (host === nic.host && vifType === nic.vifType) return nic;
  // What was learnt of another host would mislead the node.
  return { ...nic, host, vifType };
}

/** A port that somebody has deleted: made again for a pod that has not started, since nothing has its address yet. */
function lost(nic: NicStatus, pod: ObservedPod, when: { now: number; random: number }): NicStatus {
  if (nic.reason === "PortLost") return nic;
  const message = `port ${nic.portID} does not exist any more`;
  if (nic.createdByController === true && !pod.isStarted && !pod.isEnding) {
    return { ...withoutPort(nic), state: "InProgress", reason: "PortLost", message };
  }
  return failed(nic, { reason: "PortLost", message, retry: "never" }, when);
}
