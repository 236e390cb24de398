import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import type { Node } from "#kube/client";

/** Label of the zone that a node is in. */
const ZONE_LABEL = "topology.kubernetes.io/zone";

/** What the proxy reads of its Node. */
export interface NodeNetwork {
  /** At most one of each family; the primary one first. Empty where the Node has none yet. */
  readonly addresses: readonly IpAddress[];
  readonly zone: string | undefined;
  readonly podCIDRs: readonly Cidr[];
}

/** Pure (docs/spec/service-proxy.md#2.10): InternalIPs, then ExternalIPs; the first is primary, then the next one of the other family. */
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

/** What is known of a Node that was not read yet. */
export function unknownNode(bindAddress: IpAddress | undefined): NodeNetwork {
  return { addresses: bindAddress === undefined ? [] : [bindAddress], zone: undefined, podCIDRs: [] };
}

/** One that was deleted and made again has no addresses and ranges yet; the machine has those that were known. Pure. */
export function keepKnown(state: NodeNetwork, known: NodeNetwork): NodeNetwork {
  return {
    ...state,
    addresses: state.addresses.length > 0 ? state.addresses : known.addresses,
    podCIDRs: state.podCIDRs.length > 0 ? state.podCIDRs : known.podCIDRs,
  };
}

/** The address of a family. */
export function addressOf(state: NodeNetwork, family: IpFamily): IpAddress | undefined {
  return state.addresses.find((address) => address.family === family);
}
