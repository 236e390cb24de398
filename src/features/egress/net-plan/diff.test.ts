import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress, MacAddress } from "#base/ip";
import { diffNet, type NetChange, type ObservedLink, type ObservedNet } from "./diff.ts";
import type { NetPlan, PlannedLink, PlannedLinkSpec, PlannedRoute } from "./types.ts";

const EMPTY: NetPlan = { settings: new Map(), fouPorts: [], links: [], rules: [], routes: [] };
const NOTHING: ObservedNet = {
  settings: new Map(),
  fouPorts: [],
  links: [],
  neighbours: [],
  rules: [],
  routes: [],
};
const FOU = { family: 4, port: 5555, ipProtocol: 4 } as const;
const IFF_NOARP = 0x80;
const local = IpAddress.parse("10.1.0.5");
const vxlan: PlannedLinkSpec = { kind: "vxlan", name: "nat_v", vni: 7, local };
const ipip: PlannedLinkSpec = { kind: "ipip", name: "nat_f", local };
const planned = (spec: PlannedLinkSpec): PlannedLink => ({ spec, arp: true, neighbours: [] });
const observed = (name: string, kind: string, more: Partial<ObservedLink> = {}): ObservedLink => ({
  ...{ index: name.length, name, kind, mtu: 1450, up: true, flags: 0 },
  ...more,
});
const details = { kind: "vxlan", vni: 7, local } as const;
const isOurLink = (name: string): boolean => name.startsWith("nat_");
const way = (dst: string, more: Partial<PlannedRoute> = {}): PlannedRoute => ({
  ...{ dst: Cidr.parse(dst), table: 117, type: "unicast", metric: 1 },
  ...more,
});

/** The steps in short: their names, and what each is about. */
function stepsOf(plan: Partial<NetPlan>, net: Partial<ObservedNet>): readonly string[] {
  return diffNet({ ...EMPTY, ...plan }, { ...NOTHING, ...net }, isOurLink).map(textOf);
}

function textOf(change: NetChange): string {
  switch (change.op) {
    case "set":
      return `set ${change.key}`;
    case "open-port":
    case "close-port":
      return `${change.op} ${change.entry.port}`;
    case "make-link":
      return `make ${change.link.spec.name}`;
    case "change-link":
      return `change ${change.name} ${JSON.stringify(change.change)}`;
    case "raise-link":
      return `raise ${change.name}`;
    case "delete-links":
      return `delete ${change.links.map(({ name }) => name).join(" ")}`;
    case "put-neighbour":
      return `neighbour ${change.neighbour.address}`;
    case "put-route":
    case "delete-route":
      return `${change.op} ${change.route.dst}`;
    case "add-rule":
    case "delete-rule":
      return `${change.op} ${change.rule.priority}`;
  }
}

