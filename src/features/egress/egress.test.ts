import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Cidr, IpAddress } from "#base/ip";
import { FakeConntrack } from "#kernel/conntrack";
import { KernelError } from "#kernel/errors";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import { FakeNft, type Nft } from "#kernel/nft";
import { type ClosedDestinations, type Gateway, observeClosed, PRIVATE_RANGES } from "./client/index.ts";
import {
  type ClientOptions,
  clientScope,
  fouDriver,
  type NetPlan,
  nftFilter,
  planClient,
  planRouter,
  routerScope,
  syncClient,
  syncNet,
  type TunnelDriver,
  vxlanDriver,
} from "./index.ts";
import type { PlannedLink } from "./net-plan/index.ts";

const PORT = 5555;
const ip = IpAddress.parse;
const POD = { addresses: { 4: ip("10.64.0.7"), 6: ip("fd02::7") }, ifname: "eth0", mtuBytes: 1500 };
const CLIENT = clientScope(PORT);

function gateway(name: string, address: string, destinations: readonly string[], sourcePortAuto = false): Gateway {
  return {
    egress: { namespace: "internet", name },
    address: ip(address),
    destinations: destinations.map((one) => Cidr.parse(one)),
    sourcePortAuto,
    originatingOnly: false,
  };
}

const NAT4 = gateway("nat", "10.68.114.217", ["0.0.0.0/0", "172.20.0.0/16"]);
const NAT6 = gateway("nat", "fd03::1:2", ["::/0", "fd77::/16"]);
const options = (driver: TunnelDriver): ClientOptions => ({ driver, port: PORT, inCluster: PRIVATE_RANGES });
const planFor = (driver: TunnelDriver, gateways: readonly Gateway[]): NetPlan =>
  planClient(POD, gateways, options(driver)).plan;

/** A pod's namespace with its interface and a default route. */
async function podOf(kernel: FakeKernel) {
  const ns = kernel.createNetNs("pod");
  const stack = kernel.openStack(ns);
  using host = kernel.openStack(kernel.openNetNs("own"));
  host.links.create({ kind: "veth", name: "veth0", up: true, peer: { name: "eth0", netns: ns, up: true } });
  const { index } = stack.links.get({ name: "eth0" }) ?? assert.fail("no eth0");
  for (const address of [POD.addresses[4], POD.addresses[6]])
    stack.addresses.add({ linkIndex: index, address, noDad: true });
  stack.routes.add({ dst: Cidr.parse("0.0.0.0/0"), linkIndex: index, scope: "link" });
  // As the plan needs them, so that states with and without gateways can be compared.
  for (const driver of [fouDriver, vxlanDriver])
    await syncNet(stack, { ...planFor(driver, [NAT4, NAT6]), ...NOTHING }, CLIENT);
  return stack;
}

const NOTHING = { fouPorts: [], links: [], rules: [], routes: [] };
/** The state as lines; without the link-local addresses that the kernel gives to links in the order in which they are made. */
const stateOf = (kernel: FakeKernel): string[] =>
  kernel
    .dump({ name: "pod" })
    .split("\n")
    .filter((line) => !line.startsWith("  address fe80::"))
    .sort();

for (const driver of [fouDriver, vxlanDriver]) {
  test(`syncClient, ${driver.name}: a router's namespace is not touched, though its tunnels and routes have a client's marks`, async () => {
    const kernel = new FakeKernel();
    using stack = await podOf(kernel);
    const router = { egress: { namespace: "internet", name: "nat" }, ...POD };
    const plan = planRouter(router, [ip("10.64.0.9"), ip("fd02::9")], { driver, port: PORT, sourcePortAuto: false });
    await syncNet(stack, plan, routerScope(PORT));
    const before = stateOf(kernel);
    const openFilter = () => assert.fail("the packet filter is not opened");
    const openConntrack = () => assert.fail("connection tracking is not opened");
    const { changes } = await syncClient(stack, POD, [], { ...options(driver), openFilter, openConntrack });
    assert.equal(changes, 0);
    assert.deepEqual(stateOf(kernel), before);
  });
}

