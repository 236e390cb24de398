import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, type TestContext, test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import { Cidr, IpAddress, MacAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { OvsdbError } from "#cloud/ovsdb";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import { FakeSwitch } from "#test/ovs-fake";
import type { AlcorNic, AlcorPlace } from "./alcor/place.ts";
import {
  cniResult,
  inspectNics,
  Journal,
  NicCniError,
  NicNetwork,
  type NicPlan,
  planRouting,
  type SandboxPlan,
} from "./index.ts";
import { parsePlan } from "./journal.ts";
import { alcorDeviceName, deviceNames } from "./names.ts";
import { neutronSteps } from "./ovs/make.ts";
import type { NeutronNic, NeutronPlace } from "./ovs/place.ts";

const folder = mkdtempSync(join(tmpdir(), "isthmus-nic-cni-"));
after(() => rmSync(folder, { recursive: true }));
const PORTS = ["30b6911d-1111-4111-8111-000000000001", "77c2aa00-2222-4222-8222-000000000002"] as const;
const OVSDB = "/var/run/openvswitch/db.sock";
const SANDBOX = "/run/netns/sandbox";

interface Bed {
  readonly kernel: FakeKernel;
  readonly ovs: FakeSwitch;
  readonly network: NicNetwork;
  readonly clock: FakeClock;
  readonly journalFolder: string;
  readonly signal: AbortSignal;
  readonly announced: string[];
  /** Tells waits for Alcor's devices that something has changed. */
  readonly changed: () => void;
  /** A network on the same kernel, switch and journal, as after a restart. */
  readonly again: (recorded?: ConstructorParameters<typeof NicNetwork>[0]["recorded"]) => NicNetwork;
}

function openBed(t: TestContext): Bed {
  const kernel = new FakeKernel();
  const ovs = new FakeSwitch();
  const clock = new FakeClock();
  const journalFolder = mkdtempSync(join(folder, "journal-"));
  kernel.createNetNs("sandbox");
  const listeners = new Set<() => void>();
  const listen = (onChange: () => void) => {
    listeners.add(onChange);
    return () => void listeners.delete(onChange);
  };
  const announced: string[] = [];
  const again = (recorded?: ConstructorParameters<typeof NicNetwork>[0]["recorded"]): NicNetwork =>
    new NicNetwork({
      ...(recorded === undefined ? {} : { recorded }),
      kernel,
      switchOf: () => ovs,
      journal: new Journal(journalFolder),
      watch: {
        links: (_ns, onChange) => {
          const end = listen(onChange);
          return { [Symbol.asyncDispose]: async () => end() };
        },
        folder: (_path, onChange) => ({ [Symbol.dispose]: listen(onChange) }),
      },
      announce: (_ns, { mac }, addresses) => announced.push(...addresses.map((address) => `${address} ${mac}`)),
      clock,
      log: nullLogger,
    });
  const changed = (): void => {
    for (const listener of listeners) listener();
  };
  return { kernel, ovs, network: again(), clock, journalFolder, signal: t.signal, announced, changed, again };
}

function nicOf(at: 0 | 1, place: Partial<NeutronPlace> = {}, containerId = "c1"): NeutronNic {
  const address = `10.${at}.0.5/24`;
  const routing = planRouting(
    {
      addresses: [address, `fd0${at}::5/64`],
      gateways: { 4: `10.${at}.0.1`, 6: undefined },
      hostRoutes: [{ dst: `172.16.${at}.0/24`, via: `10.${at}.0.2` }],
      metric: 100 + at,
    },
    at,
  );
  return {
    name: `eth${at}`,
    portId: PORTS[at],
    index: at,
    metric: 100 + at,
    mac: `fa:16:3e:00:00:0${at}`,
    mtu: 1450,
    addresses: [address, `fd0${at}::5/64`],
    ...routing,
    acceptRa: false,
    place: {
      kind: "neutron",
      ovsdb: OVSDB,
      bridge: "br-int",
      hybrid: true,
      end: "veth",
      netdev: true,
      externalIds: { "iface-id": PORTS[at], "vm-id": containerId, "vm-uuid": "uid-1" },
      ...place,
    },
  };
}

function planOf(nics: readonly NicPlan[], containerId = "c1"): SandboxPlan {
  return { containerId, podUid: "uid-1", network: "vpc", netns: SANDBOX, nics, dns: { nameservers: ["10.0.0.3"] } };
}

/** Nothing is left of any NIC: devices, ports, rules, journal. */
function assertEmpty({ kernel, ovs, journalFolder, network }: Bed): void {
  assert.deepEqual(kernel.dump("own").match(/^link .*/gm), ["link lo loopback mtu 65536 up"]);
  const sandbox = kernel.dump({ name: "sandbox" });
  assert.deepEqual([sandbox.match(/^link (?!lo).*/gm), sandbox.match(/^rule.*/gm)], [null, null], sandbox);
  assert.deepEqual([[...ovs.rows.keys()], readdirSync(journalFolder), network.plans()], [[], [], []]);
}

test("plan: a hybrid port has bridge and pair, a direct one its veth alone, a machine its TAP; the port comes last", () => {
  const steps = (place: Partial<NeutronPlace>) =>
    neutronSteps(nicOf(0, place)).map((step) =>
      `${step.make} ${"name" in step ? step.name : "device" in step ? step.device : ""}`.trim(),
    );
  assert.deepEqual(steps({}), [
    "bridge qbr30b6911d-11",
    "pair qvb30b6911d-11",
    "veth tap30b6911d-11",
    "sandbox",
    "port qvo30b6911d-11",
  ]);
  assert.deepEqual(steps({ hybrid: false }), ["veth tap30b6911d-11", "sandbox", "port tap30b6911d-11"]);
  assert.deepEqual(steps({ hybrid: false, end: "tap" }), ["tap tap30b6911d-11", "port tap30b6911d-11"]);
  assert.ok(Object.values(deviceNames(PORTS[0])).every((name) => name.length <= 15));
  assert.equal(alcorDeviceName(PORTS[0]), "veth30b6911d-11");
});

test("T-33: one default route by metric, and a table and a rule for every NIC but the first", () => {
  assert.deepEqual(
    [nicOf(0).routes, nicOf(0).rules],
    [
      [
        { dst: "172.16.0.0/24", via: "10.0.0.2" },
        { dst: "0.0.0.0/0", via: "10.0.0.1", metric: 100 },
      ],
      [],
    ],
  );
  assert.deepEqual(nicOf(1).routes, [
    { dst: "172.16.1.0/24", via: "10.1.0.2" },
    { dst: "0.0.0.0/0", via: "10.1.0.1", metric: 101 },
    { dst: "10.1.0.0/24", table: 101 },
    { dst: "fd01::/64", table: 101 },
    { dst: "172.16.1.0/24", via: "10.1.0.2", table: 101 },
    { dst: "0.0.0.0/0", via: "10.1.0.1", table: 101 },
  ]);
  assert.deepEqual(nicOf(1).rules, [
    { from: "10.1.0.5/32", table: 101, priority: 20_001 },
    { from: "fd01::5/128", table: 101, priority: 20_001 },
  ]);
});

test("OVN: what its bindings do not tell the switch says: no Linux bridge, and checksums in the sandbox for a data path in user space", async (t) => {
  const bed = openBed(t);
  using ns = bed.kernel.openNetNs({ name: "sandbox" });
  using stack = bed.kernel.openStack(ns);
  const unsaid = { hybridUnlessOvn: true, netdev: false };
  const made = async (): Promise<readonly (readonly [string, boolean, boolean])[]> => {
    const plan = await bed.network.setUp(planOf([nicOf(0, unsaid)]), bed);
    assert.deepEqual(bed.network.plans(), [plan], "the journal has what was made");
    const checksums = stack.offloads
      .active(stack.links.get({ name: "eth0" })?.index ?? 0)
      .includes("tx-checksum-ip-generic");
    const found = [...bed.ovs.rows.keys()].map(
      (device) =>
        [device, checksums, plan.nics[0]?.place.kind === "neutron" && "hybridUnlessOvn" in plan.nics[0].place] as const,
    );
    await bed.network.tearDown("c1", bed);
    return found;
  };
  assert.deepEqual(await made(), [["qvo30b6911d-11", true, false]]);
  bed.ovs.ids = { "ovn-remote": "tcp:192.0.2.1:6642" };
  assert.deepEqual(await made(), [["tap30b6911d-11", true, false]]);
  bed.ovs.datapath = "netdev";
  assert.deepEqual(await made(), [["tap30b6911d-11", false, false]]);
  // Without a journal a DEL has the claim alone, which does not tell which of the two ports was made.
  await bed.network.setUp(planOf([nicOf(0, unsaid)]), bed);
  rmSync(bed.journalFolder, { recursive: true });
  await bed.again().tearDown("c1", { ...bed, known: planOf([nicOf(0, unsaid)]) });
  assert.deepEqual([...bed.ovs.rows.keys()], []);
});

test("a secondary network: the other plugin's eth0 stays, its NIC has the name of CNI_IFNAME, and CHECK and DEL are of that name", async (t) => {
  const bed = openBed(t);
  using ns = bed.kernel.openNetNs({ name: "sandbox" });
  using stack = bed.kernel.openStack(ns);
  const others = stack.links.create({ kind: "dummy", name: "eth0" });
  stack.links.set(others.index, { up: true });
  await assert.rejects(
    bed.network.setUp({ ...planOf([nicOf(0)]), ifname: "eth0" }, bed),
    (error) => error instanceof NicCniError && /the sandbox has another device eth0$/.test(error.message),
  );
  assert.deepEqual(bed.network.plans(), []);
  const nic = {
    ...nicOf(0),
    name: "net1",
    secondary: true,
    rules: [{ from: "10.0.0.5/32", table: 100, priority: 20_000 }],
  };
  const plan = await bed.network.setUp({ ...planOf([nic]), ifname: "net1" }, bed);
  assert.deepEqual(
    stack.links.list().map(({ name }) => name),
    ["lo", "eth0", "net1"],
  );
  assert.deepEqual(
    cniResult(plan).interfaces?.map(({ name }) => name),
    ["tap30b6911d-11", "net1"],
  );
  const again = bed.again();
  assert.deepEqual(await again.check("c1", SANDBOX, { ...bed, ifname: "net1" }), []);
  assert.deepEqual(await again.check("c1", SANDBOX, { ...bed, ifname: "eth0" }), [
    "the NICs of the sandbox were made as net1, not eth0",
  ]);
  // The same network as the pod's first one, or twice: the NICs that are there stay.
  await assert.rejects(
    again.setUp({ ...planOf([nicOf(0)]), ifname: "net2" }, bed),
    /already, as net1: .* not as net2 too/,
  );
  assert.deepEqual(await again.tearDown("c1", { ...bed, ifname: "net2" }), {
    found: true,
    podUid: undefined,
    lost: [],
  });
  assert.deepEqual(await again.check("c1", SANDBOX, { ...bed, ifname: "net1" }), []);
  await again.tearDown("c1", { ...bed, ifname: "net1" });
  assert.deepEqual([again.plans(), stack.rules.list(4).filter(({ priority }) => priority === 20_000)], [[], []]);
  assert.deepEqual(
    stack.links.list().map(({ name }) => name),
    ["lo", "eth0"],
  );
});

test("T-34: a gateway outside of the NIC's prefixes is on the link", () => {
  const routing = {
    addresses: ["10.0.0.5/32"],
    gateways: { 4: "10.0.0.1", 6: "FE80:0::1" },
    hostRoutes: [],
    metric: 100,
  };
  assert.deepEqual(planRouting(routing, 0).routes, [
    { dst: "0.0.0.0/0", via: "10.0.0.1", onlink: true, metric: 100 },
    { dst: "::/0", via: "fe80::1", metric: 100 },
  ]);
});

test("ADD: devices of the host, MAC, MTU, addresses and routes in the sandbox, the ids of the port; checksums off for a switch in user space", async (t) => {
  const bed = openBed(t);
  using ns = bed.kernel.openNetNs({ name: "sandbox" });
  using stack = bed.kernel.openStack(ns);
  const ipv6OfLoopback = "net/ipv6/conf/lo/disable_ipv6";
  stack.sysctl.set(ipv6OfLoopback, "1");
  const plan = await bed.network.setUp(planOf([nicOf(0), nicOf(1, { hybrid: false, netdev: false })]), bed);
  assert.equal(stack.sysctl.get(ipv6OfLoopback), "0", "a NIC answers itself at its IPv6 address");
  const host = bed.kernel.dump("own");
  for (const line of [
    /^link qbr30b6911d-11 bridge mtu 1450 up alias isthmus-nic:30b6911d-\S+:c1$/m,
    /^link qvb30b6911d-11 veth mtu 1450 up peer qvo30b6911d-11 master qbr30b6911d-11 alias/m,
    /^link qvo30b6911d-11 veth mtu 1450 up peer qvb30b6911d-11 alias/m,
    /^link tap30b6911d-11 veth mtu 1450 up peer eth0 master qbr30b6911d-11 alias/m,
    /^link tap77c2aa00-22 veth mtu 1450 up peer eth1 alias/m,
  ])
    assert.match(host, line);
  using own = bed.kernel.openNetNs("own");
  using hostStack = bed.kernel.openStack(own);
  for (const { name } of hostStack.links.list().filter((link) => link.name !== "lo")) {
    const of = (family: 4 | 6, key: string): string => hostStack.sysctl.get(`net/ipv${family}/conf/${name}/${key}`);
    const settings = [of(4, "accept_redirects"), of(6, "accept_ra"), of(6, "accept_redirects"), of(6, "disable_ipv6")];
    assert.deepEqual(settings, ["0", "0", "0", "1"], `${name} takes no routes from the sandbox or the switch`);
  }
  const sandbox = bed.kernel.dump({ name: "sandbox" });
  for (const line of [
    /^link lo loopback mtu 65536 up$/m,
    /^link eth0 veth mtu 1450 up/m,
    /10\.1\.0\.5\/24/,
    /fd00::5\/64/,
  ])
    assert.match(sandbox, line);
  assert.deepEqual([...bed.ovs.rows.keys()], ["qvo30b6911d-11", "tap77c2aa00-22"]);
  assert.equal(bed.ovs.rows.get("qvo30b6911d-11")?.externalIds["vm-id"], "c1");
  const [eth0, eth1] = ["eth0", "eth1"].map((name) => stack.links.get({ name }));
  assert.ok(eth0 !== undefined && eth1 !== undefined);
  assert.equal(String(eth0.mac), "fa:16:3e:00:00:00");
  assert.ok(!stack.offloads.active(eth0.index).includes("tx-checksum-ip-generic"));
  assert.ok(stack.offloads.active(eth1.index).includes("tx-checksum-ip-generic"));
  assert.equal(stack.sysctl.get("net/ipv6/conf/eth0/accept_ra"), "0");
  assert.deepEqual(await bed.network.check("c1", SANDBOX, bed), []);
  bed.network.announce(plan);
  assert.deepEqual(bed.announced.slice(0, 2), ["10.0.0.5 fa:16:3e:00:00:00", "fd00::5 fa:16:3e:00:00:00"]);
  assert.deepEqual(await bed.network.tearDown("c1", bed), { found: true, podUid: "uid-1", lost: [] });
  assertEmpty(bed);
});

test("a virtual machine's TAP is left to its runtime: the sandbox has nothing, and the result has the MAC of the NIC", async (t) => {
  const bed = openBed(t);
  const plan = await bed.network.setUp(planOf([nicOf(0, { end: "tap", ownerUid: 107 })]), bed);
  assert.match(bed.kernel.dump("own"), /^link tap30b6911d-11 tun mtu 1450 up master qbr30b6911d-11/m);
  assert.doesNotMatch(bed.kernel.dump({ name: "sandbox" }), /eth0/);
  assert.deepEqual(cniResult(plan).interfaces, [{ name: "tap30b6911d-11", mac: "fa:16:3e:00:00:00", mtu: 1450 }]);
  await bed.network.tearDown("c1", bed);
  assertEmpty(bed);
});

test("result: the host's device without and the NIC with its sandbox, addresses with gateways, routes of the main table, name servers", () => {
  assert.deepEqual(cniResult(planOf([nicOf(0)])), {
    interfaces: [{ name: "tap30b6911d-11" }, { name: "eth0", mac: "fa:16:3e:00:00:00", mtu: 1450, sandbox: SANDBOX }],
    ips: [
      { address: "10.0.0.5/24", gateway: "10.0.0.1", interface: 1 },
      { address: "fd00::5/64", interface: 1 },
    ],
    routes: [
      { dst: "172.16.0.0/24", gw: "10.0.0.2" },
      { dst: "0.0.0.0/0", gw: "10.0.0.1", priority: 100 },
    ],
    dns: { nameservers: ["10.0.0.3"] },
  });
});

test("inspectNics: what plans need and what is there; a sandbox that cannot be read hides no other one, and nothing is changed", async (t) => {
  const bed = openBed(t);
  await bed.network.setUp(planOf([nicOf(0), nicOf(1, { hybrid: false })]), bed);
  const before = [bed.kernel.dump("own"), bed.kernel.dump({ name: "sandbox" }), [...bed.ovs.rows]];
  const look = () =>
    inspectNics({ kernel: bed.kernel, switchOf: () => bed.ovs }, bed.network.plans(), {
      ovsdb: OVSDB,
      signal: t.signal,
    });
  const { sandboxes, devices, switches } = await look();
  const [sandbox] = sandboxes;
  assert.deepEqual(
    sandbox?.nics.map((nic) => [
      nic.name,
      nic.isConfigured,
      nic.devices.map(({ name }) => name).join(" "),
      nic.differences,
    ]),
    [
      ["eth0", true, "qbr30b6911d-11 qvb30b6911d-11 qvo30b6911d-11 tap30b6911d-11", []],
      ["eth1", true, "tap77c2aa00-22", []],
    ],
  );
  assert.deepEqual(
    devices.map(({ name, master }) => [name, master]),
    [
      ["qbr30b6911d-11", undefined],
      ["qvb30b6911d-11", "qbr30b6911d-11"],
      ["qvo30b6911d-11", undefined],
      ["tap30b6911d-11", "qbr30b6911d-11"],
      ["tap77c2aa00-22", undefined],
    ],
  );
  assert.deepEqual(
    switches.map(({ bridges, ports }) => [bridges, ports.length]),
    [[["br-int"], 2]],
  );
  assert.ok(sandbox?.nics[1]?.link?.routes.includes("default via 10.1.0.1 dev eth1 table 101"));
  assert.deepEqual(sandbox?.nics[1]?.link?.rules, [
    "20001: from 10.1.0.5/32 lookup 101",
    "20001: from fd01::5/128 lookup 101",
  ]);
  bed.kernel.fail("routes.list", "failed");
  const unread = (await look()).sandboxes[0]?.nics;
  assert.match(unread?.[0]?.differences.join() ?? "", /^it cannot be read: .*injected failure/);
  assert.deepEqual([unread?.length, unread?.[0]?.devices.length], [2, 4]);
  bed.ovs.failNext("ports", new OvsdbError("unreachable", "no server"));
  assert.equal((await look()).switches[0]?.fault, "no server");
  assert.deepEqual([bed.kernel.dump("own"), bed.kernel.dump({ name: "sandbox" }), [...bed.ovs.rows]], before);
  await bed.network.tearDown("c1", bed);
  assertEmpty(bed);
});

test("inspectNics: a device of Alcor's agent is compared with what it had, and a machine's TAP has nothing in the sandbox", async (t) => {
  const bed = openBed(t);
  using vpcNs = bed.kernel.createNetNs("vpc-nsv1");
  using vpc = bed.kernel.openStack(vpcNs);
  alcorAgent(vpc, PORTS[0]).rename();
  await bed.network.setUp(planOf([alcorNic(), nicOf(1, { end: "tap" })]), bed);
  const look = async () => {
    const deps = { kernel: bed.kernel, switchOf: () => bed.ovs };
    return (await inspectNics(deps, bed.network.plans(), { ovsdb: OVSDB, signal: t.signal })).sandboxes[0]?.nics;
  };
  const [alcor, machine] = (await look()) ?? [];
  assert.deepEqual([alcor?.kind, alcor?.devices, alcor?.port, alcor?.differences], ["alcor", [], undefined, []]);
  assert.ok(alcor?.link?.routes.includes("172.20.0.0/16 via 10.8.0.9 dev eth0"), String(alcor?.link?.routes));
  assert.deepEqual([machine?.isConfigured, machine?.link, machine?.differences], [false, undefined, []]);
  using ns = bed.kernel.openNetNs({ name: "sandbox" });
  using stack = bed.kernel.openStack(ns);
  const linkIndex = stack.links.get({ name: "eth0" })?.index ?? assert.fail();
  stack.addresses.replace({ linkIndex, address: IpAddress.parse("10.8.0.99"), prefixLength: 24 });
  stack.links.set(linkIndex, { mtu: 1300 });
  assert.deepEqual((await look())?.[0]?.differences, [
    "eth0 has MTU 1300, not 1400",
    "eth0 has the address 10.8.0.99/24, which its port does not have",
  ]);
});

test("T-37: an ADD that fails at any operation of the kernel leaves no device, no port, no rule and no journal", async (t) => {
  for (const place of [{}, { hybrid: false }]) {
    for (let after = 0, isBroken = true; isBroken; after += 1) {
      const bed = openBed(t);
      bed.kernel.fail("*", "failed", { after });
      try {
        await bed.network.setUp(planOf([nicOf(0, place), nicOf(1, place)]), bed);
        isBroken = false;
        assert.ok(after > 40, `only ${after} operations were broken`);
      } catch (error) {
        assert.match(String(error), /injected failure/);
        assertEmpty(bed);
      }
    }
  }
});

test("T-37: an ADD that fails at the switch, before and after the port is made, leaves nothing; so does an abort", async (t) => {
  for (const late of [false, true]) {
    const bed = openBed(t);
    bed.ovs.failNext("addPort", new OvsdbError("timeout", "no answer"), { late });
    await assert.rejects(bed.network.setUp(planOf([nicOf(0), nicOf(1)]), bed), { code: "timeout" });
    assertEmpty(bed);
  }
  const bed = openBed(t);
  bed.ovs.bridgeNames.clear();
  await assert.rejects(bed.network.setUp(planOf([nicOf(0)]), bed), { code: "no-bridge" });
  assertEmpty(bed);
  const aborted = AbortSignal.abort(new Error("enough"));
  await assert.rejects(bed.network.setUp(planOf([nicOf(0)]), { signal: aborted }), /enough/);
  assertEmpty(bed);
});

test("a rollback that fails keeps the plan: DEL removes the rest, also after a restart", async (t) => {
  const bed = openBed(t);
  bed.ovs.failNext("addPort", new OvsdbError("timeout", "first"), { late: true });
  bed.ovs.failNext("deletePort", new OvsdbError("unreachable", "second"));
  await assert.rejects(bed.network.setUp(planOf([nicOf(0)]), bed), /first/);
  assert.deepEqual([...bed.ovs.rows.keys()], ["qvo30b6911d-11"]);
  const network = bed.again();
  assert.equal(network.plans().length, 1);
  assert.equal((await network.tearDown("c1", bed)).found, true);
  assertEmpty({ ...bed, network });
});

test("T-35: DEL twice, without sandbox, without devices, and without anything known succeeds; without the database it fails, and again later", async (t) => {
  const bed = openBed(t);
  await bed.network.setUp(planOf([nicOf(0), nicOf(1)]), bed);
  bed.ovs.failNext("deletePort", new OvsdbError("unreachable", "no database"));
  await assert.rejects(bed.network.tearDown("c1", bed), /no database/);
  assert.equal((await bed.network.tearDown("c1", bed)).found, true);
  assertEmpty(bed);
  assert.deepEqual(await bed.network.tearDown("c1", bed), { found: false, podUid: undefined, lost: [] });
  await bed.network.setUp(planOf([nicOf(0, {}, "c2"), nicOf(1, {}, "c2")], "c2"), bed);
  bed.kernel.deleteNetNs("sandbox");
  assert.equal((await bed.network.tearDown("c2", bed)).found, true);
  bed.kernel.createNetNs("sandbox");
  assertEmpty(bed);
});

test("a kernel without IPv6 has no rules of it: NICs are made, inspected, unplugged and removed there", async (t) => {
  const bed = openBed(t);
  bed.kernel.fail("rules.list", "unsupported", { about: "IPv6", times: Infinity });
  const ipv4 = (at: 0 | 1): NeutronNic => {
    const { addresses, rules, routes, ...nic } = nicOf(at);
    const isIpv4 = (text: string): boolean => !text.includes(":");
    return {
      ...nic,
      addresses: addresses.filter(isIpv4),
      rules: rules.filter(({ from }) => isIpv4(from)),
      routes: routes.filter(({ dst }) => isIpv4(dst)),
    };
  };
  await bed.network.setUp(planOf([ipv4(0)]), bed);
  await bed.network.plug("c1", ipv4(1), bed);
  assert.deepEqual(await bed.network.check("c1", SANDBOX, bed), []);
  const { sandboxes } = await inspectNics({ kernel: bed.kernel, switchOf: () => bed.ovs }, bed.network.plans(), {
    ovsdb: OVSDB,
    signal: t.signal,
  });
  assert.deepEqual(
    sandboxes.flatMap(({ nics }) => nics.flatMap(({ differences }) => differences)),
    [],
  );
  assert.deepEqual(sandboxes[0]?.nics[1]?.link?.rules, ["20001: from 10.1.0.5/32 lookup 101"]);
  await bed.network.unplug("c1", PORTS[1], bed);
  assert.equal((await bed.network.tearDown("c1", bed)).found, true);
  bed.kernel.heal();
  assertEmpty(bed);
});

test("DEL without a journal finds the ports of the container at the switch, with their devices", async (t) => {
  const bed = openBed(t);
  await bed.network.setUp(planOf([nicOf(0), nicOf(1, { hybrid: false })]), bed);
  rmSync(join(bed.journalFolder, "c1.json"));
  const network = bed.again();
  assert.equal((await network.tearDown("other", { ...bed, scan: { ovsdb: OVSDB, bridge: "br-int" } })).found, false);
  // The switch has lost one of the ports; its device is there.
  bed.ovs.rows.delete("tap77c2aa00-22");
  const removal = await network.tearDown("c1", { ...bed, scan: { ovsdb: OVSDB, bridge: "br-int" } });
  assert.deepEqual([removal.found, removal.podUid], [true, "uid-1"]);
  assert.deepEqual(bed.kernel.dump("own").match(/^link .*/gm), ["link lo loopback mtu 65536 up"]);
  assert.deepEqual([...bed.ovs.rows.keys()], []);
});

test("hot-plug: a NIC is added to a sandbox that runs, and removed; the others stay as they are", async (t) => {
  const bed = openBed(t);
  await bed.network.setUp(planOf([nicOf(0)]), bed);
  const dump = () => [bed.kernel.dump("own"), bed.kernel.dump({ name: "sandbox" }), [...bed.ovs.rows.values()]];
  const before = dump();
  const made = await bed.network.plug("c1", nicOf(1), bed);
  assert.deepEqual(made, nicOf(1));
  assert.deepEqual(await bed.network.check("c1", SANDBOX, bed), []);
  assert.deepEqual([...bed.ovs.rows.keys()], ["qvo30b6911d-11", "qvo77c2aa00-22"]);
  const sandbox = bed.kernel.dump({ name: "sandbox" });
  assert.match(sandbox, /^link eth1 /m);
  assert.match(sandbox, /^rule .*10\.1\.0\.5\/32/m);
  const network = bed.again();
  assert.deepEqual(network.plans()[0]?.nics, [nicOf(0), nicOf(1)], "the journal has it");
  assert.equal(await network.unplug("c1", PORTS[1], bed), false);
  assert.deepEqual(dump(), before);
  assert.equal(await network.unplug("c1", PORTS[1], bed), false, "twice");
  assert.equal(await network.plug("gone", nicOf(1), bed), undefined);
  await assert.rejects(network.plug("c1", { ...nicOf(1), name: "eth0" }, bed), {
    code: "collision",
    message: /the sandbox has another device eth0/,
  });
  assert.deepEqual(dump(), before);
  await network.tearDown("c1", bed);
  assertEmpty({ ...bed, network });
});

test("hot-plug, T-37: a NIC that cannot be added, at any operation of kernel and switch, leaves the sandbox as it was", async (t) => {
  const breaks: ((bed: Bed, after: number) => void)[] = [
    (bed, after) => bed.kernel.fail("*", "failed", { after }),
    (bed) => bed.ovs.failNext("addPort", new OvsdbError("timeout", "injected failure")),
    (bed) => bed.ovs.failNext("addPort", new OvsdbError("timeout", "injected failure"), { late: true }),
  ];
  for (const [at, breakIt] of breaks.entries()) {
    for (let after = 0, isBroken = true; isBroken; after += 1) {
      const bed = openBed(t);
      await bed.network.setUp(planOf([nicOf(0)]), bed);
      const dump = () => [bed.kernel.dump("own"), bed.kernel.dump({ name: "sandbox" }), [...bed.ovs.rows.values()]];
      const before = dump();
      breakIt(bed, after);
      const failure = await bed.network.plug("c1", nicOf(1), bed).then(
        () => undefined,
        (error: unknown) => String(error),
      );
      bed.kernel.heal();
      if (failure === undefined) {
        isBroken = false;
        assert.ok(after > 20, `only ${after} operations were broken`);
        continue;
      }
      assert.match(failure, /injected failure/);
      assert.deepEqual(dump(), before, `after ${after}`);
      assert.deepEqual(bed.again().plans()[0]?.nics, [nicOf(0)]);
      if (at > 0) isBroken = false;
    }
  }
});

test("hot-plug: an agent that ends while it adds a NIC leaves it as pending, and the next one removes it", async (t) => {
  const bed = openBed(t);
  await bed.network.setUp(planOf([nicOf(0)]), bed);
  bed.ovs.failNext("addPort", new OvsdbError("timeout", "no answer"), { late: true });
  bed.ovs.failNext("deletePort", new OvsdbError("unreachable", "no database"));
  await assert.rejects(bed.network.plug("c1", nicOf(1), bed), /no answer/);
  const network = bed.again();
  assert.deepEqual(
    network.plans()[0]?.nics.map(({ pending }) => pending),
    [undefined, true],
  );
  assert.deepEqual(await network.check("c1", SANDBOX, bed), [], "it is none of the runtime's business yet");
  await network.unplug("c1", PORTS[1], bed);
  assert.deepEqual([...bed.ovs.rows.keys()], ["qvo30b6911d-11"]);
  assert.deepEqual(await network.plug("c1", nicOf(1), bed), nicOf(1));
  await network.tearDown("c1", bed);
  assertEmpty({ ...bed, network });
});

test("T-36: an ADD removes what an earlier container of the same port has; the late DEL of that container touches nothing of the new one", async (t) => {
  const bed = openBed(t);
  const old = planOf([nicOf(0)]);
  await bed.network.setUp(old, bed);
  bed.kernel.createNetNs("second");
  const next = { ...planOf([nicOf(0, {}, "c2")], "c2"), netns: "/run/netns/second" };
  await bed.network.setUp(next, bed);
  const before = [bed.kernel.dump("own"), bed.kernel.dump({ name: "second" }), [...bed.ovs.rows.values()]];
  assert.equal((await bed.network.tearDown("c1", { ...bed, scan: { ovsdb: OVSDB, bridge: "br-int" } })).found, false);
  // The claim is known still, so a plan of the old container can be made from it.
  await bed.network.tearDown("c1", { ...bed, known: old });
  assert.deepEqual([bed.kernel.dump("own"), bed.kernel.dump({ name: "second" }), [...bed.ovs.rows.values()]], before);
  await bed.network.tearDown("c2", bed);
  assertEmpty(bed);
});

test("leftovers that no journal knows are recognized by alias and iface-id, and removed", async (t) => {
  const bed = openBed(t);
  await bed.network.setUp(planOf([nicOf(0)]), bed);
  rmSync(join(bed.journalFolder, "c1.json"));
  const network = bed.again();
  bed.kernel.createNetNs("second");
  await network.setUp({ ...planOf([nicOf(0, { hybrid: false }, "c2")], "c2"), netns: "/run/netns/second" }, bed);
  assert.deepEqual([...bed.ovs.rows.keys()], ["tap30b6911d-11"]);
  await network.tearDown("c2", bed);
});

test("T-40: two ports with the same first characters, and foreign devices of that name, are a collision and stay as they are", async (t) => {
  const bed = openBed(t);
  await bed.network.setUp(planOf([nicOf(0)]), bed);
  const twin = { ...nicOf(0), portId: "30b6911d-1111-4999-8999-000000000009" };
  const before = [bed.kernel.dump("own"), [...bed.ovs.rows.values()]];
  await assert.rejects(bed.network.setUp(planOf([twin], "c2"), bed), (error) => {
    assert.ok(error instanceof NicCniError && error.code === "collision", String(error));
    assert.match(error.message, /port qvo30b6911d-11 of br-int is of 30b6911d-1111-4111/);
    return true;
  });
  assert.deepEqual([bed.kernel.dump("own"), [...bed.ovs.rows.values()]], before);
  const other = openBed(t);
  using own = other.kernel.openNetNs("own");
  using host = other.kernel.openStack(own);
  host.links.create({ kind: "dummy", name: "qbr30b6911d-11" });
  await assert.rejects(other.network.setUp(planOf([nicOf(0)]), other), {
    code: "collision",
    message: /of another program/,
  });
  assert.ok(host.links.get({ name: "qbr30b6911d-11" }) !== undefined);
});

test("T-41: ports that the switch has lost are plugged again, once their bridge is back", async (t) => {
  const bed = openBed(t);
  await bed.network.setUp(planOf([nicOf(0), nicOf(1, { hybrid: false })]), bed);
  const before = [...bed.ovs.rows.values()];
  bed.ovs.lose();
  const network = bed.again();
  assert.equal(await network.repair(OVSDB, bed), 0);
  bed.ovs.addBridge();
  assert.equal(await network.repair(OVSDB, bed), 2);
  assert.deepEqual([...bed.ovs.rows.values()], before);
  assert.equal(await network.repair(OVSDB, bed), 0);
});

test("repair: a container whose port cannot be plugged, or that is set aside, holds up no other", async (t) => {
  const bed = openBed(t);
  for (const name of ["b", "c"]) bed.kernel.createNetNs(name);
  await bed.network.setUp(planOf([nicOf(0)]), bed);
  const other = { ...planOf([nicOf(1, {}, "c2")], "c2"), netns: "/run/netns/b" };
  await bed.network.setUp(other, bed);
  bed.ovs.lose();
  bed.ovs.addBridge();
  bed.ovs.failNext("addPort", new OvsdbError("timeout", "no answer"));
  await assert.rejects(bed.network.repair(OVSDB, bed), { message: "no answer" });
  assert.equal(bed.ovs.rows.size, 1, "the other one was plugged");
  bed.ovs.lose();
  bed.ovs.addBridge();
  const asked: string[] = [];
  const network = bed.again(async ({ containerId }, repair) => {
    asked.push(containerId);
    return containerId === "c1" ? undefined : await repair();
  });
  assert.equal(await network.repair(OVSDB, bed), 1);
  assert.deepEqual(asked.sort(), ["c1", "c2"]);
});

test("CHECK names what differs: device, MTU, address, route, rule, port", async (t) => {
  const bed = openBed(t);
  await bed.network.setUp(planOf([nicOf(0), nicOf(1)]), bed);
  using ns = bed.kernel.openNetNs({ name: "sandbox" });
  using stack = bed.kernel.openStack(ns);
  const eth0 = stack.links.get({ name: "eth0" });
  assert.ok(eth0 !== undefined);
  stack.links.set(eth0.index, { mtu: 1400 });
  stack.addresses.delete({ linkIndex: eth0.index, address: IpAddress.parse("10.0.0.5"), prefixLength: 24 });
  stack.rules.delete({ family: 4, priority: 20_001, table: 101 });
  bed.ovs.rows.delete("qvo77c2aa00-22");
  const found = (await bed.network.check("c1", SANDBOX, bed)) ?? [];
  for (const one of [
    /eth0 has MTU 1400, not 1450/,
    /eth0 lacks the address 10\.0\.0\.5\/24/,
    /rule from 10\.1\.0\.5\/32 lookup 101/,
    /br-int lacks the port qvo77c2aa00-22/,
  ])
    assert.ok(
      found.some((text) => one.test(text)),
      `${one}: ${found.join("; ")}`,
    );
  assert.equal(await bed.network.check("none", SANDBOX, bed), undefined);
});

test("journal: of any file only our error escapes, it is named, and others are read", (t) => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.json(),
        fc.string(),
        fc.constant(JSON.stringify(planOf([nicOf(0)]))).map((text) => text.replace("eth0", "")),
      ),
      (text) => {
        try {
          parsePlan(text, "x.json");
        } catch (error) {
          assert.ok(error instanceof NicCniError && error.code === "journal", String(error));
        }
      },
    ),
  );
  const bed = openBed(t);
  const plan = planOf([nicOf(0), nicOf(1)]);
  new Journal(bed.journalFolder).write(plan);
  writeFileSync(join(bed.journalFolder, "bad.json"), "{");
  const { plans, faults } = new Journal(bed.journalFolder).list();
  assert.deepEqual([plans, faults.length], [[plan], 1]);
  assert.match(faults[0]?.message ?? "", /bad\.json is not JSON/);
  assert.throws(() => new Journal(bed.journalFolder).read("../x"), { code: "journal" });
  assert.ok(existsSync(join(bed.journalFolder, "c1.json")));
});

