import assert from "node:assert/strict";
import { test } from "node:test";
import { defaultNic, gatewaysOf, isDefaultRoute, PRIMARY_NIC, routeMetric } from "#features/nic";
import type { NicStatus } from "#kube/nic";
import type { NeutronPlace } from "./ovs/place.ts";
import { type NodeSettings, type PlanRequest, planAdded, planClaim, shownNics } from "./plan-claim.ts";
import type { DevicePlace } from "./types.ts";

const DEFAULTS: NodeSettings = {
  ...{ ovsdb: "/db.sock", bridge: "br-int", plugMode: "auto", nsPrefix: "vpc-ns" },
  routing: { primary: PRIMARY_NIC, defaultNic, gatewaysOf, isDefaultRoute, routeMetric },
};
const PORT = "30b6911d-1111-4111-8111-000000000001";

function requestOf(
  nics: readonly NicStatus[],
  init: {
    readonly config?: object;
    readonly spec?: object;
    readonly primaryName?: string;
    readonly isSecondary?: boolean;
  } = {},
): PlanRequest {
  const config = {
    name: "vpc",
    type: "vpc-neutron",
    plugMode: "auto",
    vmMode: "veth",
    nsPrefix: "vpc-ns",
    probe_tm_ms: 0,
    mizarTuning: true,
    ...init.config,
  };
  return {
    claim: {
      metadata: { name: "uid", namespace: "n", uid: "u", resourceVersion: "1" },
      spec: {
        podName: "p",
        podUID: "uid",
        vpc: "v",
        provider: "n",
        nics: nics.map(({ name }) => ({ name })),
        ...init.spec,
      },
    },
    nics,
    call: {
      containerId: "c1",
      netns: "/run/netns/s",
      ifname: "eth0",
      args: {},
      podUid: "uid",
      namespace: "n",
      podName: "p",
      annotations: undefined,
      config,
    } as unknown as PlanRequest["call"],
    primaryName: init.primaryName,
    isSecondary: init.isSecondary === true,
  };
}

function isNeutronPlace(place: DevicePlace | undefined): place is NeutronPlace {
  return place?.kind === "neutron";
}

const ETH0: NicStatus = {
  name: "eth0",
  portID: PORT,
  state: "InProgress",
  mac: "FA:16:3E:00:00:01",
  mtu: 1450,
  ips: [{ ip: "10.0.0.5", prefixLength: 24, gateway: "10.0.0.1" }],
  routes: [
    { dst: "0.0.0.0/0", via: "10.0.0.9" },
    { dst: "172.16.0.5/16", via: "10.0.0.2" },
  ],
  dns: { nameservers: ["10.0.0.3"], search: ["example.com"] },
  vifDetails: { ovsHybridPlug: false, bridgeName: "br-other", datapathType: "netdev" },
};
const ETH1: NicStatus = {
  name: "eth1",
  portID: "77c2aa00-2222-4222-8222-000000000002",
  state: "InProgress",
  ips: [{ ip: "10.1.0.5", prefixLength: 24, gateway: "10.1.0.1" }],
};

test("T-33, T-34: a plan has the NICs in order, one default by metric, routes and name servers of the subnets", () => {
  const plan = planClaim(requestOf([ETH0, ETH1]), DEFAULTS);
  assert.deepEqual(
    plan.nics.map(({ name, index, metric, mtu, mac }) => [name, index, metric, mtu, mac]),
    [
      ["eth0", 0, 100, 1450, "fa:16:3e:00:00:01"],
      ["eth1", 1, 101, undefined, undefined],
    ],
  );
  assert.deepEqual(plan.nics[0]?.routes, [
    { dst: "172.16.0.0/16", via: "10.0.0.2" },
    { dst: "0.0.0.0/0", via: "10.0.0.9", metric: 100 },
  ]);
  assert.deepEqual(plan.nics[1]?.rules, [{ from: "10.1.0.5/32", table: 101, priority: 20_001 }]);
  assert.deepEqual(plan.dns, { nameservers: ["10.0.0.3"], search: ["example.com"] });
  const second = planClaim(
    requestOf([ETH0, ETH1], { spec: { nics: [{ name: "eth0" }, { name: "eth1", defaultRoute: true }] } }),
    DEFAULTS,
  );
  assert.deepEqual(
    second.nics.map(({ metric }) => metric),
    [102, 100],
  );
  assert.equal(planClaim(requestOf([ETH0], { primaryName: "net1" }), DEFAULTS).nics[0]?.name, "net1");
  const last = planClaim(requestOf([ETH1, ETH0], { primaryName: "net1" }), DEFAULTS);
  assert.deepEqual(
    last.nics.map(({ name }) => name),
    ["eth1", "net1"],
    "the primary NIC is the one with this name, wherever the pod lists it",
  );
});