for (const driver of [fouDriver, vxlanDriver]) {
  test(`${driver.name}: a client has both families' tunnels; a second sync is empty; without gateways nothing is left`, async () => {
    const kernel = new FakeKernel();
    using stack = await podOf(kernel);
    const before = stateOf(kernel);
    const plan = planFor(driver, [NAT4, NAT6]);
    assert.ok((await syncNet(stack, plan, CLIENT)) > 20);
    const after = kernel.dump({ name: "pod" });
    for (const pattern of CLIENT_STATE[driver.name]) assert.match(after, pattern);
    assert.equal(await syncNet(stack, plan, CLIENT), 0);
    assert.ok((await syncNet(stack, planFor(driver, []), CLIENT)) > 0);
    assert.deepEqual(stateOf(kernel), before);
  });
}

for (const driver of [fouDriver, vxlanDriver]) {
  test(`syncClient, ${driver.name}: on a kernel that was started with ipv6.disable=1, pods of IPv4 are clients, and no clients any more`, async () => {
    const kernel = new FakeKernel();
    const ns = kernel.createNetNs("pod");
    using stack = kernel.openStack(ns);
    using host = kernel.openStack(kernel.openNetNs("own"));
    host.links.create({ kind: "veth", name: "veth0", up: true, peer: { name: "eth0", netns: ns, up: true } });
    const { index } = stack.links.get({ name: "eth0" }) ?? assert.fail("no eth0");
    stack.addresses.add({ linkIndex: index, address: POD.addresses[4], noDad: true });
    stack.routes.add({ dst: Cidr.parse("0.0.0.0/0"), linkIndex: index, scope: "link" });
    for (const operation of ["rules.list", "rules.add", "rules.delete"])
      kernel.fail(operation, "unsupported", { times: Number.POSITIVE_INFINITY, about: "IPv6" });
    const openFilter = () => assert.fail("the packet filter is not opened");
    const openConntrack = () => assert.fail("connection tracking is not opened");
    const sync = async (gateways: readonly Gateway[]): Promise<number> => {
      const pod = { ...POD, addresses: { 4: POD.addresses[4] } };
      return (await syncClient(stack, pod, gateways, { ...options(driver), openFilter, openConntrack })).changes;
    };
    assert.equal(await sync([]), 0);
    assert.ok((await sync([NAT4])) > 10);
    assert.equal(await sync([NAT4]), 0);
    assert.ok((await sync([])) > 0);
    assert.equal(await sync([]), 0);
  });
}

const CLIENT_STATE: Readonly<Record<TunnelDriver["name"], readonly RegExp[]>> = {
  fou: [
    /^link fou4_0a4472d9 ipip mtu 1472 up$/m,
    /^link fou6_[0-9a-f]{8} ip6tnl mtu 1444 up$/m,
    /^link coil_ipip4 ipip .* up$/m,
    /^link coil_ipip6 ip6tnl .* up$/m,
    /^fou port 5555 ipproto 4 inet4$/m,
    /^fou port 5555 ipproto 41 inet6$/m,
  ],
  vxlan: [
    /^link nat_[0-9a-f]{8} vxlan mtu 1450 up$/m,
    /^link nat_[0-9a-f]{8} vxlan mtu 1430 up$/m,
    /^neighbour 169\.254\.55\.1 dev nat_[0-9a-f]{8} lladdr 02:00:00:00:55:02 permanent$/m,
    /^neighbour fe80::55:2 dev nat_[0-9a-f]{8} lladdr 02:00:00:00:55:02 permanent$/m,
  ],
};

test("planClient: destinations inside private ranges are in the narrow table, all others in the wide one, and each has a guard", async () => {
  const { routes } = planFor(fouDriver, [NAT4, NAT6]);
  const ways = routes
    .filter(({ type }) => type !== "throw")
    .map(({ dst, table, type, link }) => `${dst} ${table} ${link ?? type}`);
  const [, , , fou6 = ""] = planFor(fouDriver, [NAT4, NAT6]).links.map(({ spec }) => spec.name);
  assert.deepEqual(ways, [
    "0.0.0.0/0 118 fou4_0a4472d9",
    "0.0.0.0/0 118 unreachable",
    "172.20.0.0/16 117 fou4_0a4472d9",
    "172.20.0.0/16 117 unreachable",
    `::/0 118 ${fou6}`,
    "::/0 118 unreachable",
    `fd77::/16 117 ${fou6}`,
    "fd77::/16 117 unreachable",
  ]);
});