type Step =
  | { readonly do: "plug" | "unplug"; readonly container: number; readonly port: 0 | 1 }
  | { readonly do: "add" | "del"; readonly container: number; readonly ports: readonly (0 | 1)[] }
  | { readonly do: "restart" | "lose" | "repair" | "journal-lost" }
  | {
      readonly do: "break";
      readonly after: number;
      readonly at: "kernel" | "addPort" | "addPort-late" | "deletePort" | "ports";
    };

const container = fc.integer({ min: 0, max: 2 });
const ports = fc.subarray([0, 1] as const, { minLength: 1 });
const steps: fc.Arbitrary<readonly Step[]> = fc.array(
  fc.oneof(
    { weight: 5, arbitrary: fc.record({ do: fc.constantFrom("add", "del"), container, ports }) },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constantFrom("plug", "unplug"),
        container,
        port: fc.constantFrom(0 as const, 1 as const),
      }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constantFrom("restart", "lose", "repair", "journal-lost") }) },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant("break" as const),
        after: fc.integer({ min: 0, max: 80 }),
        at: fc.constantFrom("kernel", "addPort", "addPort-late", "deletePort", "ports"),
      }),
    },
  ),
  { maxLength: 14 },
) as fc.Arbitrary<readonly Step[]>;

/** Runs work that may fail by a fault that was put in, and in no other way. Returns whether it succeeded. */
async function survives(work: () => Promise<unknown>): Promise<boolean> {
  try {
    await work();
    return true;
  } catch (error) {
    const all = error instanceof AggregateError ? error.errors.map(String).join() : String(error);
    assert.match(all, /injected/);
    return false;
  }
}

