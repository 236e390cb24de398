import assert from "node:assert/strict";
import { test } from "node:test";
import { type VpcPodReport, type VpcReport, vpcLines, vpcWorks } from "./vpc-report.ts";

const NIC = { name: "eth0", port: "p1", address: "192.168.0.5", mac: "fa:16:3e:00:00:01", state: "Ready" };
const pod = (name: string, init: Partial<VpcPodReport> = {}): VpcPodReport => ({
  name,
  node: "node1",
  plug: "direct",
  nics: [NIC],
  seconds: 1.25,
  ...init,
});
const WAITS = {
  seconds: null,
  nics: [
    { ...NIC, state: "Failed", reason: "IpInUse", message: "taken" },
    { ...NIC, name: "eth1", state: "Failed", reason: "PortInUse", message: "claimed" },
  ],
};
const GOOD: VpcReport = {
  hosts: [
    { node: "node1", firewall: "openvswitch" },
    { node: "node2", firewall: "iptables_hybrid" },
  ],
  startSeconds: 18,
  pods: [pod("pod1"), pod("pod2")],
  pings: { sent: 2, answered: 2, unanswered: [] },
  waiting: pod("pod5", WAITS),
  healed: pod("pod5"),
  group: { dropped: true, openSeconds: 1.1 },
  left: { ports: [], userPort: [] },
  seconds: 20,
};
const lines = (report: VpcReport): readonly string[] => vpcLines(report, { mark: (good) => (good ? "ok  " : "FAIL") });

test("vpcWorks, vpcLines: a good report has pods, reasons and times, and no FAIL", () => {
  assert.equal(vpcWorks(GOOD), true);
  const text = lines(GOOD).join("\n");
  assert.doesNotMatch(text, /FAIL/);
  assert.match(
    text,
    /node1 \(firewall openvswitch\) and node2 \(firewall iptables_hybrid\) ran after 18\.0 s: 2 of 2 pods/,
  );
  assert.match(text, /pod1 on node1, direct: eth0 192\.168\.0\.5 fa:16:3e:00:00:01 Ready, ready after 1\.3 s/);
  assert.match(text, /eth1: PortInUse: claimed/);
  assert.match(text, /with a rule let them in after 1\.1 s/);
  assert.match(text, /the user's port is as it was$/);
});

test("vpcWorks, vpcLines: each fault fails its own line", () => {
  const faults: readonly (readonly [what: string, change: Partial<VpcReport>, line: RegExp])[] = [
    ["a pod is not ready", { pods: [pod("pod1", { seconds: null })] }, /^FAIL Neutron .*: 0 of 1 pods/],
    ["a NIC has no address", { pods: [pod("pod1", { nics: [{ ...NIC, address: "" }] })] }, /^FAIL Neutron/],
    ["no pod at all", { pods: [] }, /^FAIL Neutron .*: 0 of 0 pods/],
    ["no ping was sent", { pings: { sent: 0, answered: 0, unanswered: [] } }, /^FAIL 0 of 0 pings/],
    ["the second pod has the address too", { waiting: pod("pod5") }, /^FAIL pod5 asks/],
    ["it never gets it", { healed: pod("pod5", WAITS) }, /^FAIL it has both/],
    ["the group lets all in", { group: { dropped: false, openSeconds: 1 } }, /^FAIL its security group let echoes in/],
    ["its rule has no effect", { group: { dropped: true, openSeconds: null } }, /^FAIL .*still dropped them/],
    ["a port is left", { left: { ports: ["nic-1"], userPort: [] } }, /^FAIL without its pods the lab has 1 ports/],
    ["the user's port is gone", { left: { ports: [], userPort: null } }, /^FAIL .*the user's port is gone/],
    [
      "the user's port is changed",
      { left: { ports: [], userPort: ['has device_id "x", not ""'] } },
      /^FAIL .*the user's port has device_id "x", not ""/,
    ],
  ];
  for (const [what, change, line] of faults) {
    const report = { ...GOOD, ...change };
    assert.equal(vpcWorks(report), false, what);
    const failed = lines(report).filter((one) => one.startsWith("FAIL"));
    assert.equal(failed.length, 1, `${what}: ${failed.join("\n")}`);
    assert.match(failed[0] ?? "", line, what);
  }
});
