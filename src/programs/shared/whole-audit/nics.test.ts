import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import { Cidr, IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { OvsdbError } from "#cloud/ovsdb";
import type { VpcPort } from "#cloud/vpc";
import {
  inspectNics,
  Journal,
  type NeutronPlace,
  NicNetwork,
  type NicPlan,
  planRouting,
  type SandboxPlan,
} from "#features/nic-cni";
import { auditNics, decodeNicNode, NIC_FINDINGS, type NicNode } from "#features/nic-report";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import type { Pod } from "#kube/client";
import type { NamedNic, NicClaim, NicStatus } from "#kube/nic";
import { FakeSwitch } from "#test/ovs-fake";
import { nicAuditRules, nicRules } from "../nic-control/index.ts";

const folder = mkdtempSync(join(tmpdir(), "isthmus-nic-audit-"));
after(() => rmSync(folder, { recursive: true }));
const OVSDB = "/db.sock";
const NODE = "node-1";
const HOST = "host-1.example";
const CLUSTER = "c1";
const UIDS = ["0a64ecb8-6f54-4d0f-9e42-00000000000a", "0a64ecb8-6f54-4d0f-9e42-00000000000b"] as const;
const PORTS = ["30b6911d-11", "77c2aa00-22", "9d01cc00-33"].map((one) => `${one}11-4111-8111-000000000001`);

/** Copies that a test may change. */
type Mutable<T> = { -readonly [Key in keyof T]: Mutable<T[Key]> };

/** Everything that an audit compares. */
interface View {
  pods: Pod[];
  claims: NicClaim[];
  ports: VpcPort[];
  node: Mutable<NicNode>;
}

function planOf(
  nic: NicStatus,
  index: number,
  { uid, container }: { uid: string; container: string },
): NicPlan<NeutronPlace> {
  const addresses = (nic.ips ?? []).map(({ ip, prefixLength }) => `${ip}/${prefixLength}`);
  const gateways = { 4: nic.ips?.[0]?.gateway, 6: undefined };
  return {
    name: nic.name,
    portId: nic.portID ?? "",
    index,
    metric: 100 + index,
    ...(nic.mac === undefined ? {} : { mac: nic.mac }),
    mtu: 1450,
    addresses,
    ...planRouting({ addresses, gateways, hostRoutes: [], metric: 100 + index }, index),
    acceptRa: false,
    place: {
      kind: "neutron",
      ovsdb: OVSDB,
      bridge: "br-int",
      hybrid: index === 0,
      end: "veth",
      netdev: true,
      externalIds: { "iface-id": nic.portID ?? "", "vm-id": container, "vm-uuid": uid },
    },
  };
}

function statusOf(at: number, name: string): NicStatus {
  return {
    name,
    portID: PORTS[at] ?? "",
    createdByController: true,
    state: "Ready",
    networkID: "net-1",
    mac: `fa:16:3e:00:00:0${at}`,
    mtu: 1450,
    ips: [{ ip: `10.${at}.0.5`, prefixLength: 24, gateway: `10.${at}.0.1` }],
    host: HOST,
    vifType: "ovs",
  };
}

function portOf(nic: NicStatus, uid: string, pod: string, init: Partial<VpcPort> = {}): VpcPort {
  return {
    id: nic.portID ?? "",
    name: `nic-${uid}-${nic.name}`,
    networkId: "net-1",
    projectId: "p",
    status: "ACTIVE",
    mac: nic.mac ?? "",
    addresses: (nic.ips ?? []).map(({ ip }) => ({ subnetId: "s", ip })),
    deviceId: uid,
    deviceOwner: "compute:isthmus",
    description: JSON.stringify({ cluster: CLUSTER, ns: "default", pod, nic: nic.name }),
    createdAt: "2026-01-01T00:00:00Z",
    revision: 1,
    securityGroups: [],
    binding: { host: HOST, vifType: "ovs" },
    ...init,
  };
}

/** A pod with two NICs and one with a port of its user, both plugged, and all of it in agreement. */
class World {
  readonly kernel = new FakeKernel();
  readonly ovs = new FakeSwitch();
  readonly pods: Pod[] = [];
  readonly claims: NicClaim[] = [];
  readonly ports: VpcPort[] = [];
  readonly #network: NicNetwork;

  private constructor() {
    this.#network = new NicNetwork({
      kernel: this.kernel,
      switchOf: () => this.ovs,
      journal: new Journal(mkdtempSync(join(folder, "journal-"))),
      watch: {
        links: () => ({ [Symbol.asyncDispose]: async () => undefined }),
        folder: () => ({ [Symbol.dispose]: () => undefined }),
      },
      announce: () => undefined,
      clock: new FakeClock(),
      log: nullLogger,
    });
  }

  static async open(signal: AbortSignal): Promise<World> {
    const world = new World();
    await world.#add("a", UIDS[0], [statusOf(0, "eth0"), statusOf(1, "eth1")], signal);
    await world.#add("b", UIDS[1], [statusOf(2, "eth0")], signal);
    const user = world.ports[2];
    assert.ok(user !== undefined);
    world.ports[2] = { ...user, name: "mine", description: "" };
    return world;
  }

  async #add(name: string, uid: string, nics: readonly NicStatus[], signal: AbortSignal): Promise<void> {
    const container = `container-${name}`;
    this.kernel.createNetNs(name);
    const plan: SandboxPlan = {
      containerId: container,
      podUid: uid,
      network: "vpc",
      netns: `/run/netns/${name}`,
      nics: nics.map((nic, at) => planOf(nic, at, { uid, container })),
      dns: {},
    };
    await this.#network.setUp(plan, { signal });
    const metadata = { name: uid, namespace: "default", uid, resourceVersion: "1" };
    const claim: NicClaim = {
      metadata: { ...metadata, labels: { "isthmus.dev/node": NODE, "isthmus.dev/cluster": CLUSTER } },
      spec: {
        podName: name,
        podUID: uid,
        vpc: "vpc-1",
        provider: "neutron",
        nics: nics.map((nic) => ({ name: nic.name })),
      },
      status: { phase: "Active", nodeName: NODE, nics: [...nics], conditions: [{ type: "Plugged", status: "True" }] },
    };
    const bare = {
      metadata: {
        ...metadata,
        name,
        annotations: { "isthmus.dev/vpc": "vpc-1", "isthmus.dev/nics": JSON.stringify(claim.spec.nics) },
      },
      spec: { nodeName: NODE },
      status: { phase: "Running", conditions: [] },
    };
    const { annotations = {}, condition } = nicRules.surface(bare, claim, 0);
    this.pods.push({
      ...bare,
      metadata: { ...bare.metadata, annotations: { ...bare.metadata.annotations, ...annotations } },
      status: { ...bare.status, conditions: condition === undefined ? [] : [condition] },
    } as unknown as Pod);
    this.claims.push(claim);
    this.ports.push(...nics.map((nic) => portOf(nic, uid, name)));
  }

  /** All as an audit sees it, through the codec. */
  async look(signal: AbortSignal): Promise<View> {
    const inspected = await inspectNics({ kernel: this.kernel, switchOf: () => this.ovs }, this.#network.plans(), {
      ovsdb: OVSDB,
      signal,
    });
    const state = { node: NODE, claims: [...UIDS], ...inspected };
    const text = JSON.stringify(state);
    const node = decodeNicNode(JSON.parse(text));
    assert.equal(JSON.stringify(JSON.parse(JSON.stringify(node))).length, text.length);
    return structuredClone({ pods: this.pods, claims: this.claims, ports: this.ports, node }) as View;
  }

  /** Works in the host's namespace, or that of a pod. */
  in<T>(where: "own" | "a" | "b", work: (stack: NetStack) => T): T {
    using ns = this.kernel.openNetNs(where === "own" ? "own" : { name: where });
    using stack = this.kernel.openStack(ns);
    return work(stack);
  }
}

