import { isPluggable } from "#cloud/vpc";
import type { NicClaim, NicStatus } from "#kube/nic";

/** The node on which a pod's ports have to be. */
export interface NodePlace {
  readonly nodeName: string;
}

/** The state of a claim at one of the two gates. */
export type GateState =
  /** In the order of the pod. */
  | { readonly state: "open"; readonly nics: readonly NicStatus[] }
  | { readonly state: "waiting"; readonly nics: readonly NicStatus[] }
  /** Another try changes nothing before the pod is replaced. */
  | { readonly state: "failed"; readonly nics: readonly NicStatus[] };

/** Reasons that no time heals (docs/spec/vpc-nics.md#12). */
const TERMINAL_REASONS: ReadonlySet<string> = new Set([
  "IpNotInSubnet",
  "IpIsGateway",
  "PortMismatch",
  "PortNotInVpc",
  "BadRequest",
]);

/** The NICs in the order of the pod; one without a status is unknown. */
export function orderedNics({ spec, status }: NicClaim): readonly NicStatus[] {
  return spec.nics.map(({ name }) => status?.nics?.find((nic) => nic.name === name) ?? { name, state: "Unknown" });
}

/** The gate before the work of ADD: every port is known and bound to this node (docs/spec/vpc-nics.md#0). Pure. */
export function plumbable(claim: NicClaim, place: NodePlace): GateState {
  if (claim.metadata.deletionTimestamp !== undefined) return { state: "waiting", nics: orderedNics(claim) };
  return gate(claim, (nic) => isPlumbable(claim, nic, place));
}

/**
 * The gate before the return of ADD: the provider has told that every port is active. `names` are the NICs of the ADD: others may have come meanwhile,
 * and are plugged after it. Pure.
 */
export function active(claim: NicClaim, names: ReadonlySet<string>): GateState {
  return gate(
    claim,
    (nic) => nic.state === "Ready",
    (nic) => names.has(nic.name),
  );
}

function gate(
  claim: NicClaim,
  isOpen: (nic: NicStatus) => boolean,
  isMeant: (nic: NicStatus) => boolean = () => true,
): GateState {
  const nics = orderedNics(claim).filter(isMeant);
  const failed = nics.filter((nic) => nic.state === "Failed" && TERMINAL_REASONS.has(nic.reason ?? ""));
  if (failed.length > 0) return { state: "failed", nics: failed };
  const waiting = nics.filter((nic) => !isOpen(nic));
  return waiting.length > 0 ? { state: "waiting", nics: waiting } : { state: "open", nics };
}

/** Returns true if a NIC can be plugged on this node: its port is known and bound there. Pure. */
export function isPlumbable({ status }: NicClaim, nic: NicStatus, { nodeName }: NodePlace): boolean {
  if (nic.portID === undefined || nic.state === "Failed") return false;
  if (status?.nodeName !== undefined && status.nodeName !== nodeName) return false;
  // The host at the provider may have another name than the node; it is empty until the port is bound.
  if ((nic.host ?? "") === "") return false;
  // Alcor's agent makes a device for a bound port, and its appearance is the sign.
  if (nic.vethName !== undefined) return nic.netns !== undefined;
  return isPluggable(nic);
}