test("planClient: packets of the tunnels themselves are sent past the tables, also if a destination has the gateway in it", async () => {
  const { routes } = planFor(vxlanDriver, [gateway("site", "10.68.0.9", ["10.0.0.0/8"])]);
  assert.deepEqual(
    routes.filter(({ type }) => type === "throw").map(({ dst, table }) => `${dst} ${table}`),
    ["10.68.0.9/32 117", "10.68.0.9/32 118"],
  );
});

test("planClient: a destination that is a gateway's own address, and a range that is given twice, leave nothing to do for a second sync", async () => {
  for (const driver of [fouDriver, vxlanDriver]) {
    const kernel = new FakeKernel();
    using stack = await podOf(kernel);
    const own = gateway("own", "10.68.0.9", ["10.68.0.9/32", "192.0.2.0/24"]);
    const { plan } = planClient(POD, [own], { ...options(driver), inCluster: [...PRIVATE_RANGES, ...PRIVATE_RANGES] });
    assert.ok((await syncNet(stack, plan, CLIENT)) > 0);
    assert.equal(await syncNet(stack, plan, CLIENT), 0, driver.name);
    const ways = stack.routes.list({ family: 4, table: 117 }).filter(({ dst }) => String(dst) === "10.68.0.9/32");
    assert.deepEqual(
      ways.toSorted((a, b) => (a.metric ?? 0) - (b.metric ?? 0)).map(({ type }) => type),
      ["throw", "unicast", "unreachable"],
      "the tunnel's own packets come first",
    );
  }
});

test("planClient: of an identical destination the first Egress by name has it, and the other is named; a family that the pod lacks is named", async () => {
  const [one, other] = [
    gateway("a", "10.68.0.1", ["0.0.0.0/0"]),
    gateway("b", "10.68.0.2", ["0.0.0.0/0", "8.8.8.8/32"]),
  ];
  const pod = { ...POD, addresses: { 4: POD.addresses[4] } };
  const { plan, skipped } = planClient(pod, [other, one, NAT6], options(fouDriver));
  assert.deepEqual(
    plan.routes.filter(({ type }) => type === "unicast").map(({ dst, link }) => `${dst} ${link}`),
    ["0.0.0.0/0 fou4_0a440001", "8.8.8.8/32 fou4_0a440002"],
  );
  assert.deepEqual(
    skipped.map(({ egress, why, destination, other: holder }) => [egress.name, why, String(destination), holder?.name]),
    [
      ["b", "same-destination", "0.0.0.0/0", "a"],
      ["nat", "no-address-of-family", "undefined", undefined],
    ],
  );
});

test("planClient: of an identical destination the Egress that the pod names has it before one that selects the pod, also while it is closed", async () => {
  const named = gateway("b", "10.68.0.2", ["0.0.0.0/0"]);
  const selecting = {
    ...gateway("a", "10.68.0.1", ["0.0.0.0/0", "8.8.8.8/32", "1.1.1.1/32"]),
    by: "selector" as const,
  };
  const ways = (closed: readonly string[], gateways: readonly Gateway[]): string[] => {
    const pod = { ...POD, closed: { annotation: closed.map((text) => Cidr.parse(text)), selector: [] } };
    return planClient(pod, gateways, options(fouDriver))
      .plan.routes.filter(({ table, type }) => (table === 117 || table === 118) && type !== "throw")
      .map(({ dst, link, metric }) => `${dst} ${link ?? metric}`);
  };
  assert.deepEqual(ways([], [selecting, named]), [
    "0.0.0.0/0 fou4_0a440002",
    "0.0.0.0/0 1000000",
    "8.8.8.8/32 fou4_0a440001",
    "8.8.8.8/32 1000001",
    "1.1.1.1/32 fou4_0a440001",
    "1.1.1.1/32 1000001",
  ]);
  assert.deepEqual(ways(["8.8.8.8/32"], [selecting, named]).slice(2), [
    "8.8.8.8/32 1000000",
    "1.1.1.1/32 fou4_0a440001",
    "1.1.1.1/32 1000001",
  ]);
});