test("DEL removes what the claim knows besides the journal: a NIC whose record was lost while its port could not be deleted", async (t) => {
  const bed = openBed(t);
  bed.kernel.createNetNs("sandbox-a");
  const planFor = (...of: readonly (0 | 1)[]): SandboxPlan => ({
    ...planOf(
      of.map((port, index) => ({ ...nicOf(port, { hybrid: false }, "c0"), index })),
      "c0",
    ),
    netns: "/run/netns/sandbox-a",
  });
  bed.ovs.failNext("deletePort", new OvsdbError("timeout", "injected"), { late: false });
  await bed.network.setUp(planFor(0), bed);
  await survives(() => bed.network.setUp(planFor(0), bed));
  for (const file of readdirSync(bed.journalFolder)) rmSync(join(bed.journalFolder, file));
  const network = bed.again();
  await survives(() => network.setUp(planFor(1), bed));
  bed.ovs.heal();
  await network.tearDown("c0", { ...bed, known: planFor(0, 1) });
  assertEmpty({ ...bed, network });
});

test("after any ADDs, DELs, restarts and failures, a last DEL of every container leaves nothing; an ADD that succeeded is whole", async (t) => {
  await fc.assert(
    fc.asyncProperty(steps, fc.boolean(), async (list, hybrid) => {
      const bed = openBed(t);
      const names = ["a", "b", "c"].map((name) => `sandbox-${name}`);
      for (const name of names) bed.kernel.createNetNs(name);
      const planFor = (at: number, of: readonly (0 | 1)[]): SandboxPlan => ({
        ...planOf(
          of.map((port, index) => ({ ...nicOf(port, { hybrid }, `c${at}`), index })),
          `c${at}`,
        ),
        netns: `/run/netns/${names[at]}`,
      });
      let { network } = bed;
      let isBroken = false;
      for (const step of list) {
        if (step.do === "add") {
          const plan = planFor(step.container, step.ports);
          const isDone = await survives(() => network.setUp(plan, bed));
          if (isDone && !isBroken) assert.deepEqual(await network.check(plan.containerId, plan.netns, bed), []);
        } else if (step.do === "del") {
          await survives(() => network.tearDown(`c${step.container}`, bed));
        } else if (step.do === "plug") {
          const nic = { ...nicOf(step.port, { hybrid }, `c${step.container}`), name: "hot", index: 9 };
          const isThere = network.plans().some(({ nics }) => nics.some(({ portId }) => portId === nic.portId));
          // A port is in one sandbox at a time, and a NIC has a name that no other has.
          const plan = network.plans().find(({ containerId }) => containerId === `c${step.container}`);
          if (isThere || plan?.nics.some(({ name }) => name === "hot") === true) continue;
          const isDone = await survives(async () => void (await network.plug(`c${step.container}`, nic, bed)));
          const { containerId, netns } = plan ?? { containerId: "", netns: "" };
          if (isDone && !isBroken && plan !== undefined)
            assert.deepEqual(await network.check(containerId, netns, bed), []);
        } else if (step.do === "unplug") {
          const id = `c${step.container}`;
          const isDone = await survives(async () => void (await network.unplug(id, PORTS[step.port], bed)));
          const plan = network.plans().find(({ containerId }) => containerId === id);
          if (isDone) assert.ok(plan?.nics.every(({ portId }) => portId !== PORTS[step.port]) ?? true);
          if (isDone && !isBroken && plan !== undefined) assert.deepEqual(await network.check(id, plan.netns, bed), []);
        } else if (step.do === "break") {
          isBroken = true;
          const error = new OvsdbError("timeout", "injected");
          if (step.at === "kernel") bed.kernel.fail("*", "failed", { after: step.after });
          else
            bed.ovs.failNext(step.at === "addPort-late" ? "addPort" : step.at, error, {
              late: step.at === "addPort-late",
            });
        } else if (step.do === "lose") {
          bed.ovs.lose();
          bed.ovs.addBridge();
          // Until a repair, plans are not whole.
          await survives(() => network.repair(OVSDB, bed));
        } else if (step.do === "repair") await survives(() => network.repair(OVSDB, bed));
        else if (step.do === "restart") network = bed.again();
        else {
          for (const file of readdirSync(bed.journalFolder)) rmSync(join(bed.journalFolder, file));
          network = bed.again();
        }
      }
      bed.kernel.heal();
      bed.ovs.heal();
      // What the journal has lost is found by the claims.
      for (const at of [0, 1, 2]) await network.tearDown(`c${at}`, { ...bed, known: planFor(at, [0, 1]) });
      assertEmpty({ ...bed, network });
      for (const name of names) assert.doesNotMatch(bed.kernel.dump({ name }), /^(link eth|rule)/m);
    }),
    { numRuns: 150 },
  );
});

