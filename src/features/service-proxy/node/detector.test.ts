import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, type IpFamily } from "#base/ip";
import { nodeConfig } from "../testing/node-config.ts";
import { detectorOf } from "./detector.ts";
import type { NodeConfig } from "./types.ts";

const cidrs = (texts: readonly string[]): Cidr[] => texts.map((text) => Cidr.parse(text));

function detector(family: IpFamily, podCIDRs: readonly string[], config: Partial<NodeConfig> = {}): string {
  const node = { addresses: [], zone: undefined, podCIDRs: cidrs(podCIDRs) };
  const found = detectorOf(nodeConfig(config), node, family);
  if (found === undefined) return "none";
  return found.kind === "source" ? String(found.cidr) : found.kind === "interface" ? found.name : `${found.prefix}*`;
}

test("detectorOf: the first range of the family, the Node's own ranges, a link or a prefix of links", () => {
  const node = ["10.9.1.0/24", "fd00:9::/64"];
  const cluster = { clusterCIDRs: cidrs(["10.0.0.0/8", "fd00::/8", "11.0.0.0/8"]) };
  assert.deepEqual([detector(4, node, cluster), detector(6, node, cluster)], ["10.0.0.0/8", "fd00::/8"]);
  assert.equal(detector(6, node, { clusterCIDRs: cidrs(["10.0.0.0/8"]) }), "none");
  assert.equal(detector(4, node), "none");
  const byNode = { detectLocalMode: "NodeCIDR" } as const;
  assert.deepEqual([detector(4, node, byNode), detector(6, node, byNode)], ["10.9.1.0/24", "fd00:9::/64"]);
  assert.equal(detector(4, [], { ...byNode, ...cluster }), "none");
  assert.equal(detector(4, node, { detectLocalMode: "BridgeInterface", podBridgeInterface: "cni0" }), "cni0");
  assert.equal(detector(6, node, { detectLocalMode: "InterfaceNamePrefix", podInterfaceNamePrefix: "veth" }), "veth*");
});