for (const driver of [fouDriver, vxlanDriver]) {
  test(`syncClient, ${driver.name}: closed destinations alone need no tunnel; they are read again from the routes, and go with the annotation`, async () => {
    const kernel = new FakeKernel();
    using stack = await podOf(kernel);
    const before = stateOf(kernel);
    const openFilter = () => assert.fail("the packet filter is not opened");
    const openConntrack = () => assert.fail("connection tracking is not opened");
    const sync = (closed: ClosedDestinations) =>
      syncClient(stack, { ...POD, closed }, [], { ...options(driver), openFilter, openConntrack });
    const closed = {
      annotation: ["172.20.0.0/16", "0.0.0.0/0"].map((text) => Cidr.parse(text)),
      selector: [Cidr.parse("::/0")],
    };
    const { hasTunnel, changes } = await sync(closed);
    assert.deepEqual([hasTunnel, changes > 0], [false, true]);
    assert.equal((await sync(closed)).changes, 0);
    const found = observeClosed(stack, { port: PORT });
    assert.deepEqual(
      [found.annotation.map(String).sort(), found.selector.map(String)],
      [["0.0.0.0/0", "172.20.0.0/16"], ["::/0"]],
    );
    await sync({ annotation: [], selector: [] });
    assert.deepEqual(stateOf(kernel), before);
    assert.deepEqual(observeClosed(stack, { port: PORT }), { annotation: [], selector: [] });
  });
}

test("syncNet: another source port makes the tunnel anew with its routes, and touches no other tunnel", async () => {
  const kernel = new FakeKernel();
  using stack = await podOf(kernel);
  const other = gateway("b", "10.68.0.2", ["8.8.8.8/32"]);
  await syncNet(stack, planFor(fouDriver, [NAT4, other]), CLIENT);
  const indexOf = (name: string): number | undefined => stack.links.get({ name })?.index;
  const before = [indexOf("fou4_0a4472d9"), indexOf("fou4_0a440002")];
  const plan = planFor(fouDriver, [gateway("nat", "10.68.114.217", ["0.0.0.0/0", "172.20.0.0/16"], true), other]);
  await syncNet(stack, plan, CLIENT);
  const after = [indexOf("fou4_0a4472d9"), indexOf("fou4_0a440002")];
  assert.notEqual(after[0], before[0]);
  assert.equal(after[1], before[1]);
  const wide = stack.routes.list({ family: 4, table: 118 }).filter(({ type }) => type === "unicast");
  assert.deepEqual(wide.map(({ dst, linkIndex }) => `${dst} ${linkIndex}`).sort(), [
    `0.0.0.0/0 ${after[0]}`,
    `8.8.8.8/32 ${after[1]}`,
  ]);
  assert.equal(await syncNet(stack, plan, CLIENT), 0);
});

for (const driver of [fouDriver, vxlanDriver]) {
  test(`${driver.name}: another address of the Service moves the tunnel, and leaves nothing of the old one`, async () => {
    const kernel = new FakeKernel();
    using stack = await podOf(kernel);
    await syncNet(stack, planFor(driver, [NAT4, NAT6]), CLIENT);
    const plan = planFor(driver, [gateway("nat", "10.68.0.9", ["0.0.0.0/0"]), NAT6]);
    assert.ok((await syncNet(stack, plan, CLIENT)) > 0);
    assert.equal(await syncNet(stack, plan, CLIENT), 0);
    assert.equal(
      stack.links.list().filter(({ details }) => JSON.stringify(details)?.includes("10.68.114.217")).length,
      0,
    );
    assert.doesNotMatch(kernel.dump({ name: "pod" }), /10\.68\.114\.217|172\.20\./);
  });
}

for (const [from, to] of [
  [fouDriver, vxlanDriver],
  [vxlanDriver, fouDriver],
] as const) {
  test(`syncNet, ${from.name} to ${to.name}: another driver takes the UDP port over from the one before, and each destination keeps its guard`, async () => {
    const kernel = new FakeKernel();
    using stack = await podOf(kernel);
    await syncNet(stack, planFor(from, [NAT4, NAT6]), CLIENT);
    const guards = (): string[] => stateOf(kernel).filter((line) => /^route unreachable|unreachable/.test(line));
    const before = guards();
    assert.ok(before.length > 0);
    await syncNet(stack, planFor(to, [NAT4, NAT6]), CLIENT);
    assert.deepEqual(guards(), before);
    for (const pattern of CLIENT_STATE[to.name]) assert.match(kernel.dump({ name: "pod" }), pattern);
    assert.equal(await syncNet(stack, planFor(to, [NAT4, NAT6]), CLIENT), 0);
    using other = await podOf(new FakeKernel());
    await syncNet(other, planFor(to, [NAT4, NAT6]), CLIENT);
    const names = ({ links }: typeof stack): string[] =>
      links
        .list()
        .map(({ name }) => name)
        .sort();
    assert.deepEqual(names(stack), names(other));
  });

  test(`syncNet, ${from.name} to ${to.name}: a router takes the UDP port over too`, async () => {
    const kernel = new FakeKernel();
    using stack = await podOf(kernel);
    const router = { egress: { namespace: "internet", name: "nat" }, ...POD };
    const plan = (driver: TunnelDriver) =>
      planRouter(router, [ip("10.64.0.9"), ip("fd02::9")], { driver, port: PORT, sourcePortAuto: false });
    await syncNet(stack, plan(from), routerScope(PORT));
    await syncNet(stack, plan(to), routerScope(PORT));
    assert.equal(await syncNet(stack, plan(to), routerScope(PORT)), 0);
  });
}