/** The agent of Alcor: makes a device under a temporary name in the VPC's namespace, and renames it when it is programmed. */
function alcorAgent(stack: NetStack, portId: string): { readonly rename: () => void } {
  const link = stack.links.create({
    kind: "veth",
    name: `temp${portId.slice(0, 11)}`,
    mac: MacAddress.parse("fa:16:3e:0a:0b:0c"),
    mtu: 1400,
    up: true,
    peer: { name: `peer${portId.slice(0, 8)}`, up: true },
  });
  stack.addresses.add({ linkIndex: link.index, address: IpAddress.parse("10.8.0.5"), prefixLength: 24 });
  stack.addresses.add({ linkIndex: link.index, address: IpAddress.parse("fd08::5"), prefixLength: 64, noDad: true });
  stack.routes.add({ dst: Cidr.parse("0.0.0.0/0"), gateway: IpAddress.parse("10.8.0.1"), metric: 7 });
  stack.routes.add({ dst: Cidr.parse("172.20.0.0/16"), gateway: IpAddress.parse("10.8.0.9") });
  return { rename: () => stack.links.set(link.index, { name: alcorDeviceName(portId) }) };
}

function alcorNic(at: 0 | 1 = 0): AlcorNic {
  return {
    name: `eth${at}`,
    portId: PORTS[at],
    index: at,
    metric: 100 + at,
    addresses: [],
    routes: [],
    rules: [],
    acceptRa: false,
    place: {
      kind: "alcor",
      netns: "/run/netns/vpc-nsv1",
      device: alcorDeviceName(PORTS[at]),
      waitMs: 3000,
      mizarTuning: false,
    },
  };
}

