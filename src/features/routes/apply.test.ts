import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr } from "#base/ip";
import { KernelError } from "#kernel/errors";
import type { RouteSpec } from "#kernel/route";
import { applyRoutes } from "./plan.ts";

const route = (dst: string): RouteSpec => ({ dst: Cidr.parse(dst), table: 254, protocol: 31, linkIndex: 1 });

test("applyRoutes: a route that the kernel refuses does not keep the others; the error names it", () => {
  const made: string[] = [];
  const port = {
    replace: (one: RouteSpec) => {
      if (String(one.dst) === "10.2.0.0/24")
        throw new KernelError("unreachable", "Cannot set route 10.2.0.0/24: no way");
      made.push(String(one.dst));
    },
    delete: () => undefined,
  };
  const plan = ["10.1.0.0/24", "10.2.0.0/24", "10.3.0.0/24"].map((dst) => ({ op: "set" as const, route: route(dst) }));
  assert.throws(() => applyRoutes(port, plan), {
    name: "RouteSyncError",
    code: "partial",
    message: "1 of 3 route changes failed: Cannot set route 10.2.0.0/24: no way",
  });
  assert.deepEqual(made, ["10.1.0.0/24", "10.3.0.0/24"]);
});