test("syncNet: links of VXLAN that programs of 0.1.0 made and could not set up, since FoU had the port, are set up", async () => {
  using stack = await podOf(new FakeKernel());
  await syncNet(stack, planFor(fouDriver, [NAT4, NAT6]), CLIENT);
  const plan = planFor(vxlanDriver, [NAT4, NAT6]);
  for (const { spec } of plan.links) stack.links.set(stack.links.create(spec).index, { arp: false });
  await syncNet(stack, plan, CLIENT);
  assert.equal(await syncNet(stack, plan, CLIENT), 0);
});

test("syncNet: rules and routes of others within our priorities and tables go; those outside stay", async () => {
  const kernel = new FakeKernel();
  using stack = await podOf(kernel);
  const before = stateOf(kernel);
  const foreign = { family: 4, priority: 3000, table: 118 } as const;
  stack.rules.add(foreign);
  const kept = stateOf(kernel);
  stack.rules.add({ family: 4, priority: 1950, table: 99 });
  stack.rules.add({ family: 4, priority: 1900, table: 117, from: Cidr.parse("10.9.0.0/16") });
  stack.routes.add({ dst: Cidr.parse("1.2.3.4/32"), table: 117, type: "blackhole" });
  assert.equal(await syncNet(stack, planFor(fouDriver, []), CLIENT), 3);
  assert.deepEqual(stateOf(kernel), kept);
  stack.rules.delete(foreign);
  assert.deepEqual(stateOf(kernel), before);
});

test("syncNet: a step that the kernel refuses is named with the object", async () => {
  const kernel = new FakeKernel({ lacks: ["ipip"] });
  using stack = await podOf(kernel);
  await assert.rejects(syncNet(stack, planFor(fouDriver, [NAT4]), CLIENT), {
    name: "NetPlanError",
    code: "refused",
    message: /^make link coil_ipip4: /,
  });
});

const ROUTER = {
  egress: { namespace: "internet", name: "nat" },
  addresses: { 4: ip("10.64.1.3"), 6: ip("fd02::103") },
  ifname: "eth0",
  mtuBytes: 1500,
};

for (const driver of [fouDriver, vxlanDriver]) {
  test(`${driver.name}: a router has a way back to each client; one that goes leaves nothing`, async () => {
    const kernel = new FakeKernel();
    using stack = await podOf(kernel);
    const scope = routerScope(PORT);
    const plan = (...clients: readonly string[]): NetPlan =>
      planRouter(
        ROUTER,
        clients.map((text) => ip(text)),
        { driver, port: PORT, sourcePortAuto: false },
      );
    await syncNet(stack, plan(), scope);
    const empty = stateOf(kernel);
    assert.ok(
      empty.some((line) => /rule 2000.*iif eth0.*lookup 118|2000.*eth0.*118/.test(line)),
      empty.join("\n"),
    );
    await syncNet(stack, plan("10.64.2.9", "fd02::209", "10.64.2.10"), scope);
    const routes = ([4, 6] as const).flatMap((family) => stack.routes.list({ family, table: 118 }));
    assert.deepEqual(routes.map(({ dst }) => String(dst)).sort(), ["10.64.2.10/32", "10.64.2.9/32", "fd02::209/128"]);
    assert.equal(stack.links.list().filter(({ name }) => scope.isOurLink(name)).length, driver.name === "fou" ? 5 : 1);
    assert.equal(await syncNet(stack, plan("10.64.2.10", "10.64.2.9", "fd02::209", "10.64.2.9"), scope), 0);
    await syncNet(stack, plan(), scope);
    assert.deepEqual(stateOf(kernel), empty);
  });
}

