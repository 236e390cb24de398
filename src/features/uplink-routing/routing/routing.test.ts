import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Cidr, IpAddress } from "#base/ip";
import type { Settings } from "#base/uplink-model";
import { parseSettings } from "#features/uplink-config";
import { isKernelError } from "#kernel/errors";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import { canBeSource, readKernel } from "../state/index.ts";
import { applyRouting, planFlush, planRouting, type RoutingChange } from "./index.ts";

const IF_NAMES = ["eth0", "eth1", "usb0", "br0"] as const;
const ADDRESSES = [
  "192.0.2.10/24",
  "192.0.2.11/24",
  "198.51.100.10/24",
  "2001:db8:1::10/64",
  "2001:db8:2::10/64",
] as const;
const GATEWAYS = ["192.0.2.1", "198.51.100.1", "2001:db8:1::1", "2001:db8:2::1"] as const;

/** One thing that happens to a host. */
type Step =
  | { readonly do: "plug" | "unplug" | "up" | "down"; readonly ifName: string }
  | { readonly do: "assign" | "remove"; readonly ifName: string; readonly address: string }
  | { readonly do: "route" | "unroute"; readonly gateway: string; readonly metric: number }
  | { readonly do: "foreign"; readonly table: number; readonly gateway: string }
  | { readonly do: "configure"; readonly which: number };

const ifName = fc.constantFrom(...IF_NAMES);
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ do: fc.constantFrom("plug" as const, "unplug" as const, "up" as const, "down" as const), ifName }),
  fc.record({
    do: fc.constantFrom("assign" as const, "assign" as const, "remove" as const),
    ifName,
    address: fc.constantFrom(...ADDRESSES),
  }),
  fc.record({
    do: fc.constantFrom("route" as const, "route" as const, "unroute" as const),
    gateway: fc.constantFrom(...GATEWAYS),
    metric: fc.constantFrom(100, 200, 5000),
  }),
  fc.record({
    do: fc.constant("foreign" as const),
    table: fc.integer({ min: 500, max: 506 }),
    gateway: fc.constantFrom(...GATEWAYS),
  }),
  fc.record({ do: fc.constant("configure" as const), which: fc.nat({ max: 3 }) }),
);

const settingsOf = (value: Readonly<Record<string, unknown>>): Settings =>
  parseSettings(JSON.stringify({ version: 1, ...value }), "test").settings;

const observed = ["eth0", "eth1", "usb0"].map((name, cost) => ({ name, interface: name, cost }));
const CONFIGURATIONS: readonly Settings[] = [
  settingsOf({ uplinks: observed }),
  settingsOf({
    uplinks: [
      {
        name: "a",
        interface: "eth0",
        mode: "static",
        addresses: ["192.0.2.10/24", "2001:db8:1::10/64"],
        gateway4: "192.0.2.1",
        gateway6: "2001:db8:1::1",
      },
      { name: "b", interface: "eth1", mode: "static", addresses: ["198.51.100.10/24"], gateway4: "203.0.113.1" },
    ],
    routing: { clusterInterface: "br0", serviceCIDRs: ["10.43.0.0/16", "fd00:43::/108"] },
  }),
  settingsOf({ uplinks: observed, routing: { setMetrics: true, localRulePriority: 12_000 } }),
  settingsOf({ uplinks: observed, routing: { manage: false } }),
];

class Host {
  readonly kernel = new FakeKernel();
  readonly stack: NetStack;
  settings: Settings = CONFIGURATIONS[0] ?? settingsOf({});
  readonly #far = this.kernel.createNetNs("far");
  #serial = 0;

  constructor() {
    this.stack = this.kernel.openStack(this.kernel.createNetNs("node"));
  }

  /** Applies a step. A step that the kernel refuses has no effect. */
  take(one: Step): void {
    try {
      this.#take(one);
    } catch (error) {
      if (!isKernelError(error)) throw error;
    }
  }

