import { Cidr, type IpAddress } from "#base/ip";
import type { Kernel, NetStack } from "#kernel/net";
import { buildOutside } from "./build-outside.ts";
import { buildUplinks } from "./build-uplinks.ts";
import { calmLink } from "./calm-link.ts";
import type { LabNode } from "./lab-node.ts";
import type { Topology } from "./plan.ts";

const ANY = { 4: Cidr.parse("0.0.0.0/0"), 6: Cidr.parse("::/0") } as const;

/** Makes the namespaces and links. Throws `KernelError`; `removeTopology` removes a partial result. */
export function buildTopology(kernel: Kernel, topology: Topology): void {
  using fabricNs = kernel.createNetNs(topology.fabric);
  using fabric = kernel.openStack(fabricNs);
  loopbackUp(fabric);
  const bridge = fabric.links.create({ kind: "bridge", name: topology.bridge, multicastSnooping: false });
  calmLink(fabric, topology.bridge);
  fabric.links.set(bridge.index, { up: true });
  addAddresses(fabric, bridge.index, topology.gateways, topology);
  const machines = topology.controlPlane === undefined ? topology.nodes : [topology.controlPlane, ...topology.nodes];
  for (const node of machines) buildNode(kernel, fabric, bridge.index, node, topology);
  if (topology.uplinks !== undefined) buildUplinks(kernel, topology.uplinks);
  if (topology.outside !== undefined) buildOutside(kernel, topology.fabric, topology.outside);
}

function buildNode(kernel: Kernel, fabric: NetStack, bridgeIndex: number, node: LabNode, topology: Topology): void {
  using netns = kernel.createNetNs(node.netns);
  using stack = kernel.openStack(netns);
  loopbackUp(stack);
  const port = { kind: "veth", name: node.port, masterIndex: bridgeIndex, peer: { name: "eth0", netns } } as const;
  const { index } = fabric.links.create(port);
  calmLink(fabric, node.port);
  fabric.links.set(index, { up: true });
  const uplink = stack.links.get({ name: "eth0" });
  if (uplink === undefined) throw new Error(`the kernel made no eth0 in ${node.netns}`);
  calmLink(stack, "eth0");
  stack.links.set(uplink.index, { up: true });
  addAddresses(stack, uplink.index, node.addresses, topology);
  for (const gateway of topology.gateways) {
    stack.routes.add({ dst: ANY[gateway.family], gateway, linkIndex: uplink.index });
  }
}

function loopbackUp(stack: NetStack): void {
  const loopback = stack.links.get({ name: "lo" });
  if (loopback !== undefined) stack.links.set(loopback.index, { up: true });
}

function addAddresses(stack: NetStack, linkIndex: number, addresses: readonly IpAddress[], topology: Topology): void {
  for (const address of addresses) {
    const prefixLength = topology.networks.find((network) => network.contains(address))?.prefixLength ?? address.bits;
    stack.addresses.replace({ linkIndex, address, prefixLength, noDad: address.family === 6 });
  }
}
