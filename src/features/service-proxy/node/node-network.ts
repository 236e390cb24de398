import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import type { Node } from "#kube/client";

/** Label that names a node's zone. */
const ZONE_LABEL = "topology.kubernetes.io/zone";

/** Addresses, zone and podCIDRs of the Node. */
export interface NodeNetwork {
  /** At most one address of each family, the primary one first. Empty while the Node has no address. */
  readonly addresses: readonly IpAddress[];
  readonly zone: string | undefined;
  readonly podCIDRs: readonly Cidr[];
}

/**
 * Reads addresses, zone and podCIDRs from a Node (docs/spec/service-proxy.md#2.10). The first InternalIP, or else the first ExternalIP, is
 * the primary address; the next address of the other family is the secondary one. `bindAddress` replaces the primary address. Pure.
 */
export function nodeNetwork(
  node: Pick<Node, "metadata" | "spec" | "status">,
  bindAddress: IpAddress | undefined,
): NodeNetwork {
  const ofType = (type: string): IpAddress[] =>
    (node.status?.addresses ?? [])
      .filter((one) => one.type === type)
      .flatMap((one) => IpAddress.tryParse(one.address ?? "") ?? []);
  const listed = [...ofType("InternalIP"), ...ofType("ExternalIP")];
  const [primary] = bindAddress === undefined ? listed : [bindAddress];
  const secondary = listed.find(({ family }) => family !== primary?.family);
  const { podCIDRs = [], podCIDR } = node.spec ?? {};
  const cidrs = podCIDRs.length > 0 ? podCIDRs : podCIDR === undefined ? [] : [podCIDR];
  return {
    addresses: [primary, secondary].filter((address) => address !== undefined),
    zone: node.metadata.labels?.[ZONE_LABEL],
    podCIDRs: cidrs.flatMap((text) => Cidr.tryParse(text) ?? []),
  };
}

/** Stands for a Node that has not been read yet. */
export function unknownNode(bindAddress: IpAddress | undefined): NodeNetwork {
  return { addresses: bindAddress === undefined ? [] : [bindAddress], zone: undefined, podCIDRs: [] };
}

/** Fills missing addresses and podCIDRs with the known ones: a Node that was deleted and created again lacks them at first. Pure. */
export function keepKnown(state: NodeNetwork, known: NodeNetwork): NodeNetwork {
  return {
    ...state,
    addresses: state.addresses.length > 0 ? state.addresses : known.addresses,
    podCIDRs: state.podCIDRs.length > 0 ? state.podCIDRs : known.podCIDRs,
  };
}

/** The node's address in this family. */
export function addressOf(state: NodeNetwork, family: IpFamily): IpAddress | undefined {
  return state.addresses.find((address) => address.family === family);
}