/** The ports of a namespace and its packet filter, whose `left`-th change and all later ones fail as if the process had ended. */
function endingAfter(of: { readonly stack: NetStack; readonly nft: Nft }, left: number): typeof of {
  const changes = new Set(["create", "set", "delete", "deleteMany", "add", "replace", "run"]);
  let made = 0;
  const port = <T extends object>(one: T): T =>
    new Proxy(one, {
      get: (target, key) => {
        const method = Reflect.get(target, key) as unknown;
        if (typeof method !== "function") return method;
        return (...args: readonly unknown[]): unknown => {
          if (changes.has(String(key))) made += 1;
          if (made > left) throw new KernelError("not-permitted", "the process has ended");
          return Reflect.apply(method, target, args);
        };
      },
    });
  const ports = Object.entries(of.stack).map(([name, one]) => [name, port(one as object)] as const);
  return { stack: Object.fromEntries(ports) as unknown as NetStack, nft: port(of.nft) };
}

/** The comments of all rules in the tables of marks. */
const marksIn = (nft: Nft): string[] =>
  (["ip", "ip6"] as const).flatMap((family) =>
    nft
      .listTables()
      .filter((table) => table.family === family)
      .flatMap((table) => nft.listChains(table).flatMap(({ name }) => nft.listRules(table, name)))
      .map(({ comment }) => `${family} ${comment}`),
  );

const clientWith = (
  {
    stack,
    nft,
    conntrack = new FakeConntrack(),
  }: { readonly stack: NetStack; readonly nft: Nft; readonly conntrack?: FakeConntrack },
  driver: TunnelDriver,
) => {
  // Disposing the fake forgets its connections.
  const openConntrack = () =>
    Object.assign(Object.create(conntrack) as FakeConntrack, { [Symbol.dispose]: () => undefined });
  const openFilter = () => ({ ...nftFilter(nft), [Symbol.dispose]: () => undefined });
  return (gateways: readonly Gateway[]) =>
    syncClient(stack, POD, gateways, { ...options(driver), openFilter, openConntrack });
};

for (const [what, code, isOtherClean] of [
  ["is not installed", "unsupported", true],
  ["cannot be opened now", "failed", false],
] as const) {
  test(`syncClient: a packet filter out of use that ${what} ${isOtherClean ? "has nothing of ours, and is no fault" : "is a fault, and looked at again"}`, async () => {
    const kernel = new FakeKernel();
    using stack = await podOf(kernel);
    const nft = new FakeNft();
    const only = { ...NAT4, originatingOnly: true };
    await clientWith({ stack, nft }, fouDriver)([only]);
    const ports = {
      openFilter: () => ({ ...nftFilter(nft), [Symbol.dispose]: () => undefined }),
      openOther: () => {
        throw new KernelError(code, "Cannot load libnftables.so.1: install its package");
      },
      openConntrack: () => new FakeConntrack(),
    };
    const done = await syncClient(stack, POD, [only], { ...options(fouDriver), ...ports });
    assert.deepEqual([done.isOtherClean, done.faults.length], [isOtherClean, isOtherClean ? 0 : 1]);
  });
}

const ANY_GATEWAYS = fc
  .uniqueArray(
    fc.record({
      at: fc.nat(3),
      destinations: fc.uniqueArray(fc.constantFrom("0.0.0.0/0", "10.0.0.0/8", "8.8.8.0/24", "172.20.0.0/16"), {
        maxLength: 3,
      }),
      auto: fc.boolean(),
      only: fc.boolean(),
      six: fc.boolean(),
      moved: fc.boolean(),
    }),
    { maxLength: 4, selector: ({ at, six }) => `${at} ${six}` },
  )
  .map((all) =>
    all.map(({ at, destinations, auto, only, six, moved }) => {
      const host = at + (moved ? 11 : 1);
      const own = six ? destinations.map((_, nth) => `fd7${nth}::/16`) : destinations;
      const made = gateway(`e${at}`, six ? `fd03::${host}` : `10.68.0.${host}`, own, auto);
      return { ...made, originatingOnly: only };
    }),
  );

