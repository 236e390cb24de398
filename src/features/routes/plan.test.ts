import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Cidr, IpAddress } from "#base/ip";
import type { Route, RouteSpec } from "#kernel/route";
import { applyRoutes, planRoutes } from "./plan.ts";
import { exportRoutes, routesToNodes } from "./wanted.ts";

const PLACE = { table: 119, protocol: 30 };
const DESTINATIONS = ["10.0.0.0/27", "10.0.0.32/27", "10.1.0.0/32", "fd00::/123", "fd00::20/123", "0.0.0.0/0"].map(
  (text) => Cidr.parse(text),
);
const GATEWAYS = { 4: ["192.0.2.1", "192.0.2.2"], 6: ["2001:db8::1", "2001:db8::2"] };

/** A way to one of a few destinations: through the loopback, or one of two gateways of its family. */
const spec = fc.record({ dst: fc.constantFrom(...DESTINATIONS), way: fc.nat(2) }).map(({ dst, way }): RouteSpec => {
  const gateway = GATEWAYS[dst.family][way - 1];
  return {
    dst,
    type: "unicast",
    scope: "global",
    ...PLACE,
    ...(gateway === undefined ? { linkIndex: 1 } : { gateway: IpAddress.parse(gateway) }),
  };
});
const onePerPrefix = fc.uniqueArray(spec, { selector: ({ dst }) => dst.toString() });

/** Returns a route as the kernel would list it: gateways have a link there, and prefixes may have several metrics. */
function listed(route: RouteSpec, metric: number): Route {
  return {
    family: route.dst.family,
    scope: "global",
    type: "unicast",
    linkIndex: 2,
    metric,
    ...(route as object),
    dst: route.dst,
    ...PLACE,
  } as Route;
}

const way = ({ dst, gateway, linkIndex }: RouteSpec | Route): string =>
  `${dst} ${gateway === undefined ? `dev ${linkIndex}` : `via ${gateway}`}`;

/** A table in memory: replace takes the place of what has the same prefix, as NLM_F_REPLACE does. */
class Table {
  routes: Route[];
  readonly done: string[] = [];
  constructor(routes: readonly Route[]) {
    this.routes = [...routes];
  }
  replace(route: RouteSpec): void {
    this.done.push("set");
    const at = this.routes.findIndex(({ dst }) => dst.equals(route.dst));
    if (at < 0) this.routes.push(listed(route, 0));
    else this.routes[at] = listed(route, this.routes[at]?.metric ?? 0);
  }
  delete(route: RouteSpec): void {
    this.done.push("unset");
    const at = this.routes.findIndex((one) => one.dst.equals(route.dst) && one.metric === (route as Route).metric);
    assert.ok(at >= 0, `${route.dst} is not there`);
    this.routes.splice(at, 1);
  }
}

test("planRoutes: the applied plan gives the wanted routes, and a second plan is empty", () => {
  const actual = fc.array(fc.tuple(spec, fc.nat(2)), { maxLength: 12 }).map((routes) => {
    const seen = new Set<string>();
    return routes.flatMap(([route, metric]) => {
      const key = `${route.dst} ${metric}`;
      if (seen.has(key)) return [];
      seen.add(key);
      return [listed(route, metric)];
    });
  });
  fc.assert(
    fc.property(actual, onePerPrefix, (before, wanted) => {
      const table = new Table(before);
      const plan = planRoutes(before, wanted);
      applyRoutes(table, plan);
      assert.deepEqual(table.routes.map(way).sort(), wanted.map(way).sort());
      assert.deepEqual(planRoutes(table.routes, wanted), []);
      assert.ok(!table.done.join().includes("unset,set"), "sets come before unsets");
    }),
    { numRuns: 500 },
  );
});

test("planRoutes: correct routes are left alone; prefixes of different length are different", () => {
  const [loopback] = exportRoutes([Cidr.parse("10.0.0.0/27")], 1, PLACE);
  assert.ok(loopback !== undefined);
  assert.deepEqual(planRoutes([listed(loopback, 0)], [loopback]), []);
  assert.deepEqual(
    planRoutes([listed(loopback, 0)], [{ ...loopback, dst: Cidr.parse("10.0.0.0/28") }]).map(
      ({ op, route }) => `${op} ${route.dst}`,
    ),
    ["set 10.0.0.0/28", "unset 10.0.0.0/27"],
  );
  const blackhole: Route = { ...listed(loopback, 0), type: "blackhole" };
  assert.equal(planRoutes([blackhole], [loopback])[0]?.op, "set");
});

test("exportRoutes: one route through the loopback for each prefix, in the export table with our protocol", () => {
  const routes = exportRoutes(DESTINATIONS.slice(0, 2), 7, PLACE);
  assert.deepEqual(
    routes.map(({ dst, ...rest }) => [dst.toString(), rest]),
    ["10.0.0.0/27", "10.0.0.32/27"].map((dst) => [dst, { linkIndex: 7, scope: "global", type: "unicast", ...PLACE }]),
  );
});

test("routesToNodes: by the node's address of the prefix's family; without one the prefix is skipped and returned", () => {
  const prefixes = [Cidr.parse("10.0.0.0/27"), Cidr.parse("fd00::/123")];
  const ipv4 = IpAddress.parse("192.0.2.1");
  const { routes, skipped } = routesToNodes(
    [
      { name: "both", ipv4, ipv6: IpAddress.parse("2001:db8::1"), prefixes },
      { name: "four", ipv4, ipv6: undefined, prefixes },
    ],
    PLACE,
  );
  assert.deepEqual(routes.map(way), [
    "10.0.0.0/27 via 192.0.2.1",
    "fd00::/123 via 2001:db8::1",
    "10.0.0.0/27 via 192.0.2.1",
  ]);
  assert.deepEqual(
    skipped.map(({ node, prefix }) => `${node} ${prefix}`),
    ["four fd00::/123"],
  );
});