function audit({ pods, claims, ports, node }: View) {
  const input = {
    pods,
    claims,
    nodes: [node],
    ports: new Map([["neutron", ports]]),
    clusterId: CLUSTER,
    hostOf: (name: string) => (name === NODE ? HOST : name),
    now: Date.parse("2026-01-02T00:00:00Z"),
  };
  return auditNics(input, nicAuditRules(new Map()));
}
const found = (view: View) => ({
  kinds: [...new Set(audit(view).findings.map(({ kind }) => kind))].sort(),
  text: audit(view)
    .findings.map(({ text }) => text)
    .join("\n"),
});

test("auditNics: pods, claims, ports and a node that agree have no finding", async (t) => {
  const world = await World.open(t.signal);
  assert.deepEqual(audit(await world.look(t.signal)), {
    findings: [],
    checked: { claims: 2, ports: 3, nics: 3, claimsElsewhere: 0 },
  });
});

test("auditNics: an address of IPv6 that a port has beside those that its NIC uses is found only if the NIC wants IPv6", async (t) => {
  const world = await World.open(t.signal);
  const view = await world.look(t.signal);
  const port = first(view.ports);
  port.addresses = [...port.addresses, { subnetId: "auto", ip: "2001:db8::a" }];
  assert.deepEqual(audit(view).findings, []);
  first<NamedNic>(first(view.claims).spec.nics).ipv6Enabled = true;
  assert.ok(found(view).kinds.includes("nic-port-differs"));
});

