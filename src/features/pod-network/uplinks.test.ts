import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr } from "#base/ip";
import { KernelError } from "#kernel/errors";
import type { Link } from "#kernel/link";
import type { MonitorEvent } from "#kernel/monitor";
import type { Route, RouteFilter } from "#kernel/route";
import { Uplinks } from "./uplinks.ts";

const links = [
  { index: 1, mtu: 65_536 },
  { index: 2, mtu: 1500 },
  { index: 3, mtu: 1400 },
] as unknown as readonly Link[];
const route = (dst: string, rest: object): Route =>
  ({ dst: Cidr.parse(dst), table: 254, type: "unicast", ...rest }) as Route;

/** A main table, and the number of its lists. */
function scene(...routes: Route[]) {
  const asked = { lists: 0, isBroken: false };
  const list = ({ family }: RouteFilter): Route[] => {
    if (asked.isBroken) throw new KernelError("failed", "injected");
    asked.lists += family === 4 ? 1 : 0;
    return routes.filter(({ dst }) => dst.family === family);
  };
  return { asked, routes, uplinks: new Uplinks({ list }) };
}
const event = (value: object): MonitorEvent => value as MonitorEvent;

test("Uplinks: the narrowest of the links of default routes, of both families and of each next hop", () => {
  const { uplinks, routes } = scene(
    route("10.0.0.0/8", { linkIndex: 1 }),
    route("0.0.0.0/0", { linkIndex: 2 }),
    route("::/0", { type: "unreachable", linkIndex: 1 }),
  );
  assert.equal(uplinks.narrowest(links)?.mtu, 1500);
  routes.push(route("::/0", { multipath: [{ linkIndex: 2 }, { linkIndex: 3 }] }));
  assert.equal(uplinks.narrowest(links)?.mtu, 1400, "without events the table is listed each time");
  assert.equal(scene().uplinks.narrowest(links)?.mtu, undefined);
});

test("Uplinks: with events the table is listed once, and again after an event that may concern a default route", () => {
  const { uplinks, asked } = scene(route("0.0.0.0/0", { linkIndex: 2 }));
  uplinks.isWatched = true;
  const listed = (what: string, count: number): void => {
    assert.equal(uplinks.narrowest(links)?.mtu, 1500);
    assert.deepEqual([what, asked.lists], [what, count]);
  };
  listed("first", 1);
  listed("again", 1);
  uplinks.note(event({ kind: "route", op: "new", route: route("10.0.0.0/27", { linkIndex: 2 }) }));
  uplinks.note(event({ kind: "route", op: "new", route: route("0.0.0.0/0", { linkIndex: 2, table: 500 }) }));
  uplinks.note(event({ kind: "link", op: "new", link: { index: 3 } }));
  uplinks.note(event({ kind: "address", op: "delete", address: { linkIndex: 3 } }));
  uplinks.note(event({ kind: "rule", op: "delete", rule: {} }));
  listed("events of others", 1);
  uplinks.note(event({ kind: "route", op: "delete", route: route("::/0", { linkIndex: 3 }) }));
  listed("a default route", 2);
  uplinks.note(event({ kind: "link", op: "new", link: { index: 2 } }));
  listed("the uplink", 3);
  uplinks.note(event({ kind: "address", op: "delete", address: { linkIndex: 2 } }));
  listed("an address of the uplink", 4);
  uplinks.note(event({ kind: "resync" }));
  listed("lost events", 5);
  uplinks.isWatched = false;
  listed("no events any more", 6);
  listed("no events any more", 7);
});

test("Uplinks: a list that fails is made again", () => {
  const { uplinks, asked } = scene(route("0.0.0.0/0", { linkIndex: 2 }));
  uplinks.isWatched = true;
  asked.isBroken = true;
  assert.equal(uplinks.narrowest(links)?.mtu, undefined);
  asked.isBroken = false;
  assert.equal(uplinks.narrowest(links)?.mtu, 1500);
});