test("syncClient: interrupted after any step of any change of gateways and of the driver, the next sync reaches the same state as one that was not", async () => {
  const driver = fc.constantFrom(fouDriver, vxlanDriver);
  const step = fc.record({ driver, gateways: ANY_GATEWAYS, interruptedAfter: fc.nat(40) });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 5 }), async (steps) => {
      const kernel = new FakeKernel();
      using stack = await podOf(kernel);
      const nft = new FakeNft();
      for (const { driver: asked, gateways: wanted, interruptedAfter } of steps) {
        try {
          await clientWith(endingAfter({ stack, nft }, interruptedAfter), asked)(wanted);
        } catch (error) {
          assert.match((error as Error).name, /^(NetPlanError|KernelError)$/);
        }
      }
      const { driver: chosen, gateways: wanted } = steps.at(-1) ?? assert.fail("no step");
      const sync = clientWith({ stack, nft }, chosen);
      await sync(wanted);
      assert.equal((await sync(wanted)).changes, 0);
      const fresh = { kernel: new FakeKernel(), nft: new FakeNft() };
      using freshStack = await podOf(fresh.kernel);
      await clientWith({ stack: freshStack, nft: fresh.nft }, chosen)(wanted);
      assert.deepEqual(stateOf(kernel), stateOf(fresh.kernel));
      assert.deepEqual(marksIn(nft).sort(), marksIn(fresh.nft).sort());
    }),
    { numRuns: 150 },
  );
});

test("syncClient: a pod that is no client and never was one keeps rules and routes of its own, whatever their numbers are", async () => {
  const kernel = new FakeKernel();
  using stack = await podOf(kernel);
  stack.rules.add({ family: 4, priority: 1950, table: 118 });
  stack.routes.add({ dst: Cidr.parse("1.2.3.4/32"), table: 118, type: "blackhole" });
  const before = stateOf(kernel);
  const sync = clientWith({ stack, nft: new FakeNft() }, vxlanDriver);
  assert.equal((await sync([])).changes, 0);
  assert.deepEqual(stateOf(kernel), before);
  await sync([NAT4]);
  await sync([]);
  assert.doesNotMatch(kernel.dump({ name: "pod" }), /nat_|117|118/);
});

test("syncClient: answers leave by the way they came only to destinations of Egresses that are originatingOnly", async () => {
  const kernel = new FakeKernel();
  using stack = await podOf(kernel);
  const nft = new FakeNft();
  const eth0 = stack.links.get({ name: "eth0" }) ?? assert.fail("no eth0");
  stack.routes.add({ dst: Cidr.parse("10.64.0.0/16"), linkIndex: eth0.index, scope: "link" });
  const only = (one: Gateway): Gateway => ({ ...one, originatingOnly: true });
  const wide = gateway("a", "10.68.0.1", ["0.0.0.0/0"]);
  const narrow = gateway("b", "10.68.0.2", ["8.8.8.0/24", "172.20.0.0/16"]);
  const table = 1000 + eth0.index;
  const sync = clientWith({ stack, nft }, fouDriver);
  const routes = (): string[] =>
    stack.routes
      .list({ family: 4, table })
      .map(({ dst, type, linkIndex }) => `${dst} ${linkIndex === eth0.index ? "eth0" : type}`)
      .sort();
  const copied = ["0.0.0.0/0 eth0", "10.64.0.0/16 eth0"];
  await sync([only(wide), only(narrow)]);
  assert.deepEqual(routes(), copied);
  assert.deepEqual(
    stack.rules
      .list(4)
      .flatMap(({ priority, fwmark, table: to }) => (fwmark === undefined ? [] : [[priority, fwmark, to]])),
    [[1000, eth0.index, table]],
  );
  assert.deepEqual(marksIn(nft), [
    `ip coil-input-eth0 mark ${eth0.index} original`,
    `ip coil-output-eth0 mark ${eth0.index}`,
  ]);
  await sync([only(wide), narrow]);
  assert.deepEqual(routes(), [...copied, "172.20.0.0/16 throw", "8.8.8.0/24 throw"]);
  await sync([wide, only(narrow)]);
  assert.deepEqual(routes(), [
    "0.0.0.0/0 eth0",
    "0.0.0.0/0 throw",
    "10.64.0.0/16 eth0",
    "172.20.0.0/16 eth0",
    "8.8.8.0/24 eth0",
  ]);
  // Another program's mark and rule are not ours.
  const foreign = { family: 4, priority: 1000, fwmark: 7, table: 77 } as const;
  stack.rules.add(foreign);
  await sync([wide, narrow]);
  assert.deepEqual([routes(), marksIn(nft)], [[], []]);
  assert.ok(stack.rules.list(4).some((rule) => rule.table === 77));
});