test("T-43, T-44: ADD waits for the rename, takes the device with its settings, and DEL gives it back with them", async (t) => {
  const bed = openBed(t);
  using vpcNs = bed.kernel.createNetNs("vpc-nsv1");
  using vpc = bed.kernel.openStack(vpcNs);
  const agent = alcorAgent(vpc, PORTS[0]);
  const adding = bed.network.setUp(planOf([alcorNic()]), bed);
  await new Promise(setImmediate);
  assert.match(bed.kernel.dump({ name: "vpc-nsv1" }), /link temp30b6911d-11/, "the temporary name is not taken");
  agent.rename();
  const before = bed.kernel.dump({ name: "vpc-nsv1" });
  bed.changed();
  const plan = await adding;
  const sandbox = bed.kernel.dump({ name: "sandbox" });
  for (const line of [
    /^link eth0 veth mtu 1400 up/m,
    /10\.8\.0\.5\/24/,
    /fd08::5\/64/,
    /0\.0\.0\.0\/0 via 10\.8\.0\.1.*metric 100/,
    /172\.20\.0\.0\/16 via 10\.8\.0\.9/,
  ])
    assert.match(sandbox, line);
  assert.doesNotMatch(bed.kernel.dump({ name: "vpc-nsv1" }), /veth30b6911d-11 /);
  assert.deepEqual(await bed.network.check("c1", SANDBOX, bed), []);
  assert.deepEqual(cniResult(plan).ips[0], { address: "10.8.0.5/24", gateway: "10.8.0.1", interface: 0 });
  assert.deepEqual((await bed.network.tearDown("c1", bed)).lost, []);
  const settled = (text: string): string[] =>
    text
      .split("\n")
      .map((line) => line.replace(/ nodad/, ""))
      .sort();
  assert.deepEqual(settled(bed.kernel.dump({ name: "vpc-nsv1" })), settled(before));
  assertEmpty(bed);
});

