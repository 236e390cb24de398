import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Cidr, IpAddress, MacAddress } from "#base/ip";
import type { NetStack } from "#kernel/net";
import { NftTransaction } from "#kernel/nft";
import { egressLabels } from "#kube/coil";
import type { Gateway } from "../client/index.ts";
import { ADDRESSES, EGRESS, NODE, openWorld, PORT, podOf, SERVICE, type World } from "../testing/audit-world.ts";
import { fouDriver, type TunnelDriver, vxlanDriver } from "../tunnel/index.ts";
import { EGRESS_FINDINGS, type EgressFinding } from "./finding.ts";

const DRIVERS = [fouDriver, vxlanDriver] as const;
const ip = IpAddress.parse;

/** A fault, and what must be said of it: nothing else may be. */
interface Case {
  readonly when: string;
  readonly make: (world: World) => unknown;
  readonly found: readonly (readonly [EgressFinding["kind"], RegExp])[];
}

const linkTo = (world: World, member: "client" | "router", pattern: RegExp): string =>
  world.stacks[member].links.list().find(({ name }) => pattern.test(name))?.name ?? assert.fail(`no link ${pattern}`);
const remove = (stack: NetStack, name: string): void => stack.links.delete(stack.links.get({ name })?.index ?? 0);
const TUNNEL = /^(nat_04|fou4_)/;

function editEgress(world: World, spec: object): void {
  const [egress = assert.fail()] = world.objects.egresses;
  world.objects.egresses = [{ ...egress, spec: { destinations: [], ...egress.spec, ...spec } }];
}

function editFirst(world: World, key: "services" | "deployments", edit: object): void {
  const [first = assert.fail()] = world.objects[key] ?? [];
  world.objects[key] = [{ ...first, ...edit }] as never;
}

