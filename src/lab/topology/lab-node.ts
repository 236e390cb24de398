import type { IpAddress, IpFamily } from "#base/ip";

/** One node. */
export interface LabNode {
  /** The name of its Node object. */
  readonly name: string;
  /** The name of the node's namespace in `ip netns`. */
  readonly netns: string;
  readonly addresses: readonly IpAddress[];
  /** The name of the node's port of the bridge. */
  readonly port: string;
}

/** The node's address of a family. */
export function addressOfNode(node: LabNode, family: IpFamily): IpAddress | undefined {
  return node.addresses.find((address) => address.family === family);
}
