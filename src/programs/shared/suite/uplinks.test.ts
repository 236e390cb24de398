import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr } from "#base/ip";
import type { Route } from "#kernel/route";
import { usedDefaults } from "./uplinks.ts";

test("usedDefaults: the default routes that the kernel uses, and not those of further uplinks", () => {
  const route = (dst: string, linkIndex: number, metric?: number): Route =>
    ({ dst: Cidr.parse(dst), linkIndex, ...(metric === undefined ? {} : { metric }) }) as Route;
  const of = (...routes: readonly Route[]) => usedDefaults(routes).map(({ linkIndex }) => linkIndex);
  assert.deepEqual(of(route("0.0.0.0/0", 2, 100), route("0.0.0.0/0", 3, 1000), route("10.0.0.0/8", 4)), [2]);
  assert.deepEqual(of(route("0.0.0.0/0", 2), route("0.0.0.0/0", 3)), [2, 3]);
  assert.deepEqual(of(), []);
});
