import assert from "node:assert/strict";
import { test } from "node:test";
import { Counter, Registry, startAtZero } from "./index.ts";

test("startAtZero: every mix of values is there, at 0, and counts go on from it", async () => {
  const registry = new Registry();
  const counter = new Counter({ name: "a", help: "a", labelNames: ["x", "y"], registers: [registry] });
  startAtZero(counter, { x: ["1", "2"], y: { p: true, q: true } });
  counter.inc({ x: "2", y: "q" });
  const lines = (await registry.metrics()).split("\n").filter((line) => line.startsWith("a{"));
  assert.deepEqual(lines, ['a{x="1",y="p"} 0', 'a{x="1",y="q"} 0', 'a{x="2",y="p"} 0', 'a{x="2",y="q"} 1']);
});