  #take(one: Step): void {
    const { stack } = this;
    const index = "ifName" in one ? (stack.links.get({ name: one.ifName })?.index ?? 0) : 0;
    if (one.do === "configure") this.settings = CONFIGURATIONS[one.which] ?? this.settings;
    else if (one.do === "plug") this.#plug(one.ifName);
    else if (one.do === "unplug") stack.links.delete(index);
    else if (one.do === "up" || one.do === "down") stack.links.set(index, { up: one.do === "up" });
    else if (one.do === "route")
      stack.routes.add({ dst: anywhere(one.gateway), gateway: IpAddress.parse(one.gateway), metric: one.metric });
    else if (one.do === "unroute")
      stack.routes.delete({ dst: anywhere(one.gateway), gateway: IpAddress.parse(one.gateway), metric: one.metric });
    else if (one.do === "foreign")
      stack.routes.add({
        dst: Cidr.parse(one.gateway.includes(":") ? "fd77::/48" : "10.77.0.0/16"),
        gateway: IpAddress.parse(one.gateway),
        table: one.table,
        protocol: 4,
      });
    else if (one.do === "assign" || one.do === "remove") {
      const [address = "", length] = one.address.split("/");
      const key = { linkIndex: index, address: IpAddress.parse(address), prefixLength: Number(length) };
      if (one.do === "assign") stack.addresses.add({ ...key, noDad: true });
      else stack.addresses.delete(key);
    }
  }

  #plug(name: string): void {
    this.#serial += 1;
    const peer = { name: `p${this.#serial}`, netns: this.#far, up: true };
    this.stack.links.create({ kind: "veth", name, up: true, peer });
  }

  plan(): readonly RoutingChange[] {
    return planRouting(this.settings, readKernel(this.stack)).changes;
  }

  /** Returns the objects without a mark of ours, but for metrics of the main table, which are ours to set. */
  foreign(): string {
    const { routes, rules } = readKernel(this.stack);
    const kept = [
      ...routes.filter(
        ({ table, protocol }) => protocol !== 157 && (table !== 254 || !this.settings.routing.setMetrics),
      ),
      ...rules.filter(({ protocol, table }) => protocol !== 157 && table !== 255),
    ];
    return kept
      .map((one) => JSON.stringify(one))
      .sort()
      .join("\n");
  }
}

const anywhere = (gateway: string): Cidr => Cidr.parse(gateway.includes(":") ? "::/0" : "0.0.0.0/0");

/** Asserts what must hold at any time: a rule of ours leads to a table that ends. */
function assertTablesEnd(host: Host): void {
  const { routes, rules } = readKernel(host.stack);
  for (const rule of rules.filter(({ priority, protocol }) => priority === 15_000 && protocol === 157)) {
    const ends = routes.some(
      ({ table, family, type }) => table === rule.table && family === rule.family && type === "unreachable",
    );
    assert.ok(ends, `IPv${rule.family} rule from ${rule.from} leads to table ${rule.table}, which has no end`);
  }
}

/** Asserts what must hold after a pass: each address of an uplink has one rule, and that leads to its uplink's table. */
function assertRules(host: Host): void {
  const listing = readKernel(host.stack);
  const { tables } = planRouting(host.settings, listing);
  const seen = new Set<string>();
  for (const { name, interface: ifName, mode, addresses } of host.settings.uplinks) {
    const link = listing.links.find((one) => one.name === ifName);
    const own = listing.addresses.filter(({ linkIndex, address }) => linkIndex === link?.index && canBeSource(address));
    for (const { address } of mode === "static"
      ? own.filter((one) => addresses.some((said) => said.address.equals(one.address)))
      : own) {
      if (seen.has(String(address)) || !host.settings.routing.manage) continue;
      seen.add(String(address));
      const rules = listing.rules.filter(
        ({ from, priority }) => priority === 15_000 && from?.base.equals(address) === true,
      );
      assert.deepEqual(
        rules.map(({ table }) => table),
        [tables.get(name)],
        `${address} of ${name}`,
      );
    }
  }
}

/** ISTHMUS_SOAK=full: three times as many runs. */
const FULL = process.env["ISTHMUS_SOAK"] === "full";

test("planRouting: whatever happens to a host, a pass makes it right, the next is empty, and nothing foreign is touched (property)", () => {
  let changes = 0;
  fc.assert(
    fc.property(
      fc.array(step, { minLength: 1, maxLength: 40, size: "max" }),
      fc.nat({ max: 20 }),
      (steps, killedAfter) => {
        const host = new Host();
        for (const ifName of IF_NAMES) host.take({ do: "plug", ifName });
        for (const [at, address] of ADDRESSES.entries()) {
          host.take({ do: "assign", ifName: IF_NAMES[Math.floor(at / 2) % 2] ?? "eth0", address });
        }
        for (const gateway of GATEWAYS) host.take({ do: "route", gateway, metric: 100 });
        for (const one of steps) {
          host.take(one);
          const foreign = host.foreign();
          // One pass dies midway, the next finishes.
          for (const change of host.plan().slice(0, killedAfter)) {
            applyRouting(host.stack, [change]);
            assertTablesEnd(host);
          }
          changes += host.plan().length;
          applyRouting(host.stack, host.plan());
          applyRouting(host.stack, host.plan());
          assert.deepEqual(host.plan(), [], JSON.stringify(one));
          assertTablesEnd(host);
          assertRules(host);
          assert.equal(host.foreign(), foreign);
        }
        const foreign = host.foreign();
        applyRouting(host.stack, planFlush(readKernel(host.stack), host.settings.routing));
        assert.deepEqual(planFlush(readKernel(host.stack), host.settings.routing), []);
        assert.equal(host.foreign(), foreign);
        const left = readKernel(host.stack).rules.filter(({ protocol }) => protocol === 157);
        assert.deepEqual(left, []);
      },
    ),
    { numRuns: FULL ? 200 : 60 },
  );
  assert.ok(changes > 1000, `there was something to do: ${changes} changes`);
});
