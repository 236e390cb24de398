import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import { Cidr, IpAddress } from "#base/ip";
import { KernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import type { Route, RouteKey, RouteSpec } from "#kernel/route";
import { NodeRoutes } from "./node-routes.ts";
import type { RouterNode } from "./wanted.ts";

const PLACE = { table: 254, protocol: 31 };
const WHOLE_MS = 30_000;

/** A table of routes in memory, which counts what is asked of it. */
class Table {
  readonly routes = new Map<string, RouteSpec>();
  readonly asked = { list: 0, replace: 0, delete: 0 };
  refusing = false;

  readonly port = {
    list: ({ family }: { readonly family: number }) => {
      this.asked.list += 1;
      return [...this.routes.values()]
        .filter(({ dst }) => dst.family === family)
        .map((route) => ({ ...route, family, ...PLACE, type: "unicast", scope: "global" }) as Route);
    },
    replace: (route: RouteSpec) => {
      this.asked.replace += 1;
      if (this.refusing) throw new KernelError("unreachable", "injected");
      this.routes.set(route.dst.toString(), route);
    },
    delete: (route: RouteKey) => {
      this.asked.delete += 1;
      if (!this.routes.delete(route.dst.toString())) throw new KernelError("not-found", `${route.dst} is not there`);
    },
  };

  get ways(): string[] {
    return [...this.routes.values()].map(({ dst, gateway }) => `${dst} via ${gateway}`).sort();
  }
}

const node = (name: string, gateway: string, ...prefixes: string[]): RouterNode => ({
  name,
  ipv4: IpAddress.parse(gateway),
  ipv6: undefined,
  prefixes: prefixes.map((text) => Cidr.parse(text)),
});

function scene(...first: RouterNode[]) {
  const clock = new FakeClock();
  const table = new Table();
  const nodes = new Map(first.map((one) => [one.name, one]));
  const stack = { routes: table.port } as unknown as Pick<NetStack, "routes">;
  const routes = new NodeRoutes({ stack, clock }, { ...PLACE, wholeEveryMs: WHOLE_MS });
  const sync = (...changed: string[]) =>
    routes.sync({ all: () => nodes.values(), get: (name) => nodes.get(name), changed });
  return { clock, table, nodes, routes, sync };
}

test("NodeRoutes: the first sync lists the kernel's routes; a change of one node touches the routes of that node alone", () => {
  const others = Array.from({ length: 100 }, (_, at) => node(`n${at}`, `192.0.2.${at + 1}`, `10.0.${at}.0/24`));
  const { table, nodes, routes, sync } = scene(...others);
  assert.deepEqual(sync(), { changes: 100, whole: true });
  assert.deepEqual(table.asked, { list: 2, replace: 100, delete: 0 });
  nodes.set("n7", node("n7", "192.0.2.8", "10.0.7.0/24", "10.9.0.0/24"));
  nodes.set("n8", node("n8", "192.0.2.200", "10.0.8.0/24"));
  nodes.delete("n9");
  assert.deepEqual(sync("n7", "n8", "n9"), { changes: 3, whole: false });
  assert.deepEqual(table.asked, { list: 2, replace: 102, delete: 1 });
  assert.deepEqual(sync("n7"), { changes: 0, whole: false });
  assert.equal(routes.size, 100);
});

test("NodeRoutes: a change after 30 s repairs what others have done to the kernel's routes", async () => {
  const { clock, table, sync } = scene(node("a", "192.0.2.1", "10.0.0.0/24"));
  sync();
  table.routes.clear();
  assert.deepEqual(sync("b"), { changes: 0, whole: false });
  await clock.advance(WHOLE_MS);
  assert.deepEqual(sync("b"), { changes: 1, whole: true });
  assert.deepEqual(sync("b"), { changes: 0, whole: false });
});

test("NodeRoutes: a route that somebody removed is set again alone; one that nobody wants is not; after a thousand all are compared", () => {
  const others = Array.from({ length: 8 }, (_, at) => node(`n${at}`, `192.0.2.${at + 1}`, `10.0.${at}.0/24`));
  const { table, routes, sync } = scene(...others);
  sync();
  table.routes.delete("10.0.3.0/24");
  for (const prefix of ["10.0.3.0/24", "10.9.0.0/24"]) routes.setNext(Cidr.parse(prefix));
  assert.deepEqual(sync(), { changes: 1, whole: false });
  assert.deepEqual([table.routes.size, table.asked.list], [8, 2]);
  assert.deepEqual(sync(), { changes: 0, whole: false });
  for (let at = 0; at < 1001; at += 1) routes.setNext(Cidr.parse(`10.${1 + (at >> 8)}.${at & 255}.0/24`));
  assert.deepEqual(sync(), { changes: 0, whole: true });
});

test("NodeRoutes: after a refusal of the kernel all routes are compared", () => {
  const { table, nodes, sync } = scene(node("a", "192.0.2.1", "10.0.0.0/24"));
  sync();
  nodes.set("b", node("b", "192.0.2.2", "10.0.1.0/24"));
  table.refusing = true;
  assert.throws(() => sync("b"), { code: "partial" });
  assert.throws(() => sync(), { code: "partial" });
  table.refusing = false;
  assert.deepEqual(sync(), { changes: 1, whole: true });
  // A route that another program has removed cannot be removed again.
  table.routes.delete("10.0.1.0/24");
  nodes.delete("b");
  assert.throws(() => sync("b"), { code: "partial" });
  assert.deepEqual(sync(), { changes: 0, whole: true });
});

test("NodeRoutes: prefixes without a gateway of their family are named, until their node has one", () => {
  const { nodes, routes, sync } = scene(node("a", "192.0.2.1", "10.0.0.0/24", "fd00::/64"));
  sync();
  assert.deepEqual(
    routes.skipped.map(({ node: name, prefix }) => `${name} ${prefix}`),
    ["a fd00::/64"],
  );
  nodes.set("a", { ...node("a", "192.0.2.1", "10.0.0.0/24", "fd00::/64"), ipv6: IpAddress.parse("2001:db8::1") });
  sync("a");
  assert.deepEqual([routes.skipped, routes.size], [[], 2]);
});

test("NodeRoutes: a node that has no address any more keeps its routes as long as its blocks, also over a restart", async () => {
  const known = node("a", "192.0.2.1", "10.0.0.0/24", "10.0.1.0/24");
  const gone = (...prefixes: string[]): RouterNode => ({ ...node("a", "192.0.2.1", ...prefixes), ipv4: undefined });
  const { clock, table, nodes, routes, sync } = scene(known, node("b", "192.0.2.2", "10.1.0.0/24"));
  sync();
  const ways = table.ways;
  nodes.set("a", gone("10.0.0.0/24", "10.0.1.0/24"));
  assert.deepEqual(sync("a"), { changes: 0, whole: false });
  await clock.advance(WHOLE_MS);
  assert.deepEqual(sync("a"), { changes: 0, whole: true });
  assert.deepEqual([table.ways, routes.skipped], [ways, []]);
  // A restart knows the kernel's routes alone.
  const again = scene(...nodes.values());
  for (const [dst, route] of table.routes) again.table.routes.set(dst, route);
  assert.deepEqual(again.sync(), { changes: 0, whole: true });
  // A block that is given to the node meanwhile has the way of its others.
  again.nodes.set("a", gone("10.0.0.0/24", "10.0.2.0/24"));
  assert.deepEqual(again.sync("a"), { changes: 2, whole: false });
  assert.deepEqual(again.table.ways, [
    "10.0.0.0/24 via 192.0.2.1",
    "10.0.2.0/24 via 192.0.2.1",
    "10.1.0.0/24 via 192.0.2.2",
  ]);
  again.nodes.set("a", node("a", "192.0.2.3", "10.0.0.0/24"));
  assert.deepEqual(again.sync("a"), { changes: 2, whole: false });
  assert.deepEqual(again.table.ways, ["10.0.0.0/24 via 192.0.2.3", "10.1.0.0/24 via 192.0.2.2"]);
  nodes.delete("a");
  assert.deepEqual(sync("a"), { changes: 2, whole: false });
  assert.deepEqual(table.ways, ["10.1.0.0/24 via 192.0.2.2"]);
  // Nothing is left to be known of it.
  nodes.set("a", gone("10.0.0.0/24"));
  assert.deepEqual(sync("a"), { changes: 0, whole: false });
  assert.deepEqual(
    routes.skipped.map(({ prefix }) => String(prefix)),
    ["10.0.0.0/24"],
  );
});

test("NodeRoutes: a block that moved to a node without an address has not the way of the node that it was taken from", () => {
  const { table, nodes, sync } = scene(node("a", "192.0.2.1", "10.0.0.0/24"));
  sync();
  nodes.delete("a");
  nodes.set("b", { ...node("b", "192.0.2.2", "10.0.0.0/24"), ipv4: undefined });
  sync("a", "b");
  assert.deepEqual(table.ways, []);
});

test("NodeRoutes: whatever changes in whatever order, the table is as if all were compared each time", () => {
  const step = fc.record({
    name: fc.constantFrom("a", "b", "c"),
    gateway: fc.integer({ min: 1, max: 3 }),
    // Few prefixes, so that they move from node to node, and two nodes have one now and then.
    prefixes: fc.uniqueArray(fc.nat(4), { maxLength: 3 }),
    gone: fc.boolean(),
    synced: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      const { table, nodes, sync } = scene();
      sync();
      const changed = new Set<string>();
      for (const { name, gateway, prefixes, gone, synced } of steps) {
        if (gone) nodes.delete(name);
        else nodes.set(name, node(name, `192.0.2.${gateway}`, ...prefixes.map((at) => `10.0.${at}.0/24`)));
        changed.add(name);
        if (!synced) continue;
        sync(...changed);
        changed.clear();
        // With one prefix on two nodes either way is right.
        const allowed = [...nodes.values()].flatMap((one) => one.prefixes.map((dst) => `${dst} via ${one.ipv4}`));
        const wanted = new Set([...nodes.values()].flatMap((one) => one.prefixes.map(String)));
        assert.deepEqual([...table.routes.keys()].sort(), [...wanted].sort());
        assert.deepEqual(
          table.ways.filter((way) => !allowed.includes(way)),
          [],
        );
      }
    }),
    { numRuns: 500 },
  );
});
