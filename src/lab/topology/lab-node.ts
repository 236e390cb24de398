import type { IpAddress, IpFamily } from "#base/ip";

/** One node. */
export interface LabNode {
  /** The name of its Node object. */
  readonly name: string;
  /** Its namespace, as `ip netns` knows it. */
  readonly netns: string;
  readonly addresses: readonly IpAddress[];
  /** Its port of the bridge. */
  readonly port: string;
}

/** The node's address of a family. */
export function addressOfNode(node: LabNode, family: IpFamily): IpAddress | undefined {
  return node.addresses.find((address) => address.family === family);
}
