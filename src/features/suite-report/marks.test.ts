import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr } from "#base/ip";
import { foreignRoutes, leftOvers, sharedMarks } from "./marks.ts";

const coild = {
  program: "coild",
  kernel: [
    { id: "pod-routes", kind: "routes", table: 116, protocol: 30 },
    { id: "pod-rule", kind: "rules", priority: 2000, table: 116 },
    { id: "links", kind: "links", alias: "coil:<container>" },
    { id: "tunnels", kind: "udp-port", in: "client", port: 5555 },
    { id: "forwarding", kind: "sysctl", key: "net/ipv4/ip_forward" },
  ],
} as const;
const uplinks = {
  program: "uplink-proxy",
  kernel: [
    { id: "uplink-routes", kind: "routes", table: [500, 0xffff_ffff], protocol: 179 },
    { id: "uplink-rules", kind: "rules", priority: 15000, table: [500, 0xffff_ffff], protocol: 179 },
    { id: "forwarding", kind: "sysctl", key: "net/ipv4/ip_forward" },
  ],
} as const;

test("sharedMarks: programs with numbers of their own share none; settings of the kernel, and objects in namespaces of pods, are no marks of the host", () => {
  const router = { program: "x", kernel: [{ id: "t", kind: "udp-port", port: 5555 }] } as const;
  assert.deepEqual(sharedMarks([coild, uplinks, router]), []);
});

test("sharedMarks: each kind of mark that two programs have is named with both", () => {
  const kinds = [
    { id: "a", kind: "routes", table: 600, protocol: 179 },
    { id: "a", kind: "rules", priority: 15000, table: [1, 500] },
    { id: "a", kind: "links", alias: "coil:" },
    { id: "a", kind: "routes", table: [100, 200], protocol: 30 },
  ] as const;
  assert.deepEqual(
    kinds.map((claim) => sharedMarks([coild, uplinks, { program: "other", kernel: [claim] }])),
    [
      ["uplink-proxy has tables 500 and on, protocol 179, and other table 600, protocol 179"],
      [
        "uplink-proxy has rule priority 15000 to tables 500 and on, protocol 179, and other rule priority 15000 to tables 1 to 500",
      ],
      ["coild has link alias `coil:<container>`, and other link alias `coil:`"],
      ["coild has table 116, protocol 30, and other tables 100 to 200, protocol 30"],
    ],
  );
  const pairs = [
    { id: "a", kind: "link-groups", groups: [16, 32] },
    { id: "a", kind: "link-names", names: ["b", "c"] },
    { id: "a", kind: "nft-table", family: "ip", name: "t" },
    { id: "a", kind: "comments", comment: "isthmus <x>" },
    { id: "a", kind: "address", address: "192.0.2.1", link: "lo" },
    { id: "a", kind: "mark", value: 0x4000 },
    { id: "a", kind: "udp-port", port: 5555 },
  ] as const;
  for (const [at, claim] of pairs.entries()) {
    const [one, other] = [
      { program: "one", kernel: [claim] },
      { program: "other", kernel: pairs },
    ];
    assert.equal(sharedMarks([one, other]).length, 1, claim.kind);
    assert.deepEqual(sharedMarks([one, { program: "other", kernel: pairs.toSpliced(at, 1) }]), [], claim.kind);
    assert.deepEqual(sharedMarks([one, one]), [], "a program shares with itself");
  }
});

test("foreignRoutes: routes of others in a program's own table are counted by protocol; those of the main table are nobody's alone", () => {
  const main = { program: "coil-router", kernel: [{ id: "r", kind: "routes", table: 254, protocol: 31 }] } as const;
  const route = (table: number, protocol: number, family: 4 | 6 = 4) => ({ family, table, protocol });
  const routes = [
    route(116, 30),
    route(116, 4),
    route(116, 4),
    route(116, 4, 6),
    route(254, 4),
    route(77, 4),
    route(700, 2),
    route(700, 179),
    route(800, 2),
  ];
  assert.deepEqual(foreignRoutes({ inForce: [coild, uplinks, main], routes }), [
    "2 IPv4 routes of protocol 4 in table 116, which is coild's",
    "1 IPv6 routes of protocol 4 in table 116, which is coild's",
    "1 IPv4 routes of protocol 2 in table 700, which is uplink-proxy's",
  ]);
});

test("leftOvers: routes and rules of earlier numbers are named once with their removal; those in force, of others, and of the main table are not", () => {
  const before = {
    program: "coild",
    kernel: [
      { id: "pod-routes", kind: "routes", table: 216, protocol: 30 },
      { id: "router", kind: "routes", table: 254, protocol: 31 },
      { id: "pod-rule", kind: "rules", priority: 1900, table: 216 },
      { id: "uplink-rules", kind: "rules", priority: 1800, table: 7, protocol: 179, fwmark: 4 },
      ...coild.kernel,
    ],
  } as const;
  const from = Cidr.parse("192.0.2.0/24");
  const rule = (priority: number, table: number, more = {}) => ({ family: 4, priority, table, ...more }) as const;
  const facts = {
    inForce: [coild, uplinks],
    former: [before, before],
    routes: [
      { family: 4, table: 216, protocol: 30 },
      { family: 4, table: 216, protocol: 30 },
      { family: 6, table: 216, protocol: 30 },
      { family: 4, table: 216, protocol: 4 },
      { family: 4, table: 116, protocol: 30 },
      { family: 4, table: 254, protocol: 31 },
    ],
    rules: [
      rule(1900, 216),
      rule(1900, 216, { from }),
      rule(1900, 217),
      rule(2000, 116),
      rule(1800, 7, { protocol: 179, fwmark: 4 }),
      rule(1800, 7, { protocol: 179, fwmark: 5 }),
      rule(1800, 7),
    ],
  } as const;
  assert.deepEqual(leftOvers(facts), [
    { program: "coild", what: "2 IPv4 routes of table 216, protocol 30", remedy: "ip route flush table 216 proto 30" },
    {
      program: "coild",
      what: "1 IPv6 routes of table 216, protocol 30",
      remedy: "ip -6 route flush table 216 proto 30",
    },
    {
      program: "coild",
      what: "1 IPv4 rules of rule priority 1900 to table 216",
      remedy: "ip rule delete priority 1900 lookup 216",
    },
    {
      program: "coild",
      what: "1 IPv4 rules of rule priority 1800 to table 7, packet mark 0x4, protocol 179",
      remedy: "ip rule delete priority 1800 lookup 7",
    },
  ]);
  assert.deepEqual(leftOvers({ ...facts, inForce: [before] }), []);
  // Whoever is not root could name the numbers of others.
  const foreign = leftOvers({ ...facts, former: [{ ...before, uid: 10_000 }] });
  assert.equal(foreign.length, 4);
  assert.ok(foreign.every(({ remedy }) => remedy === undefined));
});
