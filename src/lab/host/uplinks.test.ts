import assert from "node:assert/strict";
import { test } from "node:test";
import { planTopology } from "#lab/topology";
import { planLabUplinks, uplinkProxyFlags, uplinkSettings } from "./uplinks.ts";

const PATHS = { dir: "/run/isthmus/lab-x" };
const plan = (families: "dual" | "ipv4" | "ipv6", uplinks = true) =>
  planTopology({ lab: "x", nodes: 2, families, tunnel: false, uplinks });

test("planLabUplinks: undefined without uplinks", () => {
  assert.equal(planLabUplinks(plan("dual", false), PATHS), undefined);
});

test("planLabUplinks: the first node has both uplinks; each provider and the internet have a namespace of the lab", () => {
  const topology = plan("dual");
  const uplinks = planLabUplinks(topology, PATHS);
  assert.ok(uplinks !== undefined);
  assert.deepEqual([uplinks.node, uplinks.netns], ["node1", "isthmus-x-node1"]);
  assert.deepEqual(
    uplinks.links.map(({ name, cost, netns, addresses }) => [name, cost, netns, ...addresses]),
    [
      ["wan0", 0, "isthmus-x-wan0", "192.0.2.10", "2001:db8:1::a"],
      ["wan1", 10, "isthmus-x-wan1", "198.51.100.10", "2001:db8:2::a"],
    ],
  );
  assert.deepEqual(uplinks.server.addresses, ["203.0.113.80", "2001:db8:80::80"]);
  assert.equal(topology.uplinks?.internet.netns, "isthmus-x-internet");
  // All files of the proxy are in the lab's folder, which is removed with the lab.
  for (const flag of uplinkProxyFlags(uplinks, PATHS))
    assert.match(flag, /^--[a-z-]+=\/run\/isthmus\/lab-x\/uplinks\//);
});

for (const [families, addresses, gateways, probe] of [
  ["ipv4", ["192.0.2.10/24"], ["192.0.2.1", null], "http://203.0.113.80:80/who"],
  ["ipv6", ["2001:db8:1::a/64"], [null, "2001:db8:1::1"], "http://[2001:db8:80::80]:80/who"],
] as const) {
  test(`uplinkSettings, ${families}: the cost limit allows the expensive uplink; a lab of one family has no address of the other`, () => {
    const { uplinks } = plan(families);
    assert.ok(uplinks !== undefined);
    const settings = uplinkSettings(uplinks);
    assert.equal(settings.maxCost, 10);
    const [cheap] = settings.uplinks;
    assert.deepEqual(cheap?.addresses, addresses);
    assert.deepEqual([cheap?.gateway4, cheap?.gateway6], gateways);
    assert.deepEqual(settings.probe.targets, [{ type: "http", url: probe }]);
  });
}
