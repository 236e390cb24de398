import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { type NodeFacts, planNode } from "./node-plan.ts";

const NONE: NodeFacts = {
  running: [],
  links: [],
  sandboxes: [],
  journalFaults: [],
  clients: [],
  rules: [],
  routes: [],
  otherNumbers: [],
  forward: [],
  forwardFault: undefined,
  guard: [],
  services: [],
  uplinks: [],
  files: [],
  outside: [],
  unsure: [],
  bindAddresses: [],
  loopback: [],
  settings: [],
};
const route = {
  family: 4,
  dst: Cidr.parse("10.1.0.0/32"),
  table: 116,
  protocol: 30,
  scope: "link",
  type: "unicast",
} as const;
const ALL: NodeFacts = {
  running: [],
  links: [
    { index: 7, name: "veth1", alias: "COIL:default:c:eth0", role: "pod" },
    { index: 8, name: "knode0", alias: "ISTHMUS:bind", role: "bind" },
    { index: 9, name: "cali1", alias: "COIL::uid:eth0", role: "chained" },
  ],
  sandboxes: [],
  journalFaults: [],
  clients: [
    {
      path: "/run/netns/a",
      inode: 7n,
      ifname: "eth0",
      who: "the pod with UID uid",
      destinations: ["203.0.113.0/24", "::/0"],
      isCutOff: false,
    },
  ],
  rules: [{ family: 4, priority: 2000, table: 116, action: "lookup" }],
  routes: [{ route, program: "coild" }],
  otherNumbers: [],
  forward: ["iptables-nft FORWARD"],
  forwardFault: undefined,
  guard: ["inet", "arp"],
  services: [{ family: 6, table: "kube-proxy" }],
  uplinks: ["nftables table inet uplink_guard"],
  outside: ["/srv/x: somebody's"],
  unsure: ["numbers are not known"],
  bindAddresses: [],
  loopback: [{ linkIndex: 1, address: IpAddress.parse("10.255.255.1"), prefixLength: 32 }],
  files: [
    { path: "/opt/cni/bin/coil", role: "executable" },
    { path: "/etc/cni/net.d/20-x.conflist.coil-disabled", role: "set-aside" },
    { path: "/run/isthmus", role: "estate" },
    { path: "/run/coild.sock", role: "socket" },
    { path: "/etc/cni/net.d/10-coil.conflist", role: "configuration" },
  ],
  settings: [
    { key: "net/ipv4/ip_forward", former: "0", now: "1" },
    { key: "net/ipv6/conf/all/forwarding", former: "1", now: "1" },
  ],
};
const options = { pods: true, restoreSettings: true };

test("planNode: a node without the suite has nothing to remove, and nothing refuses it", () => {
  assert.deepEqual(planNode(NONE, options), {
    ...{ removals: [], refused: [], kept: [], warned: [], unfinished: [], unsure: [] },
  });
});

test("planNode: the configuration comes first, then the kernel's objects, then the files of programs", () => {
  const { removals, refused, kept, warned } = planNode(ALL, options);
  assert.deepEqual(
    removals.map(({ what }) => what),
    [
      "remove /etc/cni/net.d/10-coil.conflist",
      "rename /etc/cni/net.d/20-x.conflist.coil-disabled back to /etc/cni/net.d/20-x.conflist",
      "remove /opt/cni/bin/coil",
      "remove tunnels, rules and routes to 2 destinations of Egresses from the pod with UID uid (/run/netns/a)",
      "delete link veth1",
      "delete link knode0",
      "clear the alias of cali1",
      "delete address 10.255.255.1/32 of lo",
      "delete IPv4 rule 2000: lookup 116",
      "delete route 10.1.0.0/32 of table 116",
      "delete nftables tables inet source-guard and arp source-guard",
      "delete rules of iptables-nft FORWARD",
      "delete nftables table ip6 kube-proxy",
      "delete nftables table inet uplink_guard",
      "set net.ipv4.ip_forward from 1 back to 0",
      "remove /run/coild.sock",
      "remove /run/isthmus",
    ],
  );
  assert.ok(removals.every(({ why }) => why !== ""));
  assert.deepEqual([refused, kept], [[], []]);
  assert.deepEqual(warned, [
    "the pod with UID uid (/run/netns/a) will send packets to 203.0.113.0/24, ::/0 with its own address, and not through its Egress",
  ]);
});

test("planNode: it is refused while programs run, with pods' links without leave, and with NICs in any case", () => {
  const nic = { index: 10, name: "tap1", alias: "isthmus-nic:p:c", role: "nic" } as const;
  const facts = { ...ALL, running: ["coild (process 5)"], links: [...ALL.links, nic] };
  const { refused } = planNode(facts, { ...options, pods: false });
  assert.equal(refused.length, 3);
  assert.match(refused[0] ?? "", /coild \(process 5\) runs on this node/);
  assert.match(refused[1] ?? "", /1 pods have links of this suite \(veth1\): .*--pods/);
  assert.match(refused[2] ?? "", /1 devices of NICs \(tap1\)/);
  assert.equal(planNode(facts, options).refused.length, 2);
  assert.ok(!planNode(facts, options).removals.some(({ what }) => what.includes("tap1")));
});

test("planNode: what has other numbers is not removed, and the end is no success while it is there", () => {
  const otherNumbers = ["IPv4 rule 1500: lookup 200: if it was coild's, give --pod-table-id=200 --pod-rule-prio=1500"];
  const plan = planNode({ ...NONE, otherNumbers }, { pods: false, restoreSettings: false });
  assert.deepEqual([plan.removals, plan.unfinished], [[], otherNumbers]);
});

test("planNode: without leave a changed setting stays and is named, and so are an executable of somebody else and a bind address on lo", () => {
  const foreign = { path: "/opt/cni/bin/coil", role: "foreign-executable" } as const;
  const facts = { ...ALL, files: [foreign], bindAddresses: ["10.255.255.1/32 on lo"], forwardFault: "no iptables" };
  const { removals, kept } = planNode(facts, { pods: true, restoreSettings: false });
  assert.ok(!removals.some(({ op }) => op === "set" || op === "remove-file"));
  assert.deepEqual(
    kept.map((line) => line.split(":")[0]),
    [
      "/opt/cni/bin/coil",
      "rules of iptables for packets of pods, if there are any",
      "address 10.255.255.1/32 on lo",
      "setting net.ipv4.ip_forward = 1",
    ],
  );
  assert.match(kept[2] ?? "", /ip address delete 10\.255\.255\.1\/32 dev lo$/);
});