for (const driver of [fouDriver, vxlanDriver]) {
  test(`planClient, ${driver.name}: with an MTU that is too small for IPv6 in a tunnel its destinations are unreachable and named, and IPv4 has its tunnel`, () => {
    const leastBytes = 1280 + driver.overhead(6);
    const at = (mtuBytes: number) => planClient({ ...POD, mtuBytes }, [NAT4, NAT6], options(driver));
    assert.deepEqual(at(leastBytes).skipped, []);
    const { plan, skipped } = at(leastBytes - 1);
    assert.deepEqual(
      skipped.map(({ egress, why }) => [egress.name, why]),
      [["nat", "mtu-too-small"]],
    );
    const routes = plan.routes.filter(({ dst, metric }) => dst.family === 6 && metric > 1);
    assert.deepEqual(
      routes.map(({ dst, type }) => `${dst} ${type}`),
      ["::/0 unreachable", "fd77::/16 unreachable"],
    );
    assert.equal(plan.rules.filter(({ family }) => family === 6).length, 4);
    assert.deepEqual(
      plan.links,
      planFor(driver, [NAT4]).links.map((link) => smaller(link, 1500 - leastBytes + 1)),
    );
    assert.ok(plan.fouPorts.every(({ family }) => family === 4));
  });
}

const smaller = (link: PlannedLink, bytes: number): PlannedLink =>
  link.spec.mtu === undefined ? link : { ...link, spec: { ...link.spec, mtu: link.spec.mtu - bytes } };

test("planClient: of 40,000 destinations of which only some are originatingOnly, those inside others are found at once", () => {
  const list = (length: number): string[] =>
    Array.from({ length: 20_000 }, (_, at) => `20.${at >> 8}.${at & 255}.0/${length}`);
  const wide = gateway("a", "10.68.0.1", [...list(24), "30.0.0.0/8"]);
  const narrow = { ...gateway("b", "10.68.0.2", [...list(25), "30.0.0.0/24", "40.0.0.0/8"]), originatingOnly: true };
  const uplinks = [{ name: "eth0", index: 2, routes: [{ dst: Cidr.parse("0.0.0.0/0") }] }];
  const startMs = performance.now();
  const { plan } = planClient({ ...POD, uplinks }, [wide, narrow], options(vxlanDriver));
  const nested = plan.routes.filter(
    ({ table, type, dst }) => table === 1002 && type === "unicast" && dst.hostBits < 32,
  );
  assert.equal(nested.length, 20_001);
  assert.ok(nested.some(({ dst }) => String(dst) === "30.0.0.0/24"));
  // 0.5 s; comparing each with each takes 15.
  assert.ok(performance.now() - startMs < 5000, `${performance.now() - startMs} ms`);
});

test("syncClient: without originatingOnly no connection keeps our mark, also after an interruption; marks of others and connections stay", async () => {
  const kernel = new FakeKernel();
  using stack = await podOf(kernel);
  const { index } = stack.links.get({ name: "eth0" }) ?? assert.fail("no eth0");
  const nft = new FakeNft();
  const conntrack = new FakeConntrack();
  for (const mark of [index, 0x2000, 0]) {
    const [src, dst] = [ip("203.0.113.9"), ip("10.64.0.7")];
    const original = { src, dst, srcPort: 1000 + mark, dstPort: 53 };
    const reply = { src: dst, dst: src, srcPort: 53, dstPort: 1000 + mark };
    conntrack.entries.push({ family: 4, protocol: 17, original, reply, mark });
  }
  const marks = (): readonly number[] => conntrack.entries.map(({ mark }) => mark);
  const only = { ...NAT4, originatingOnly: true };
  const sync = clientWith({ stack, nft, conntrack }, vxlanDriver);
  await sync([only]);
  assert.equal((await sync([only])).changes, 0);
  assert.deepEqual(marks(), [index, 0x2000, 0]);
  // The kernel refuses a step after the marks are cleared: the rule that tells of them goes last.
  await assert.rejects(clientWith({ ...endingAfter({ stack, nft }, 3), conntrack }, vxlanDriver)([]));
  const former = conntrack.entries[0] ?? assert.fail();
  conntrack.entries[0] = { ...former, mark: index };
  await sync([]);
  assert.deepEqual(marks(), [0, 0x2000, 0]);
  assert.deepEqual((await sync([])).faults, []);
});
