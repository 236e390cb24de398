import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Cidr, IpAddress } from "#base/ip";
import { KernelError } from "#kernel/errors";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import { type Gateway, PRIVATE_RANGES } from "./client/index.ts";
import {
  type ClientOptions,
  clientScope,
  fouDriver,
  type NetPlan,
  type NetScope,
  planClient,
  planRouter,
  routerScope,
  syncNet,
  type TunnelDriver,
  vxlanDriver,
} from "./index.ts";

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

const CLIENT_STATE: Readonly<Record<TunnelDriver["name"], readonly RegExp[]>> = {
  fou: [
    /^link fou4_0a4472d9 ipip mtu 1472 up$/m,
    /^link fou6_[0-9a-f]{8} ip6tnl mtu 1452 up$/m,
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

/** The ports of `stack`, whose `left`-th change and all later ones fail as if the process had ended. */
function endingAfter(stack: NetStack, left: number): NetStack {
  const changes = new Set(["create", "set", "delete", "deleteMany", "add", "replace"]);
  let made = 0;
  const port = (of: object): object =>
    new Proxy(of, {
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
  return Object.fromEntries(
    Object.entries(stack).map(([name, of]) => [name, port(of as object)]),
  ) as unknown as NetStack;
}

test("syncNet: interrupted after any step of any change of gateways, the next sync reaches the same state as one that was not", async () => {
  const one = fc.record({
    at: fc.nat(3),
    destinations: fc.uniqueArray(fc.constantFrom("0.0.0.0/0", "10.0.0.0/8", "8.8.8.0/24", "172.20.0.0/16"), {
      maxLength: 3,
    }),
    auto: fc.boolean(),
    six: fc.boolean(),
  });
  const gateways = fc.uniqueArray(one, { maxLength: 4, selector: ({ at, six }) => `${at} ${six}` });
  const toGateways = (
    all: readonly { at: number; destinations: readonly string[]; auto: boolean; six: boolean }[],
  ): Gateway[] =>
    all.map(({ at, destinations, auto, six }) =>
      six
        ? gateway(
            `e${at}`,
            `fd03::${at + 1}`,
            destinations.map((_, nth) => `fd7${nth}::/16`),
            auto,
          )
        : gateway(`e${at}`, `10.68.0.${at + 1}`, destinations, auto),
    );
  const step = fc.record({ gateways, interruptedAfter: fc.nat(40) });
  const driver = fc.constantFrom(fouDriver, vxlanDriver);
  const scope: NetScope = CLIENT;
  await fc.assert(
    fc.asyncProperty(driver, fc.array(step, { minLength: 1, maxLength: 5 }), async (chosen, steps) => {
      const kernel = new FakeKernel();
      using stack = await podOf(kernel);
      for (const { gateways: wanted, interruptedAfter } of steps) {
        const plan = planFor(chosen, toGateways(wanted));
        try {
          await syncNet(endingAfter(stack, interruptedAfter), plan, scope);
        } catch (error) {
          assert.equal((error as Error).name, "NetPlanError");
        }
      }
      const plan = planFor(chosen, toGateways(steps.at(-1)?.gateways ?? []));
      await syncNet(stack, plan, scope);
      assert.equal(await syncNet(stack, plan, scope), 0);
      const fresh = new FakeKernel();
      using freshStack = await podOf(fresh);
      await syncNet(freshStack, plan, scope);
      assert.deepEqual(stateOf(kernel), stateOf(fresh));
    }),
    { numRuns: 150 },
  );
});
