import { Cidr, type IpAddress } from "#base/ip";
import type { Kernel } from "#kernel/net";
import { openNetNs } from "#kernel/netns";

const NETWORK = Cidr.parse("172.30.255.0/24");
const BRIDGE = "vpc";
/** The device of a host that leads to the other hosts. */
export const UNDERLAY_DEVICE = "vpc0";

/** Pure: a host's address in tunnels; `at` is its place in the list of hosts, from 0 to 252. */
export function tunnelAddress(at: number): IpAddress {
  return NETWORK.at(at + 1);
}

/** The length of the prefix of {@link tunnelAddress}. */
export const TUNNEL_PREFIX_LENGTH = NETWORK.prefixLength;

/** Joins hosts by a bridge in the cloud's namespace, for their tunnels alone. Throws `KernelError`. */
export function joinHosts(kernel: Kernel, cloud: string, hosts: readonly { readonly netns: string }[]): void {
  using cloudNs = openNetNs({ name: cloud });
  using fabric = kernel.openStack(cloudNs);
  const bridge = fabric.links.create({ kind: "bridge", name: BRIDGE, multicastSnooping: false });
  fabric.links.set(bridge.index, { up: true });
  for (const [at, host] of hosts.entries()) {
    using netns = openNetNs({ name: host.netns });
    using stack = kernel.openStack(netns);
    const name = `${BRIDGE}-${at + 1}`;
    fabric.links.create({
      kind: "veth",
      name,
      masterIndex: bridge.index,
      up: true,
      peer: { name: UNDERLAY_DEVICE, netns },
    });
    const device = stack.links.get({ name: UNDERLAY_DEVICE });
    if (device === undefined) throw new Error(`the kernel made no ${UNDERLAY_DEVICE} in ${host.netns}`);
    stack.links.set(device.index, { up: true });
  }
}
