import assert from "node:assert/strict";
import { test } from "node:test";
import { nullLogger } from "#base/log";
import { KernelError } from "#kernel/errors";
import { GivenFrontEnds } from "./address-guard.ts";

function setUp() {
  const state = { hasSynced: false, isFailing: false, lists: 0, planned: new Map<string, boolean>() };
  const elements = {
    names: () => ({ chains: [], sets: ["service-ips", "noep"] }),
    list: (_table: unknown, set: string) => {
      state.lists += 1;
      if (state.isFailing) throw new KernelError("busy", "cannot list elements: the table is busy");
      if (set === "noep") return [{ key: "d", comment: "ns/idle:http/TCP" }];
      return [
        { key: "a", comment: "ns/web:http/TCP" },
        { key: "b", comment: "ns/web/UDP" },
      ];
    },
  };
  const proxy = {
    family: 4 as const,
    plane: { table: { family: "ip" as const, name: "kube-proxy" } },
    wanted: {
      has: (service: string) => state.planned.has(service),
      holds: (service: string) => state.planned.get(service) === true,
    },
    get hasSynced() {
      return state.hasSynced;
    },
  };
  const given = new GivenFrontEnds(elements, nullLogger);
  return { state, has: (key: string, service: string) => given.has(proxy, { key, service }) };
}

test("GivenFrontEnds: before the first sync the table of an earlier run counts, which is listed once, and then what is wanted", () => {
  const { state, has } = setUp();
  assert.deepEqual(
    [has("a", "ns/web"), has("b", "ns/web"), has("a", "ns/we"), has("c", "ns/web"), has("d", "ns/idle")],
    [true, true, false, false, true],
  );
  assert.equal(state.lists, 2, "each set once");
  state.planned.set("ns/web", false);
  assert.equal(has("a", "ns/web"), false, "planned, and refused");
  state.planned.set("ns/web", true);
  assert.equal(has("a", "ns/web"), true);
  state.hasSynced = true;
  state.planned.delete("ns/web");
  assert.deepEqual([has("a", "ns/web"), state.lists], [false, 2], "deleted, and made again");
});

test("GivenFrontEnds: a table that cannot be listed has given nothing, and is not listed for each claim", () => {
  const { state, has } = setUp();
  state.isFailing = true;
  assert.deepEqual([has("a", "ns/web"), has("b", "ns/web"), state.lists], [false, false, 1]);
});