test("a secondary network: every NIC has a table of its own, and none has the default route of the sandbox", () => {
  const plan = planClaim(requestOf([ETH0, ETH1], { primaryName: "net1", isSecondary: true }), DEFAULTS);
  assert.equal(plan.ifname, "eth0", "the CNI_IFNAME of the call");
  assert.deepEqual(plan.nics[0]?.routes, [
    { dst: "172.16.0.0/16", via: "10.0.0.2" },
    { dst: "10.0.0.0/24", table: 100 },
    { dst: "172.16.0.0/16", via: "10.0.0.2", table: 100 },
    { dst: "0.0.0.0/0", via: "10.0.0.9", table: 100 },
  ]);
  assert.deepEqual(plan.nics[0]?.rules, [{ from: "10.0.0.5/32", table: 100, priority: 20_000 }]);
  assert.ok(
    plan.nics.every(({ routes }) => routes.every(({ dst, table }) => dst !== "0.0.0.0/0" || table !== undefined)),
  );
  const added = planAdded(plan, requestOf([ETH1]).claim, ETH1, DEFAULTS);
  assert.ok(typeof added !== "string" && added.secondary === true);
});

test("the shape follows plugMode, and what the binding says; a port that says nothing is hybrid", () => {
  const shape = (nic: NicStatus, config: object = {}) => {
    const place = planClaim(requestOf([nic], { config }), DEFAULTS).nics[0]?.place;
    assert.ok(isNeutronPlace(place));
    return [place.hybrid, place.bridge, place.netdev, place.ovsdb];
  };
  const asks = (nic: NicStatus, config: object = {}) => {
    const place = planClaim(requestOf([nic], { config }), DEFAULTS).nics[0]?.place;
    return isNeutronPlace(place) && place.hybridUnlessOvn === true;
  };
  // The switch is asked only where neither the binding nor the operator says it.
  assert.deepEqual([asks(ETH0), asks(ETH1), asks(ETH1, { plugMode: "hybrid" })], [false, true, false]);
  assert.deepEqual(shape(ETH0), [false, "br-other", true, "/db.sock"]);
  assert.deepEqual(shape(ETH1), [true, "br-int", false, "/db.sock"]);
  assert.deepEqual(shape(ETH0, { plugMode: "hybrid", integrationBridge: "br-x", ovsdb: "unix:/other.sock" }), [
    true,
    "br-x",
    true,
    "/other.sock",
  ]);
  assert.deepEqual(shape(ETH1, { plugMode: "direct" })[0], false);
});

test("the port's external ids name port, pod and container, as the agent of Neutron wants them", () => {
  const place = planClaim(requestOf([ETH0]), DEFAULTS).nics[0]?.place;
  assert.ok(isNeutronPlace(place));
  assert.deepEqual(place.externalIds, {
    "iface-id": PORT,
    "iface-status": "active",
    "attached-mac": "fa:16:3e:00:00:01",
    "vm-uuid": "uid",
    "vm-id": "c1",
  });
});

test("a machine's TAP has no addresses in the sandbox; a container has a veth, whatever vmMode says", () => {
  const config = { vmMode: "tap", vmOwnerUid: 107 };
  const machine = planClaim(requestOf([ETH0], { config, spec: { vm: { flavor: "m1" } } }), DEFAULTS).nics[0];
  assert.ok(machine !== undefined && isNeutronPlace(machine.place));
  assert.deepEqual(
    [machine.place.end, machine.place.ownerUid, machine.addresses, machine.routes],
    ["tap", 107, [], []],
  );
  const container = planClaim(requestOf([ETH0], { config }), DEFAULTS).nics[0];
  assert.ok(container !== undefined && isNeutronPlace(container.place));
  assert.equal(container.place.end, "veth");
});

