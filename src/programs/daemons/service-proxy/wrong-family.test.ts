import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import { createLogger } from "#base/log";
import type { NodeNetwork } from "#features/service-proxy";
import { ServiceProxyError } from "./errors.ts";
import { FamilyCheck, type FamilyConfig } from "./wrong-family.ts";

const DEFAULTS: FamilyConfig = {
  detectLocalMode: "ClusterCIDR",
  clusterCIDRs: [],
  nodePortAddresses: { hasPrimary: true, ranges: [] },
  healthz: { host: "0.0.0.0", port: 10_256 },
  metrics: { host: "127.0.0.1", port: 10_249 },
};
const cidrs = (...texts: string[]): Cidr[] => texts.map((text) => Cidr.parse(text));
const node = (addresses: readonly string[], podCIDRs: readonly string[] = []): NodeNetwork => ({
  addresses: addresses.map((text) => IpAddress.parse(text)),
  zone: undefined,
  podCIDRs: cidrs(...podCIDRs),
});
const NODES: Record<IpFamily, NodeNetwork> = { 4: node(["192.0.2.1"]), 6: node(["2001:db8::1"]) };

/** The lines that are logged for the first Node of a family, or the error. `families`: those of the machine. */
function said(changes: Partial<FamilyConfig>, first: NodeNetwork, families: readonly IpFamily[] = [4, 6]): string[] {
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => void lines.push(line) });
  const check = new FamilyCheck({ ...DEFAULTS, ...changes }, { families, log });
  try {
    check.node(first);
    check.node(first);
  } catch (error) {
    assert.ok(error instanceof ServiceProxyError, String(error));
    assert.equal(error.code, "wrong-family");
    return [error.message];
  }
  return lines;
}

test("FamilyCheck: the defaults, and configuration of the node's family or of both, say nothing", () => {
  for (const family of [4, 6] as const) {
    const own = family === 4 ? cidrs("10.0.0.0/8") : cidrs("fd00::/48");
    const both = cidrs("fd00::/48", "10.0.0.0/8");
    const host = family === 4 ? "192.0.2.1" : "2001:db8::1";
    for (const changes of [
      {},
      { clusterCIDRs: own, nodePortAddresses: { hasPrimary: false, ranges: own } },
      { clusterCIDRs: both, nodePortAddresses: { hasPrimary: false, ranges: both } },
      { healthz: { host, port: 1 }, metrics: { host, port: 2 } },
      { healthz: undefined, metrics: undefined },
    ])
      assert.deepEqual(said(changes, NODES[family]), [], JSON.stringify(changes));
  }
});

test("FamilyCheck: --cluster-cidr of the other family alone is a warning where the machine has that family too", () => {
  for (const [range, family] of [
    ["fd00::/48", 4],
    ["10.0.0.0/8", 6],
  ] as const) {
    const lines = said({ clusterCIDRs: cidrs(range) }, NODES[family]);
    assert.equal(lines.length, 1, lines.join(""));
    assert.match(lines[0] ?? "", /level":"warn".*--cluster-cidr/);
  }
  assert.deepEqual(said({ clusterCIDRs: cidrs("fd00::/48"), detectLocalMode: "BridgeInterface" }, NODES[4]), []);
});

test("FamilyCheck: --cluster-cidr without the machine's only family is an error that names the flag, if it decides what is a pod", () => {
  const [error = ""] = said({ clusterCIDRs: cidrs("fd00::/48") }, NODES[4], [4]);
  assert.match(error, /^Cannot .*--cluster-cidr .*fd00::\/48.*IPv6.*192\.0\.2\.1.*IPv4/);
  assert.deepEqual(said({ clusterCIDRs: cidrs("fd00::/48"), detectLocalMode: "BridgeInterface" }, NODES[4], [4]), []);
});

test("FamilyCheck: addresses of NodePorts and listeners of the other family alone are a warning each, once", () => {
  const lines = said(
    {
      nodePortAddresses: { hasPrimary: false, ranges: cidrs("2001:db8::/32") },
      healthz: { host: "2001:db8::1", port: 10_256 },
      metrics: { host: "::1", port: 10_249 },
    },
    NODES[4],
  );
  assert.equal(lines.length, 2, lines.join(""));
  assert.match(lines[0] ?? "", /--nodeport-addresses/);
  assert.match(lines[1] ?? "", /--healthz-bind-address/);
});

test("FamilyCheck: podCIDRs of the other family alone are a warning, as the Node may still get others", () => {
  assert.match(said({ detectLocalMode: "NodeCIDR" }, node(["192.0.2.1"], ["fd00::/64"])).join(), /podCIDRs/);
  assert.deepEqual(said({ detectLocalMode: "NodeCIDR" }, node(["192.0.2.1"], ["fd00::/64", "10.0.0.0/24"])), []);
  assert.deepEqual(said({ detectLocalMode: "NodeCIDR" }, node(["192.0.2.1"])), []);
});

test("FamilyCheck: a Node without addresses is waited for", () => {
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => void lines.push(line) });
  const check = new FamilyCheck({ ...DEFAULTS, clusterCIDRs: cidrs("fd00::/48") }, { families: [4], log });
  check.node(node([]));
  assert.throws(() => check.node(NODES[4]), ServiceProxyError);
});