/** Changes of a view, and the kinds that an audit then finds. */
type Row = readonly [kinds: string, text: RegExp, change: (view: View) => void];
const first = <T>(list: readonly T[]): Mutable<T> => (list[0] ?? assert.fail("empty")) as Mutable<T>;
const nicOfPod = (view: View): Mutable<NicStatus> => first(first(view.claims).status?.nics ?? []);
const annotate = (view: View, key: string, text: string): void => {
  (first(view.pods).metadata as { annotations: Record<string, string> }).annotations[`isthmus.dev/${key}`] = text;
};
const ROWS: readonly Row[] = [
  [
    "nic-wish",
    /^pod default\/a asks for NICs that it cannot have.*unicast IP/,
    (view) => annotate(view, "nics", '[{"ip":"x","subnet":"s"}]'),
  ],
  [
    "nic-wish",
    /has the network of its node/,
    (view) => {
      first(view.pods).spec = { ...first(view.pods).spec, hostNetwork: true } as never;
    },
  ],
  [
    "nic-claim-memory nic-claim-missing nic-journal-stray",
    /pod default\/a asks for NICs of VPC vpc-1 and has no NicClaim/,
    (view) => void view.claims.shift(),
  ],
  [
    "nic-claim-leftover",
    /pod default\/a with uid \S+ does not exist, and its NicClaim does \(Active\)/,
    (view) => void view.pods.shift(),
  ],
  ["nic-claim-spec", /asks for VPC vpc-2, and its NicClaim has VPC vpc-1/, (view) => annotate(view, "vpc", "vpc-2")],
  [
    "nic-claim-spec",
    /asks for the NICs \[\{"name":"eth0"\}\], and/,
    (view) => annotate(view, "nics", '[{"name":"eth0"}]'),
  ],
  [
    "nic-claim-node",
    /pod default\/a is on node node-2, and its NicClaim names node-1/,
    (view) => {
      first(view.pods).spec = { nodeName: "node-2" } as never;
    },
  ],
  ["nic-shown", /annotation isthmus\.dev\/nic-status should change/, (view) => annotate(view, "nic-status", "[]")],
  [
    "nic-claim-memory",
    /nic-agent does not know the NicClaim of pod default\/a/,
    (view) => void view.node.claims.shift(),
  ],
  ["nic-claim-memory", /nic-agent knows NicClaim other/, (view) => void view.node.claims.push("other")],
  [
    "nic-port-missing",
    /eth0 of the NicClaim of pod default\/a names port 30b6911d\S+, which neutron does not have/,
    (view) => void view.ports.shift(),
  ],
  [
    "nic-port-differs",
    /has host host-2 instead of host-1\.example/,
    (view) => (first(view.ports).binding = { host: "host-2", vifType: "ovs" }),
  ],
  ["nic-port-differs", /has status DOWN instead of ACTIVE/, (view) => (first(view.ports).status = "DOWN")],
  [
    "nic-port-differs",
    /has addresses 10\.9\.9\.9 instead of 10\.0\.0\.5/,
    (view) => (first(view.ports).addresses = [{ subnetId: "s", ip: "10.9.9.9" }]),
  ],
  [
    "nic-port-differs",
    /host node-9 instead of host-1\.example, which is node node-1/,
    (view) => {
      nicOfPod(view).host = "node-9";
      first(view.ports).binding = { host: "node-9", vifType: "ovs" };
    },
  ],
  [
    "nic-port-double",
    /port second is a second one of eth0 of the NicClaim of pod default\/a, beside 30b6911d/,
    (view) => void view.ports.push({ ...first(view.ports), id: "second" }),
  ],
  [
    "nic-port-unrecorded",
    /port other was made for eth7 of the NicClaim of pod default\/a, which names no port/,
    (view) => void view.ports.push({ ...first(view.ports), id: "other", name: `nic-${UIDS[0]}-eth7` }),
  ],
  [
    "nic-port-orphan",
    /port lost of neutron was made for the pod with uid 1111\S+ in namespace default, which has no NicClaim/,
    (view) => {
      const uid = "11111111-6f54-4d0f-9e42-00000000000a";
      view.ports.push({ ...first(view.ports), id: "lost", deviceId: uid, name: `nic-${uid}-eth0` });
    },
  ],
  [
    "nic-device-stray nic-switch-stray nic-unplugged",
    /pod default\/a runs without the NICs of its VPC/,
    (view) => void view.node.sandboxes.shift(),
  ],
  [
    "nic-report",
    /the NICs of the NicClaim of pod default\/a are plugged, and it has no condition Plugged/,
    (view) => {
      first(view.claims).status = { ...first(view.claims).status, conditions: [] };
    },
  ],
  [
    "nic-journal-stray",
    /container old, whose pod with uid gone has no NicClaim on this node/,
    (view) =>
      void view.node.sandboxes.push({
        containerId: "old",
        podUid: "gone",
        netns: "/run/netns/a",
        isThere: true,
        nics: [],
      }),
  ],
  [
    "nic-journal-differs",
    /eth0 of .* has in the journal MTU 1400 instead of 1450/,
    (view) => (first(first(view.node.sandboxes).nics).mtu = 1400),
  ],
  [
    "nic-journal-differs",
    /in the journal MAC address fa:16:3e:00:00:99 instead of fa:16:3e:00:00:00/,
    (view) => (first(first(view.node.sandboxes).nics).mac = "fa:16:3e:00:00:99"),
  ],
  [
    "nic-device-lacks",
    /eth0 of port 30b6911d\S+ \(container container-a\): device qbr30b6911d-11 is missing/,
    (view) =>
      void view.node.devices.splice(
        view.node.devices.findIndex(({ name }) => name.startsWith("qbr")),
        1,
      ),
  ],
  [
    "nic-device-stray",
    /device tapffffffff-ff of port x and container gone is in no journal/,
    (view) => void view.node.devices.push({ name: "tapffffffff-ff", isUp: true, portId: "x", containerId: "gone" }),
  ],
  [
    "nic-switch",
    /the database at \/db\.sock cannot be read: no server/,
    (view) => (view.node.switches = [{ ovsdb: OVSDB, fault: "no server", bridges: [], ports: [] }]),
  ],
  [
    "nic-switch",
    /there is no bridge br-int/,
    (view) => (view.node.switches = [{ ovsdb: OVSDB, bridges: [], ports: [] }]),
  ],
  [
    "nic-switch-lacks",
    /eth0 of port 30b6911d\S+: br-int lacks it as qvo30b6911d-11/,
    (view) => void first(view.node.switches).ports.shift(),
  ],
  [
    "nic-switch-lacks",
    /qvo30b6911d-11 is not served: could not open/,
    (view) => (first(first(view.node.switches).ports).error = "could not open"),
  ],
  [
    "nic-switch-stray",
    /port tapff of br-int is of x and container gone, which is in no journal/,
    (view) =>
      void first(view.node.switches).ports.push({
        bridge: "br-int",
        device: "tapff",
        externalIds: { "iface-id": "x", "vm-id": "gone", "vm-uuid": "y" },
        error: "",
      }),
  ],
  [
    "nic-sandbox",
    /\/run\/netns\/a, the network namespace of container container-a, does not exist/,
    (view) => (first(view.node.sandboxes).isThere = false),
  ],
];