const CASES: readonly Case[] = [
  {
    when: "a tunnel of a client is gone",
    make: (world) => remove(world.stacks.client, linkTo(world, "client", TUNNEL)),
    found: [
      [
        "client-lacks",
        /^pod default\/client lacks link (nat_04|fou4_)\w+ to 10\.68\.0\.9 \(Egress internet\/nat\), route default .* of table 118, route 172\.20\.0\.0\/16 .* of table 117$/,
      ],
    ],
  },
  {
    when: "a tunnel of a client is down",
    make: ({ stacks: { client } }) =>
      client.links.set(client.links.list().find(({ name }) => TUNNEL.test(name))?.index ?? 0, { up: false }),
    found: [["client-lacks", /lacks .*link (nat_04|fou4_)\w+ up/]],
  },
  {
    when: "the MTU of a tunnel was changed",
    make: ({ stacks: { client } }) =>
      client.links.set(client.links.list().find(({ name }) => TUNNEL.test(name))?.index ?? 0, { mtu: 1300 }),
    found: [["client-lacks", /lacks MTU 14\d\d of link (nat_04|fou4_)\w+ \(it is 1300\)$/]],
  },
  {
    when: "a rule of a client is gone",
    make: ({ stacks: { client } }) => client.rules.delete({ family: 6, priority: 1900 }),
    found: [["client-lacks", /^pod default\/client lacks IPv6 rule 1900 from all lookup 117$/]],
  },
  {
    when: "a route of a client is gone",
    make: ({ stacks: { client } }) =>
      client.routes.delete({ dst: Cidr.parse("172.20.0.0/16"), table: 117, type: "unicast" }),
    found: [["client-lacks", /lacks route 172\.20\.0\.0\/16 .*of table 117$/]],
  },
  {
    when: "the guard of a route is gone",
    make: ({ stacks: { client } }) =>
      client.routes.delete({ dst: Cidr.parse("172.20.0.0/16"), table: 117, type: "unreachable" }),
    found: [["client-lacks", /lacks route unreachable 172\.20\.0\.0\/16 metric 1000000 of table 117$/]],
  },
  {
    when: "a setting of a client was changed",
    make: ({ stacks: { client } }) => client.sysctl.set("net.ipv4.conf.all.rp_filter", 1),
    found: [["client-lacks", /lacks setting net\.ipv4\.conf\.all\.rp_filter=0 \(it is 1\)$/]],
  },
  {
    when: "a client has a rule within our priorities that it does not need",
    make: ({ stacks: { client } }) => client.rules.add({ family: 4, priority: 1950, table: 99 }),
    found: [["client-surplus", /^pod default\/client has too much: IPv4 rule 1950 from all lookup 99$/]],
  },
  {
    when: "a client has a route in our tables that it does not need",
    make: ({ stacks: { client } }) =>
      client.routes.add({ dst: Cidr.parse("8.8.8.8/32"), table: 118, type: "blackhole" }),
    found: [["client-surplus", /has too much: route blackhole 8\.8\.8\.8.* of table 118$/]],
  },
  {
    when: "the Service was made again with another address",
    make: (world) =>
      editFirst(world, "services", {
        spec: { clusterIPs: ["10.68.0.77", String(SERVICE[6])], ports: [{ port: PORT, protocol: "UDP" }] },
      }),
    found: [
      [
        "client-stale-tunnel",
        /^pod default\/client has a tunnel to an address that no Service of its Egresses has: link \w+ .*10\.68\.0\.9/,
      ],
      ["client-lacks", /throw 10\.68\.0\.77/],
      ["client-surplus", /throw 10\.68\.0\.9 /],
    ],
  },
  {
    when: "a pod names no Egress any more, and has still what it had",
    make: (world) => {
      world.objects.pods = world.objects.pods.map((pod) =>
        pod.metadata.name === "client" ? { ...pod, metadata: { ...pod.metadata, annotations: {} } } : pod,
      );
      return world.syncRouter([]);
    },
    found: [
      [
        "client-leftover",
        /^pod default\/client, which names no Egress, still has (link|IPv4 rule|route|FoU port).* and \d+ more$/,
      ],
    ],
  },
  {
    when: "an Egress refuses a pod that names it, and its destinations are closed there",
    make: async (world) => {
      for (const { spec } of world.objects.egresses) Object.assign(spec ?? {}, { allowedNamespaces: {} });
      const closed = world.gateways().flatMap(({ destinations }) => destinations);
      await world.syncClient([], "client", { annotation: closed, selector: [] });
      await world.syncRouter([]);
    },
    found: [
      [
        "client-refused",
        /^pod default\/client: Egress "internet\/nat" does not allow pods of namespace "default": ask /,
      ],
    ],
  },
  {
    when: "a namespace of no pod has what a client had",
    make: (world) => {
      world.objects.pods = world.objects.pods.filter(({ metadata }) => metadata.name !== "client");
      return world.syncRouter([]);
    },
    found: [["client-leftover", /^\/run\/netns\/client, the namespace of no pod, still has /]],
  },
  {
    when: "a client has nothing",
    make: (world) => world.syncClient([]),
    found: [["client-lacks", /^pod default\/client has nothing of Egress internet\/nat: neither tunnel nor rule$/]],
  },
  {
    when: "a pod names an Egress that does not exist",
    make: (world) => {
      world.objects.pods = [...world.objects.pods, podOf("wrong", [], { names: "nta", node: "node2" })];
    },
    found: [["client-annotation", /^pod default\/wrong: Egress "internet\/nta" does not exist/]],
  },
  {
    when: "an annotation is rubbish",
    make: (world) => {
      world.objects.pods = [...world.objects.pods, podOf("wrong", [], { names: "../..,\u0000" })];
    },
    found: [["client-annotation", /is not a name that an Egress can have/]],
  },
  {
    when: "the namespace of a client is not found",
    make: (world) => world.lost.add("client"),
    found: [["client-namespace", /^no network namespace on this node is that of pod default\/client$/]],
  },
  {
    when: "the namespace of a pod cannot be read",
    make: (world) => world.unreadable.add("client").add("router"),
    found: [
      ["client-namespace", /^the network namespace of pod default\/client was not read: the listing was interrupted$/],
      ["router-namespace", /^the network namespace of router internet\/router was not read: the listing/],
    ],
  },
  {
    when: "of two pods with one address the later one has the namespace",
    make: (world) => {
      const later = podOf("later", Object.values(ADDRESSES.client), { names: EGRESS.name });
      world.objects.pods = [
        ...world.objects.pods,
        { ...later, metadata: { ...later.metadata, creationTimestamp: "2026-01-01T00:00:00Z" } },
      ];
    },
    found: [["client-namespace", /that of pod default\/client$/]],
  },
  {
    when: "the node has no driver",
    make: (world) => {
      const { driver: _driver, ...rest } = world.settings;
      world.settings = { ...rest, fault: "this kernel has no fou" };
    },
    found: [["egress-driver", /^pods that name an Egress cannot start: this kernel has no fou$/]],
  },
  {
    when: "a client has come to which the router has no way",
    make: (world) => {
      world.objects.pods = [
        ...world.objects.pods,
        podOf("far", ["10.64.2.9", "fd02::209"], { names: EGRESS.name, node: "node2" }),
      ];
    },
    found: [
      [
        "router-no-way",
        /^router internet\/router has no way to 10\.64\.2\.9 of pod default\/far, fd02::209 of pod default\/far$/,
      ],
    ],
  },
  {
    when: "a client has gone to which the router has a way",
    make: (world) => world.syncRouter([...Object.values(ADDRESSES.client), ip("10.64.3.3")]),
    found: [
      [
        "router-stray-way",
        /^router internet\/router has a way to what is no client of Egress internet\/nat: 10\.64\.3\.3$/,
      ],
    ],
  },
  {
    when: "the router's rule is gone",
    make: ({ stacks: { router } }) => router.rules.delete({ family: 4, priority: 2000 }),
    found: [["router-lacks", /^router internet\/router lacks IPv4 rule 2000 from all iif eth0 lookup 118$/]],
  },
  {
    when: "the router has a rule of ours that it does not need",
    make: ({ stacks: { router } }) => router.rules.add({ family: 4, priority: 1900, table: 117, protocol: 30 }),
    found: [["router-surplus", /^router internet\/router has too much: IPv4 rule 1900 from all lookup 117$/]],
  },
  {
    when: "the router does not masquerade",
    make: ({ nfts: { router } }) => {
      const table = { family: "ip", name: "nat" } as const;
      const rules = router.listRules(table, "POSTROUTING");
      router.run(
        rules.map(({ handle }) => ({ op: "delete", kind: "rule", table, chain: "POSTROUTING", handle }) as const),
      );
    },
    found: [["router-filter", /^the packet filter of router internet\/router lacks the IPv4 rule that masquerades$/]],
  },
  {
    when: "the router masquerades what it should not",
    make: ({ nfts: { router } }) =>
      router.run(
        new NftTransaction({ family: "ip", name: "nat" }).rule("POSTROUTING", "counter masquerade", {
          comment: "coil-egress 01234567",
        }),
      ),
    found: [["router-filter", /has an IPv4 rule "coil-egress 01234567" that masquerades and that it does not need$/]],
  },
  {
    when: "connection tracking of the router has entries of an address that is no pod's",
    make: (world) => {
      world.flow("10.64.3.3", "203.0.113.9");
      world.flow("10.64.3.3", String(ADDRESSES.router[4]), { protocol: 17, dstPort: PORT });
      // These are a client's, another pod's, the router's own, and one to the router itself.
      world.flow(String(ADDRESSES.client[4]), "203.0.113.9");
      world.flow(String(ADDRESSES.plain[4]), "203.0.113.9");
      world.flow(String(ADDRESSES.router[4]), "203.0.113.9");
      world.flow("198.51.100.1", String(ADDRESSES.router[4]), { dstPort: 8081 });
    },
    found: [
      [
        "router-flows",
        /^connection tracking of router internet\/router has entries of addresses that no pod has: 10\.64\.3\.3 \(2\)$/,
      ],
    ],
  },
  {
    when: "the namespace of a router is not found",
    make: (world) => world.lost.add("router"),
    found: [["router-namespace", /^no network namespace on this node is that of router internet\/router$/]],
  },
  {
    when: "a pod that is no router has a router's rule",
    make: (world) => world.syncRouter([], "plain"),
    found: [["router-leftover", /^pod default\/plain, which names no Egress, has a router's rule$/]],
  },
  {
    when: "a router names an Egress",
    make: (world) => {
      const router = podOf("router", Object.values(ADDRESSES.router), { labels: egressLabels("nat"), names: "nat" });
      world.objects.pods = world.objects.pods.map((pod) => (pod.metadata.name === "router" ? router : pod));
    },
    found: [["client-annotation", /^pod internet\/router: it is a router of an Egress, and routers cannot use one$/]],
  },
  {
    when: "a router is there whose Egress is not",
    make: (world) => {
      world.objects.pods = [...world.objects.pods, podOf("old", ["10.64.5.5"], { labels: egressLabels("old") })];
    },
    found: [
      [
        "router-leftover",
        /^pod internet\/old has the labels of a router of Egress internet\/old, which does not exist$/,
      ],
    ],
  },
  {
    when: "the Egress has no Service: its clients keep what they have",
    make: (world) => {
      world.objects.services = [];
    },
    found: [["egress-service", /^Egress internet\/nat has no Service/]],
  },
  {
    when: "the Service has no address",
    make: (world) =>
      editFirst(world, "services", { spec: { clusterIP: "None", ports: [{ port: PORT, protocol: "UDP" }] } }),
    found: [["egress-service", /^the Service of Egress internet\/nat has no ClusterIP$/]],
  },
  {
    when: "the Service has another port",
    make: (world) =>
      editFirst(world, "services", {
        spec: { clusterIPs: Object.values(SERVICE).map(String), ports: [{ port: 80, protocol: "UDP" }] },
      }),
    found: [["egress-service", /^the Service of Egress internet\/nat has no UDP port 5555$/]],
  },
  {
    when: "the Egress has no Deployment",
    make: (world) => {
      world.objects.deployments = [];
    },
    found: [["egress-deployment", /^Egress internet\/nat has no Deployment/]],
  },
  {
    when: "no endpoint is ready",
    make: (world) => {
      world.objects.slices = (world.objects.slices ?? []).map((slice) => ({
        ...slice,
        endpoints: [{ addresses: [], conditions: { ready: false } }],
      }));
    },
    found: [["egress-endpoints", /has no ready endpoint: packets of its clients go nowhere$/]],
  },
  {
    when: "the Egress wants more routers than its Deployment",
    make: (world) => editEgress(world, { replicas: 2 }),
    found: [["egress-replicas", /^Egress internet\/nat: its Deployment has replicas: 1, and not 2$/]],
  },
  {
    when: "a router is not available, and the status does not tell",
    make: (world) => editFirst(world, "deployments", { status: { availableReplicas: 0 } }),
    found: [
      ["egress-replicas", /0 of 1 routers are available$/],
      ["egress-replicas", /its status tells 1 routers, and its Deployment has 0 that are available$/],
    ],
  },
  {
    when: "a destination is not a CIDR",
    make: (world) => editEgress(world, { destinations: ["0.0.0.0/0", "::/0", "172.20.0.0/16", "everywhere"] }),
    found: [
      [
        "egress-destination",
        /^Egress internet\/nat has destinations that are no CIDRs: spec\.destinations\[3\] "everywhere"$/,
      ],
    ],
  },
  {
    when: "an Egress has no spec",
    make: (world) => {
      const { spec: _, ...bare } = world.objects.egresses[0] ?? assert.fail();
      world.objects.egresses = [
        ...world.objects.egresses,
        { ...bare, metadata: { ...bare.metadata, name: "bare" } },
      ] as never;
    },
    found: [
      ["egress-destination", /^Egress internet\/bare has no destinations: it leads nothing anywhere$/],
      ["egress-service", /^Egress internet\/bare has no Service/],
      ["egress-deployment", /^Egress internet\/bare has no Deployment/],
    ],
  },
  {
    when: "objects of an Egress that is gone are left",
    make: (world) => {
      const [service = assert.fail()] = world.objects.services ?? [];
      world.objects.services = [service, { ...service, metadata: { ...service.metadata, name: "old" } }];
    },
    found: [["egress-leftover", /^Service internet\/old has the labels of an Egress that does not exist$/]],
  },
  {
    when: "the rights of routers are those of another namespace",
    make: (world) => {
      const [binding = assert.fail()] = world.objects.bindings ?? [];
      world.objects.bindings = [
        { ...binding, subjects: [{ kind: "ServiceAccount", name: "coil-egress", namespace: "gone" }] },
      ];
    },
    found: [
      ["egress-subjects", /^ClusterRoleBinding coil-egress lacks the subject ServiceAccount internet\/coil-egress$/],
      ["egress-subjects", /^ClusterRoleBinding coil-egress has the subject ServiceAccount gone\/coil-egress, but/],
    ],
  },
  {
    when: "there are no rights of routers",
    make: (world) => {
      world.objects.bindings = [];
    },
    found: [["egress-subjects", /^there is no ClusterRoleBinding coil-egress/]],
  },
];

for (const driver of DRIVERS) {
  test(`auditEgress, ${driver.name}: each fault is named, and nothing else`, async (t) => {
    for (const { when, make, found } of CASES) {
      await t.test(when, async () => {
        const world = await openWorld(driver);
        await make(world);
        const { findings } = await world.audit();
        const shown = JSON.stringify(findings, undefined, 1);
        assert.deepEqual(
          findings.map(({ kind }) => kind),
          found.map(([kind]) => kind),
          shown,
        );
        for (const [at, [, pattern]] of found.entries()) assert.match(findings[at]?.text ?? "", pattern);
      });
    }
  });

  test(`auditEgress, ${driver.name}: nothing is found where all is as it should be, also behind another plugin, nor in what is elsewhere or just starts`, async () => {
    const world = await openWorld(driver);
    for (const isChained of [false, true]) {
      world.isChained = isChained;
      const { findings, checked } = await world.audit();
      assert.deepEqual(findings, []);
      assert.deepEqual(checked, { egresses: 1, clients: 1, routers: 1, clientsElsewhere: 0, routersElsewhere: 0 });
    }
    const far = podOf("far", ["10.64.2.9", "fd02::209"], { names: EGRESS.name, node: "node2" });
    const router = podOf("r2", ["10.64.2.8"], { labels: egressLabels(EGRESS.name), node: "node2" });
    const starting = podOf("starts", [], { names: EGRESS.name });
    const done = {
      ...podOf("done", ["10.64.0.7"], { names: EGRESS.name }),
      status: { phase: "Succeeded" as const, podIPs: [{ ip: "10.64.0.7" }] },
    };
    world.objects.pods = [...world.objects.pods, far, router, starting, done];
    await world.syncRouter([...Object.values(ADDRESSES.client), ip("10.64.2.9"), ip("fd02::209")]);
    const { findings, checked } = await world.audit();
    assert.deepEqual(findings, []);
    assert.deepEqual(checked, { egresses: 1, clients: 2, routers: 1, clientsElsewhere: 1, routersElsewhere: 1 });
  });

  test(`auditEgress, ${driver.name}: nothing is found of closed destinations of a family of which no address is known`, async () => {
    const world = await openWorld(driver);
    world.isChained = true;
    const [ipv4, ipv6] = world.gateways();
    await world.syncClient([ipv6 ?? assert.fail()], "client", {
      annotation: ipv4?.destinations ?? [],
      selector: [],
    });
    await world.syncRouter([ADDRESSES.client[6]]);
    world.objects.pods = world.objects.pods.map((pod) =>
      pod.metadata.name === "client" ? podOf("client", [ADDRESSES.client[6]], { names: EGRESS.name }) : pod,
    );
    assert.deepEqual((await world.audit()).findings, []);
  });

  test(`auditEgress, ${driver.name}: marks of originatingOnly are compared in the packet filter`, async () => {
    const world = await openWorld(driver);
    editEgress(world, { originatingOnly: true });
    const before = (await world.audit()).findings.map(({ kind, text }) => `${kind} ${text}`);
    assert.match(before.join(), /^client-lacks .*IPv4 rule 1000 .*IPv6 rule 1000/);
    await world.syncClient(world.gateways(true));
    assert.deepEqual((await world.audit()).findings, []);
    const { client } = world.nfts;
    const table = { family: "ip6", name: "mangle" } as const;
    const [rule = assert.fail()] = client.listRules(table, "output");
    client.run([{ op: "delete", kind: "rule", table, chain: "output", handle: rule.handle }]);
    const [found, ...more] = (await world.audit()).findings;
    assert.deepEqual(more, []);
    assert.match(found?.text ?? "", /lacks IPv6 rule of the packet filter "coil-output-eth0 mark \d+"$/);
    editEgress(world, { originatingOnly: false });
    const left = (await world.audit()).findings.map(({ text }) => text).join();
    assert.match(left, /has too much: .*IPv4 rule 1000/);
  });
}

test("auditEgress: a router with tunnels of another driver than its clients' node is named", async () => {
  const world = await openWorld(vxlanDriver);
  world.settings = { ...world.settings, driver: "fou" };
  await world.syncClient([]);
  const { findings } = await world.audit();
  assert.ok(
    findings.some(
      ({ kind, text }) => kind === "egress-driver" && /has tunnels of vxlan, .*: node node1 \(fou\)$/.test(text),
    ),
    JSON.stringify(findings),
  );
});

test("auditEgress: with --enable-egress=false the pods of a node are elsewhere; without rights on Services clients are not compared", async () => {
  const world = await openWorld(vxlanDriver);
  world.objects.services = undefined;
  world.objects.deployments = undefined;
  world.objects.slices = undefined;
  world.objects.bindings = undefined;
  world.stacks.client.rules.delete({ family: 4, priority: 1900 });
  const { findings, checked } = await world.audit();
  assert.deepEqual([findings, checked.clients, checked.clientsElsewhere, checked.routers], [[], 0, 1, 1]);
});

test("auditEgress: every kind has a case", () => {
  const seen = new Set(CASES.flatMap(({ found }) => found.map(([kind]) => kind)));
  assert.deepEqual(
    Object.keys(EGRESS_FINDINGS).filter((kind) => !seen.has(kind as EgressFinding["kind"])),
    [],
  );
});

/** Each object of ours in a namespace, as what removes it. */
function removals(stack: NetStack, isOurs: (name: string) => boolean): (() => void)[] {
  const links = stack.links.list().filter(({ name }) => isOurs(name));
  const own = new Set(links.map(({ index }) => index));
  const families = [4, 6] as const;
  return [
    ...links.map(
      ({ index }) =>
        () =>
          stack.links.delete(index),
    ),
    ...stack.neighbours
      .list()
      .filter(({ linkIndex, state }) => own.has(linkIndex) && state === "permanent")
      .map((one) => () => stack.neighbours.delete(one)),
    ...families.flatMap((family) =>
      stack.rules
        .list(family)
        .filter(({ protocol }) => protocol === 30)
        .map((rule) => () => stack.rules.delete(rule)),
    ),
    ...families.flatMap((family) =>
      stack.routes.list({ family, protocol: 30 }).map(
        ({ dst, table, type, metric }) =>
          () =>
            stack.routes.delete({ dst, table, type, metric }),
      ),
    ),
    ...families.flatMap((family) => stack.fou.list(family).map((entry) => () => stack.fou.delete(entry))),
  ];
}

/** Objects within our marks that nobody needs. */
const ADDITIONS: readonly ((stack: NetStack) => void)[] = [
  (stack) => stack.rules.add({ family: 4, priority: 1000, fwmark: 5, table: 1005, protocol: 30 }),
  (stack) => stack.rules.add({ family: 6, priority: 2050, table: 254, to: Cidr.parse("fd99::/16"), protocol: 30 }),
  (stack) => stack.routes.add({ dst: Cidr.parse("9.9.9.9/32"), table: 118, type: "throw", protocol: 30, metric: 7 }),
  (stack) => stack.routes.add({ dst: Cidr.parse("fd88::/32"), table: 118, type: "unreachable", metric: 7 }),
  (stack) =>
    stack.routes.add({
      dst: Cidr.parse("9.9.9.9/32"),
      table: 1000 + (stack.links.get({ name: "eth0" })?.index ?? 0),
      type: "throw",
      protocol: 30,
      metric: 7,
    }),
  (stack) => stack.links.create({ kind: "dummy", name: "nat_0400beef" }),
  (stack) => stack.links.create({ kind: "dummy", name: "fou4_0400beef" }),
  (stack) =>
    stack.links.create({
      kind: "vxlan",
      name: "nat_04beef00",
      vni: 1,
      local: ip("10.64.0.7"),
      remote: ip("10.68.0.200"),
      port: 7777,
      mac: MacAddress.parse("02:00:00:00:55:01"),
    }),
];
const isOurLink = (name: string): boolean => /^(fou[46]_|nat_|coil_)/.test(name);

test("auditEgress: of clients and routers with any destinations nothing is found; of any object that is removed or added something is", async () => {
  const destinations = fc.uniqueArray(
    fc.constantFrom("0.0.0.0/0", "10.0.0.0/8", "8.8.8.0/24", "172.20.0.0/16", "::/0", "fd77::/16"),
    { minLength: 1 },
  );
  const any = fc.record({
    driver: fc.constantFrom<TunnelDriver>(...DRIVERS),
    destinations,
    originatingOnly: fc.boolean(),
    auto: fc.boolean(),
    member: fc.constantFrom("client" as const, "router" as const),
    at: fc.nat(1000),
    adds: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(any, async ({ driver, destinations: all, originatingOnly, auto, member, at, adds }) => {
      const world = await openWorld(driver);
      editEgress(world, { destinations: all, originatingOnly, fouSourcePortAuto: auto });
      const gateways = ([4, 6] as const).flatMap((family) => {
        const own = all.map((one) => Cidr.parse(one)).filter((one) => one.family === family);
        const gateway = {
          egress: EGRESS,
          address: SERVICE[family],
          destinations: own,
          sourcePortAuto: auto,
          originatingOnly,
        };
        return own.length === 0 ? [] : [gateway];
      });
      await world.syncClient(gateways);
      assert.deepEqual((await world.audit()).findings, []);
      const stack = world.stacks[member];
      const changes = adds ? ADDITIONS.map((add) => () => add(stack)) : removals(stack, isOurLink);
      changes[at % changes.length]?.();
      const { findings } = await world.audit();
      assert.ok(findings.length > 0);
      assert.ok(findings.every(({ node }) => node === NODE));
    }),
    { numRuns: 200 },
  );
});

for (const driver of DRIVERS) {
  const router = { uid: "uid-client", egress: "internet/nat", router: "uid-router" };
  const own = (world: World): Gateway[] =>
    world.gateways().map((one) => ({ ...one, address: ADDRESSES.router[one.address.family] }));

  test(`audit, ${driver.name}: a client that coild has moved to a router's own address is right, and one that it has not moved is stale`, async () => {
    const world = await openWorld(driver);
    await world.syncClient(own(world));
    assert.ok((await world.audit()).findings.some(({ kind }) => kind === "client-stale-tunnel"));
    world.settings = { ...world.settings, redirects: [router] };
    assert.deepEqual((await world.audit()).findings, []);
    // A pod that is no router of the Egress.
    world.settings = { ...world.settings, redirects: [{ ...router, router: "uid-plain" }] };
    assert.notDeepEqual((await world.audit()).findings, []);
  });
}
