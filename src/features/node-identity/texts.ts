import type { Identity, SeenNode, ThisHost, WaitReason } from "./types.ts";

const WAITS: Readonly<Record<WaitReason, string>> = {
  "no-node": "this Node is not in the API yet",
  "no-address":
    "this Node has no InternalIP yet, and no ExternalIP of this host; coild waits until kubelet or the cloud provider's controller writes one (if Nodes never have one here: --node-addresses=any)",
  "status-not-written":
    "the status of this Node is another machine's, or of an earlier boot; coild waits until kubelet writes it",
};

/** Pure: one sentence for operators. Empty for a Node that is this machine's. */
export function describeIdentity(identity: Identity, host: ThisHost, nodeName: string): string {
  if (identity.kind === "ours") return "";
  if (identity.kind === "waiting") return WAITS[identity.reason];
  const { other, difference } = identity;
  const verb = identity.kind === "twin" ? "another machine has" : "another machine may have";
  const parts = [
    `${verb} the node name ${nodeName} too`,
    `this one has machine id ${idOf(host.machineId)}, boot id ${idOf(host.bootId)}`,
    `Node ${nodeName} shows${identity.kind === "twin" ? ", or has shown," : ""} machine id ${idOf(other.machineId)}, boot id ${idOf(other.bootId)}, InternalIP ${addressesOf(other)}`,
  ];
  const isSameBoot = other.bootId !== "" && other.bootId === host.bootId;
  const hint =
    difference === "addresses"
      ? `, which is no address of this host${isSameBoot ? " any more, unless nodes are containers: the boot ids are the same, so look whether the host has lost it" : ""} (if InternalIPs are on no host here: --node-addresses=any)`
      : "";
  return `${parts.join("; ")}${hint}`;
}

/** The longest part of an id that is shown. */
const MAX_ID = 64;

function idOf(text: string | undefined): string {
  return text === undefined || text === "" ? "unknown" : text.slice(0, MAX_ID);
}

/** The most addresses that are shown. */
const MAX_ADDRESSES = 4;

function addressesOf({ addresses }: SeenNode): string {
  return addresses.length === 0 ? "none" : addresses.slice(0, MAX_ADDRESSES).map(idOf).join(" ");
}