test("auditNics: each disagreement has its kind and names the object", async (t) => {
  const world = await World.open(t.signal);
  const seen = new Set<string>();
  for (const [kinds, text, change] of ROWS) {
    const view = await world.look(t.signal);
    change(view);
    const result = found(view);
    assert.deepEqual(result.kinds, kinds.split(" "), `${text}\n${result.text}`);
    assert.match(result.text, new RegExp(text.source, "m"));
    for (const kind of result.kinds) seen.add(kind);
  }
  assert.deepEqual(
    Object.keys(NIC_FINDINGS).filter((kind) => !seen.has(kind)),
    [],
    "kinds without a row",
  );
});

/** The lists of a view, by name. */
function listsOf({ pods, claims, ports, node }: View): Readonly<Record<string, unknown[]>> {
  return {
    pods,
    claims,
    ports,
    memory: node.claims,
    sandboxes: node.sandboxes,
    devices: node.devices,
    bridges: first(node.switches).bridges,
    rows: first(node.switches).ports,
    ...Object.fromEntries(node.sandboxes.map(({ podUid, nics }) => [`nics of ${podUid}`, nics])),
    ...Object.fromEntries(
      claims.map(({ metadata, status }) => [`status of ${metadata.name}`, (status?.nics ?? []) as unknown[]]),
    ),
  };
}