test("advertisements are taken only for a NIC that wants IPv6 and has no address of it", () => {
  const accepts = (nic: NicStatus, ipv6Enabled: boolean) =>
    planClaim(requestOf([nic], { spec: { nics: [{ name: "eth0", ipv6Enabled }] } }), DEFAULTS).nics[0]?.acceptRa;
  assert.deepEqual([accepts(ETH0, false), accepts(ETH0, true)], [false, true]);
  assert.equal(accepts({ ...ETH0, ips: [{ ip: "fd00::5", prefixLength: 64 }] }, true), false);
});

test("T-48: a device of Alcor is where the claim says, else by the network's prefix and the port's id", () => {
  const of = (nic: NicStatus, config: object = {}) =>
    planClaim(requestOf([nic], { config: { type: "vpc-alcor", ...config } }), DEFAULTS).nics[0]?.place;
  assert.deepEqual(of({ ...ETH0, vethName: "vethx", netns: "/run/netns/vpc-ns1" }), {
    kind: "alcor",
    netns: "/run/netns/vpc-ns1",
    device: "vethx",
    waitMs: 3000,
    mizarTuning: true,
  });
  assert.deepEqual(of({ ...ETH0, networkID: "net-1" }, { nsPrefix: "x-", probe_tm_ms: 500, mizarTuning: false }), {
    kind: "alcor",
    netns: "/run/netns/x-net-1",
    device: "veth30b6911d-11",
    waitMs: 500,
    mizarTuning: false,
  });
});

test("hot-plug: a NIC that is added has table and metric that no other has, and is made as its sandbox", () => {
  const nics = (["eth0", "eth1", "eth2"] as const).map(
    (name, at): NicStatus => ({
      ...ETH0,
      name,
      portID: PORT.replace(/1$/, String(at)),
      ips: [{ ip: `10.${at}.0.5`, prefixLength: 24, gateway: `10.${at}.0.1` }],
      routes: [],
    }),
  );
  const config = { plugMode: "direct", ovsdb: "unix:/other.sock" };
  // The second NIC has the default route, so the first one has a metric that the third would get.
  const spec = { nics: [{ name: "eth0" }, { name: "eth1", defaultRoute: true }] };
  const request = requestOf(nics.slice(0, 2), { config, spec });
  const plan = planClaim(request, DEFAULTS);
  assert.deepEqual(
    plan.nics.map(({ metric }) => metric),
    [102, 100],
  );
  const [, , eth2] = nics;
  const added = planAdded(plan, request.claim, eth2 ?? assert.fail(), DEFAULTS);
  assert.ok(typeof added !== "string");
  assert.deepEqual([added.index, added.metric, added.rules[0]?.table], [2, 103, 102]);
  assert.ok(isNeutronPlace(added.place));
  assert.deepEqual(
    [added.place.hybrid, added.place.ovsdb, added.place.externalIds["vm-id"]],
    [false, "/other.sock", "c1"],
  );
  const { settings: _, ...old } = plan;
  assert.match(String(planAdded(old, request.claim, eth2 ?? assert.fail(), DEFAULTS)), /when it is made anew/);
  const again = planAdded(
    { ...plan, nics: [...plan.nics.slice(0, 1), added] },
    request.claim,
    nics[1] ?? assert.fail(),
    DEFAULTS,
  );
  assert.ok(typeof again !== "string" && again.index === 1, "a table that is free is used");
});

test("hot-plug: what a claim shows of a node's NICs has the names of the claim, and the TAP devices of a machine", () => {
  const request = requestOf([ETH0], { config: { vmMode: "tap" }, spec: { vm: {} }, primaryName: "net0" });
  const { nics } = planClaim(request, DEFAULTS);
  const claim = { status: { nics: [ETH0] } };
  assert.deepEqual(shownNics([...nics, ...nics], claim), [{ name: "eth0", device: "tap30b6911d-11" }]);
});