test("T-45: a namespace that appears late is waited for within the same time; without a device the wait ends with a code", async (t) => {
  const bed = openBed(t);
  const adding = bed.network.setUp(planOf([alcorNic()]), bed);
  await new Promise(setImmediate);
  using vpcNs = bed.kernel.createNetNs("vpc-nsv1");
  using vpc = bed.kernel.openStack(vpcNs);
  alcorAgent(vpc, PORTS[0]).rename();
  bed.changed();
  await adding;
  await bed.network.tearDown("c1", bed);
  const waiting = bed.network.setUp(planOf([alcorNic(1)], "c2"), bed);
  const refused = assert.rejects(waiting, {
    code: "device-wait",
    message: /device veth77c2aa00-22 in \/run\/netns\/vpc-nsv1 did not appear within 3000 ms/,
  });
  let isOver = false;
  void refused.then(() => {
    isOver = true;
  });
  while (!isOver) {
    bed.clock.advance(250);
    await new Promise(setImmediate);
  }
  await refused;
  assertEmpty(bed);
});

test("T-37, T-43: an ADD of Alcor that fails at any operation gives the device back", async (t) => {
  for (let after = 0, isBroken = true; isBroken; after += 1) {
    const bed = openBed(t);
    using vpcNs = bed.kernel.createNetNs("vpc-nsv1");
    using vpc = bed.kernel.openStack(vpcNs);
    alcorAgent(vpc, PORTS[0]).rename();
    const before = bed.kernel.dump({ name: "vpc-nsv1" }).replaceAll(" nodad", "").split("\n").sort();
    bed.kernel.fail("*", "failed", { after });
    try {
      await bed.network.setUp(planOf([alcorNic()]), bed);
      isBroken = false;
      assert.ok(after > 10, `only ${after} operations were broken`);
    } catch (error) {
      assert.match(String(error), /injected failure/);
      assertEmpty(bed);
      assert.deepEqual(
        bed.kernel.dump({ name: "vpc-nsv1" }).replaceAll(" nodad", "").split("\n").sort(),
        before,
        `after ${after}`,
      );
    }
  }
});