test("auditNics: a NIC that is being added to, or taken from, a running pod is no disagreement; one that the claim does not tell is", async (t) => {
  const world = await World.open(t.signal);
  const plugged = { generation: 1, nics: [{ name: "eth0" }] };
  const changed = (change: (view: View) => void) => {
    return async () => {
      const view = await world.look(t.signal);
      const claim = first(view.claims);
      claim.status = { ...claim.status, plugged };
      change(view);
      return found(view);
    };
  };
  // The port is there, and the node has not begun.
  const waiting = await changed(({ node, claims }) => {
    const [sandbox] = node.sandboxes;
    sandbox?.nics.pop();
    node.devices = node.devices.filter(({ portId }) => portId !== PORTS[1]);
    const [one] = node.switches;
    if (one !== undefined) one.ports = one.ports.filter(({ externalIds }) => externalIds["iface-id"] !== PORTS[1]);
    assert.equal(claims[0]?.status?.nics?.length, 2);
  })();
  assert.deepEqual(waiting, { kinds: [], text: "" });
  // The node has made half of it.
  const half = await changed(({ node }) => {
    const nic = node.sandboxes[0]?.nics[1];
    assert.ok(nic !== undefined);
    Object.assign(nic, { isPending: true, differences: ["eth1 is missing in the sandbox"] });
    node.devices = node.devices.filter(({ portId }) => portId !== PORTS[1]);
  })();
  assert.deepEqual(half, { kinds: [], text: "" });
  const untold = await changed(() => undefined)();
  assert.deepEqual(untold.kinds, ["nic-report"]);
  assert.match(untold.text, /eth1 of the NicClaim of pod default\/a is plugged, and it does not say so/);
});

