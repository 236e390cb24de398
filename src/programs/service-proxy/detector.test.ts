import assert from "node:assert/strict";
import { test } from "node:test";
import { parseFlags } from "#base/config";
import { Cidr, type IpFamily } from "#base/ip";
import { serviceProxyConfig } from "./config.ts";
import { detectorOf } from "./detector.ts";
import { serviceProxyFlags } from "./flags.ts";

function detector(family: IpFamily, podCIDRs: readonly string[], ...argv: string[]): string {
  const config = serviceProxyConfig(parseFlags(serviceProxyFlags, argv).values);
  const node = { addresses: [], zone: undefined, podCIDRs: podCIDRs.map((text) => Cidr.parse(text)) };
  const found = detectorOf(config, node, family);
  if (found === undefined) return "none";
  return found.kind === "source" ? String(found.cidr) : found.kind === "interface" ? found.name : `${found.prefix}*`;
}

test("detectorOf: the first range of the family, the Node's own ranges, a link or a prefix of links", () => {
  const node = ["10.9.1.0/24", "fd00:9::/64"];
  const cluster = "--cluster-cidr=10.0.0.0/8,fd00::/8,11.0.0.0/8";
  assert.deepEqual([detector(4, node, cluster), detector(6, node, cluster)], ["10.0.0.0/8", "fd00::/8"]);
  assert.equal(detector(6, node, "--cluster-cidr=10.0.0.0/8"), "none");
  assert.equal(detector(4, node), "none");
  const byNode = "--detect-local-mode=NodeCIDR";
  assert.deepEqual([detector(4, node, byNode), detector(6, node, byNode)], ["10.9.1.0/24", "fd00:9::/64"]);
  assert.equal(detector(4, [], byNode, cluster), "none");
  assert.equal(detector(4, node, "--detect-local-mode=BridgeInterface", "--pod-bridge-interface=cni0"), "cni0");
  assert.equal(
    detector(6, node, "--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=veth"),
    "veth*",
  );
});