test("T-46: DEL with the sandbox gone tells that the device is lost; with the VPC's namespace gone it deletes the device", async (t) => {
  const bed = openBed(t);
  bed.kernel.createNetNs("vpc-nsv1");
  {
    using vpcNs = bed.kernel.openNetNs({ name: "vpc-nsv1" });
    using vpc = bed.kernel.openStack(vpcNs);
    alcorAgent(vpc, PORTS[0]).rename();
  }
  await bed.network.setUp(planOf([alcorNic()]), bed);
  bed.kernel.deleteNetNs("sandbox");
  bed.kernel.createNetNs("sandbox");
  assert.deepEqual((await bed.network.tearDown("c1", bed)).lost, ["eth0"]);
  assertEmpty(bed);
  const other = openBed(t);
  other.kernel.createNetNs("vpc-nsv1");
  {
    using vpcNs = other.kernel.openNetNs({ name: "vpc-nsv1" });
    using vpc = other.kernel.openStack(vpcNs);
    alcorAgent(vpc, PORTS[0]).rename();
  }
  await other.network.setUp(planOf([alcorNic()]), other);
  // The peer is in the VPC's namespace here; a real one is in the host.
  assert.match(other.kernel.dump({ name: "sandbox" }), /link eth0/);
  other.kernel.deleteNetNs("vpc-nsv1");
  assert.deepEqual((await other.network.tearDown("c1", other)).lost, ["eth0"]);
  assertEmpty(other);
});

