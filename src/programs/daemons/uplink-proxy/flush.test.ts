import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr } from "#base/ip";
import { DEFAULT_SETTINGS, type Settings } from "#base/uplink-model";
import { uplinksEstate } from "#features/uplink-routing";
import { FakeKernel } from "#kernel/fake";
import { FakeNft } from "#kernel/nft";
import type { ReadEstates } from "../../shared/estate/index.ts";
import { flushAll } from "./flush.ts";

const NONE: ReadEstates = { sets: [], known: new Set(), refused: [] };
const settingsOf = (tableBase: number, routeProtocol: number): Settings => ({
  ...DEFAULT_SETTINGS,
  routing: { ...DEFAULT_SETTINGS.routing, tableBase, routeProtocol, rulePriority: 21 },
});

/** The estate of an uplink-proxy that ran with these settings. */
const ranWith = (settings: Settings): ReadEstates => {
  const kernel = uplinksEstate(settings).flatMap(({ claims }) => claims);
  const set = { program: "uplink-proxy", source: "estate", kernel, files: [], uid: 0 } as const;
  return { ...NONE, sets: [set], known: new Set(["uplink-proxy"]) };
};

test("flushAll: objects of former settings go by the estate; without it they are named as left", () => {
  const kernel = new FakeKernel();
  using own = kernel.openNetNs("own");
  using stack = kernel.openStack(own);
  const nft = new FakeNft();
  const former = settingsOf(3000, 99);
  const [all, from] = [Cidr.parse("0.0.0.0/0"), Cidr.parse("192.0.2.1/32")];
  const end = { dst: all, type: "unreachable", metric: 0xffff_ffff } as const;
  stack.routes.add({ ...end, table: 3002, protocol: 99 });
  stack.rules.add({ family: 4, priority: 21, table: 3002, from, protocol: 99 });
  stack.routes.add({ ...end, table: 502, protocol: 157 });
  const without = flushAll({ stack, nft }, DEFAULT_SETTINGS, NONE);
  assert.deepEqual(without, {
    changes: 1,
    left: ["routes of table 3002 and protocol 99 end as those of an uplink with other settings"],
  });
  const refused = ["the estate of uplink-proxy claims table 254, protocol 4: the table is the kernel's"];
  const wrong = flushAll({ stack, nft }, DEFAULT_SETTINGS, { ...NONE, refused });
  assert.deepEqual(wrong.left, [...refused, ...without.left]);
  assert.deepEqual(flushAll({ stack, nft }, DEFAULT_SETTINGS, ranWith(former)), { changes: 2, left: [] });
  assert.deepEqual(
    stack.rules.list(4).filter(({ table }) => table === 3002),
    [],
  );
});
