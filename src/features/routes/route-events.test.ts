import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import type { Link } from "#kernel/link";
import type { MonitorEvent } from "#kernel/monitor";
import type { Route } from "#kernel/route";
import { RouteEvents } from "./route-events.ts";

const PLACE = { table: 254, protocol: 31 };
const UPLINK = 7;

const route = (op: "new" | "delete", dst: string, changes: Partial<Route> = {}): MonitorEvent => {
  const cidr = Cidr.parse(dst);
  const made = {
    family: cidr.family,
    dst: cidr,
    ...PLACE,
    scope: "global",
    type: "unicast",
    linkIndex: UPLINK,
  } as const;
  return { kind: "route", op, route: { ...made, ...changes } };
};
const link = (op: "new" | "delete", index: number, up: boolean): MonitorEvent => ({
  kind: "link",
  op,
  link: { index, up } as Link,
});
const address = (op: "new" | "delete", linkIndex: number): MonitorEvent => ({
  kind: "address",
  op,
  address: { linkIndex, address: IpAddress.parse("192.0.2.1"), prefixLength: 24, scope: "global" } as never,
});

/** Events about one uplink, to which a route of ours leads. */
function scene({ isBehind = false, links = [] as number[] } = {}) {
  const events = new RouteEvents(PLACE);
  const wanted = { wants: (dst: Cidr) => `${dst}` === "10.1.0.0/27", isBehind, links: new Set(links) };
  const dueOf = (event: MonitorEvent): string => String(events.due(event, wanted));
  const due = (event: MonitorEvent): boolean => {
    const found = dueOf(event);
    assert.ok(found === "all" || found === "none", found);
    return found === "all";
  };
  assert.equal(due(route("new", "10.1.0.0/27")), false);
  return { due, dueOf };
}

test("RouteEvents: a wanted route that goes is due alone, by whatever hand; others' routes and those that nobody wants are not", () => {
  const { dueOf } = scene();
  assert.equal(dueOf(route("delete", "10.1.0.0/27")), "10.1.0.0/27");
  assert.equal(dueOf(route("delete", "10.9.0.0/27")), "none");
  assert.equal(dueOf(route("delete", "10.1.0.0/27", { protocol: 4 })), "none");
  assert.equal(dueOf(route("delete", "10.1.0.0/27", { table: 100 })), "none");
  assert.equal(dueOf({ kind: "resync" }), "all");
});

test("RouteEvents: each change of state of a link that our routes lead to is due, and no other link's", () => {
  const { due } = scene();
  assert.equal(due(link("new", UPLINK + 1, false)), false);
  assert.deepEqual(
    [true, true, false, false, true].map((up) => due(link("new", UPLINK, up))),
    [true, false, true, false, true],
  );
  assert.equal(due(link("delete", UPLINK + 1, false)), false);
  assert.equal(due(link("delete", UPLINK, false)), true);
  assert.equal(due(link("new", UPLINK, true)), false, "another link has its index now");
});

test("RouteEvents: after a loss of events the state of a link is not known any more, so its next event is due", () => {
  const { due } = scene();
  assert.deepEqual(
    [true, true].map((up) => due(link("new", UPLINK, up))),
    [true, false],
  );
  assert.equal(due({ kind: "resync" }), true);
  // The event of its going down was lost.
  assert.deepEqual(
    [true, true].map((up) => due(link("new", UPLINK, up))),
    [true, false],
  );
});

test("RouteEvents: a link that the last comparison found is followed too, as after a restart", () => {
  const { due } = scene({ links: [UPLINK + 1] });
  assert.deepEqual(
    [true, false].map((up) => due(link("new", UPLINK + 1, up))),
    [true, true],
  );
  assert.equal(due(address("delete", UPLINK + 1)), true);
});

test("RouteEvents: an address that a link of our routes loses is due; a new one, or a new way, when routes could not be set", () => {
  const { due } = scene();
  assert.deepEqual([due(address("delete", UPLINK)), due(address("new", UPLINK))], [true, false]);
  assert.equal(due(address("delete", UPLINK + 1)), false);
  assert.equal(due(route("new", "192.0.2.0/24", { protocol: 2 })), false);
  const behind = scene({ isBehind: true });
  assert.equal(behind.due(address("new", UPLINK)), true);
  assert.equal(behind.due(route("new", "192.0.2.0/24", { protocol: 2, linkIndex: 9 })), true);
  for (const dst of ["10.1.0.1/32", "2001:db8::1/128", "fe80::/64"])
    assert.equal(behind.due(route("new", dst, { protocol: 2, linkIndex: 9 })), false, dst);
  assert.equal(behind.due(route("new", "192.0.2.0/24", { protocol: 2, table: 255 })), false);
});