test("hot-plug: a device of Alcor is taken into a sandbox that runs, and given back with its settings", async (t) => {
  const bed = openBed(t);
  using vpcNs = bed.kernel.createNetNs("vpc-nsv1");
  using vpc = bed.kernel.openStack(vpcNs);
  await bed.network.setUp(planOf([nicOf(0)]), bed);
  alcorAgent(vpc, PORTS[1]).rename();
  const settled = () => bed.kernel.dump({ name: "vpc-nsv1" }).replaceAll(" nodad", "").split("\n").sort();
  const before = settled();
  const made = await bed.network.plug("c1", alcorNic(1), bed);
  assert.ok(made?.place.kind === "alcor");
  assert.ok((made.place as AlcorPlace).saved?.addresses.includes("10.8.0.5/24"));
  assert.deepEqual(await bed.network.check("c1", SANDBOX, bed), []);
  assert.equal(await bed.network.unplug("c1", PORTS[1], bed), false);
  assert.deepEqual(settled(), before);
  await bed.network.plug("c1", alcorNic(1), bed);
  // Its namespace is gone, and the device cannot go back.
  bed.kernel.deleteNetNs("vpc-nsv1");
  assert.equal(await bed.network.unplug("c1", PORTS[1], bed), true);
  await bed.network.tearDown("c1", bed);
  assertEmpty(bed);
});
