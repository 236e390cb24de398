import type { IpAddress, IpFamily } from "#base/ip";

/** One node. */
export interface LabNode {
  /** As the API has it. */
  readonly name: string;
  /** Its namespace, as `ip netns` knows it. */
  readonly netns: string;
  readonly addresses: readonly IpAddress[];
  /** The bridge's port that leads to it. */
  readonly port: string;
}

/** The node's address of a family. */
export function addressOfNode(node: LabNode, family: IpFamily): IpAddress | undefined {
  return node.addresses.find((address) => address.family === family);
}