const CASES: readonly {
  readonly name: string;
  readonly plan: Partial<NetPlan>;
  readonly net: Partial<ObservedNet>;
  readonly steps: readonly string[];
}[] = [
  {
    name: "VXLAN to FoU: the port's holder goes before the port is opened",
    plan: { links: [planned(ipip)], fouPorts: [FOU] },
    net: { links: [observed("nat_v", "vxlan")] },
    steps: ["delete nat_v", "open-port 5555", "make nat_f", "raise nat_f"],
  },
  {
    name: "VXLAN and another link of ours to FoU: both go first",
    plan: { links: [planned(ipip)], fouPorts: [FOU] },
    net: { links: [observed("nat_v", "vxlan"), observed("nat_other", "ipip")] },
    steps: ["delete nat_v nat_other", "open-port 5555", "make nat_f", "raise nat_f"],
  },
  {
    name: "FoU to VXLAN: the port is closed before the link has it",
    plan: { links: [planned(vxlan)] },
    net: { links: [observed("nat_f", "ipip")], fouPorts: [FOU] },
    steps: ["delete nat_f", "close-port 5555", "make nat_v", "raise nat_v"],
  },
  {
    name: "FoU to VXLAN beside a VXLAN link that is up: the port is closed before the new link has it",
    plan: { links: [planned(vxlan), planned({ ...vxlan, name: "nat_w", vni: 8 })] },
    net: { links: [observed("nat_v", "vxlan", { details }), observed("nat_f", "ipip")], fouPorts: [FOU] },
    steps: ["delete nat_f", "close-port 5555", "make nat_w", "raise nat_w"],
  },
  {
    name: "a port that closes beside a VXLAN link that is up: nothing is handed over, links and port go last",
    plan: { links: [planned(vxlan)], routes: [way("192.0.2.0/24", { link: "nat_v" })] },
    net: { links: [observed("nat_v", "vxlan", { details }), observed("nat_f", "ipip")], fouPorts: [FOU] },
    steps: ["put-route 192.0.2.0/24", "delete nat_f", "close-port 5555"],
  },
  {
    name: "a port that closes beside a link without one that is raised: nothing is handed over",
    plan: { links: [planned(ipip)], routes: [way("192.0.2.0/24", { link: "nat_f" })] },
    net: { links: [observed("nat_old", "ipip")], fouPorts: [FOU] },
    steps: ["make nat_f", "raise nat_f", "put-route 192.0.2.0/24", "delete nat_old", "close-port 5555"],
  },
  {
    name: "one VXLAN link to another: no port of FoU, so the old one goes last",
    plan: { links: [planned(vxlan)] },
    net: { links: [observed("nat_old", "vxlan")] },
    steps: ["make nat_v", "raise nat_v", "delete nat_old"],
  },
  {
    name: "a link of FoU beside one that goes: the port is opened first",
    plan: { links: [planned(ipip)], fouPorts: [FOU] },
    net: { links: [observed("nat_old", "ipip")] },
    steps: ["open-port 5555", "make nat_f", "raise nat_f", "delete nat_old"],
  },
  {
    name: "routes that lead into no tunnel are put before rules, those into tunnels after their links",
    plan: {
      links: [planned(vxlan)],
      rules: [{ family: 4, priority: 1900, table: 117 }],
      routes: [
        way("192.0.2.0/24", { link: "nat_v" }),
        way("198.51.100.0/24", { type: "unreachable" }),
        way("203.0.113.0/24", { link: "eth0" }),
        way("10.0.0.0/8", { type: "throw" }),
      ],
    },
    net: { links: [observed("eth0", "veth")] },
    steps: [
      "put-route 198.51.100.0/24",
      "put-route 203.0.113.0/24",
      "add-rule 1900",
      "make nat_v",
      "raise nat_v",
      "put-route 192.0.2.0/24",
      "put-route 10.0.0.0/8",
    ],
  },
  {
    name: "equal states need no step",
    plan: { links: [planned(vxlan)], settings: new Map([["a", "1"]]) },
    net: { links: [observed("nat_v", "vxlan", { details })], settings: new Map([["a", "1"]]) },
    steps: [],
  },
  {
    name: "a link of another kind, with another MAC, without details, or with another address is made anew",
    plan: {
      links: [
        planned({ ...ipip, name: "nat_1" }),
        planned({ ...vxlan, name: "nat_2", mac: MacAddress.parse("02:00:00:00:00:01") }),
        planned({ ...vxlan, name: "nat_3" }),
        planned({ ...vxlan, name: "nat_4" }),
      ],
    },
    net: {
      links: [
        observed("nat_1", "vxlan", { details: { kind: "vxlan", local } }),
        observed("nat_2", "vxlan", { details, mac: MacAddress.parse("02:00:00:00:00:02") }),
        observed("nat_3", "vxlan"),
        observed("nat_4", "vxlan", { details: { ...details, local: IpAddress.parse("10.1.0.6") } }),
      ],
    },
    steps: [
      "delete nat_1 nat_2 nat_3 nat_4",
      ...["make nat_1", "make nat_2", "make nat_3", "make nat_4"],
      ...["raise nat_1", "raise nat_2", "raise nat_3", "raise nat_4"],
    ],
  },
  {
    name: "a link without the value of a setting, and one whose kind has no settings",
    plan: { links: [planned(vxlan), planned({ kind: "dummy", name: "nat_d" })] },
    net: {
      links: [observed("nat_v", "vxlan", { details: { kind: "vxlan", vni: 7 } }), observed("nat_d", "dummy")],
    },
    steps: ["delete nat_v", "make nat_v", "raise nat_v"],
  },
  {
    name: "MTU, ARP and the state of a link are changed where it is",
    plan: { links: [{ ...planned({ ...vxlan, mtu: 1400 }), arp: false }] },
    net: { links: [observed("nat_v", "vxlan", { details, up: false })] },
    steps: ['change nat_v {"mtu":1400,"arp":false}', "raise nat_v"],
  },
  {
    name: "a link that resolves no addresses already stays so",
    plan: { links: [{ ...planned(vxlan), arp: false }] },
    net: { links: [observed("nat_v", "vxlan", { details, flags: IFF_NOARP })] },
    steps: [],
  },
];

for (const { name, plan, net, steps } of CASES)
  test(`diffNet: ${name}`, () => {
    assert.deepEqual(stepsOf(plan, net), steps);
  });