test("auditNics: any object that is removed, and any that is added, is found", async (t) => {
  const world = await World.open(t.signal);
  const whole = await world.look(t.signal);
  let removed = 0;
  for (const [name, list] of Object.entries(listsOf(whole))) {
    for (const at of list.keys()) {
      const view = structuredClone(whole);
      listsOf(view)[name]?.splice(at, 1);
      assert.notDeepEqual(audit(view).findings, [], `${name}: ${JSON.stringify(list[at])} was removed`);
      removed += 1;
    }
  }
  assert.ok(removed > 25, `${removed}`);
  // An object with other names; a bridge, and a port that nobody made for us, are others'.
  const copies = ["pods", "claims", "ports", "memory", "sandboxes", "devices", "rows"] as const;
  fc.assert(
    fc.property(fc.constantFrom(...copies), fc.nat(), fc.uuid(), (name, pick, uid) => {
      const view = structuredClone(whole);
      const list = listsOf(view)[name] ?? [];
      // The user's own port has no mark of ours.
      const originals = name === "ports" ? list.slice(0, 2) : list;
      const original = JSON.stringify(originals[pick % originals.length]);
      const text = [...UIDS, ...PORTS].reduce((all, old) => all.replaceAll(old, uid), original);
      const other = JSON.parse(text.replaceAll(/"(qvo|tap|qvb|qbr)[0-9a-f]{8}-../g, `"$1${uid.slice(0, 11)}`));
      list.push(other);
      assert.notDeepEqual(audit(view).findings, [], `${name}: ${text} was added`);
    }),
    { numRuns: 200 },
  );
});

test("inspectNics: every link, address, route and rule of NICs that is removed in a kernel is found, and those that are added", async (t) => {
  const kindsAfter = async (change: (world: World) => void): Promise<string[]> => {
    const world = await World.open(t.signal);
    change(world);
    return found(await world.look(t.signal)).kinds;
  };
  const { kernel } = await World.open(t.signal);
  using own = kernel.openNetNs("own");
  using host = kernel.openStack(own);
  for (const { name } of host.links.list().filter((link) => link.alias !== undefined)) {
    const kinds = await kindsAfter((world) =>
      world.in("own", (stack) => stack.links.delete(stack.links.get({ name })?.index ?? assert.fail())),
    );
    assert.ok(kinds.includes("nic-device-lacks"), `${name}: ${kinds}`);
    const down = await kindsAfter((world) =>
      world.in("own", (stack) => stack.links.set(stack.links.get({ name })?.index ?? assert.fail(), { up: false })),
    );
    assert.ok(down.includes("nic-device-lacks"), `${name}: ${down}`);
  }
  const eth1 = (stack: NetStack): number => stack.links.get({ name: "eth1" })?.index ?? assert.fail();
  const inPod: readonly ((stack: NetStack) => unknown)[] = [
    (stack) => stack.links.set(eth1(stack), { mtu: 1400 }),
    (stack) => stack.addresses.delete(stack.addresses.list({ linkIndex: eth1(stack) })[0] ?? assert.fail()),
    (stack) =>
      stack.addresses.replace({ linkIndex: eth1(stack), address: IpAddress.parse("10.1.0.77"), prefixLength: 24 }),
    (stack) =>
      stack.routes.add({
        dst: Cidr.parse("203.0.113.0/24"),
        linkIndex: eth1(stack),
        gateway: IpAddress.parse("10.1.0.9"),
      }),
    (stack) => stack.routes.delete(stack.routes.list({ family: 4, table: 101 })[0] ?? assert.fail()),
    (stack) => stack.rules.delete(stack.rules.list(4).find(({ table }) => table === 101) ?? assert.fail()),
    (stack) => stack.rules.add({ family: 4, priority: 20_003, table: 103, from: Cidr.parse("10.8.0.1/32") }),
  ];
  const gone = await kindsAfter((world) => world.in("a", (stack) => stack.links.delete(eth1(stack))));
  assert.deepEqual(gone, ["nic-device-lacks", "nic-sandbox"], "its peer goes too");
  for (const [at, change] of inPod.entries())
    assert.deepEqual(await kindsAfter((world) => world.in("a", change)), ["nic-sandbox"], `change ${at}`);
  // A real kernel removes the peers of its veths too.
  assert.deepEqual(await kindsAfter(({ kernel: one }) => one.deleteNetNs("b")), ["nic-sandbox"]);
  assert.deepEqual(await kindsAfter(({ ovs }) => ovs.lose()), ["nic-switch"]);
  assert.deepEqual(
    await kindsAfter(({ ovs }) => {
      for (const call of [1, 2]) ovs.failNext("ports", new OvsdbError("unreachable", `no server ${call}`));
    }),
    ["nic-switch"],
  );
});
