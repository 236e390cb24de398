import assert from "node:assert/strict";
import { test } from "node:test";
import { Counter, createRegistry } from "./index.ts";

test("createRegistry: observers of the process are made once, however often a program in it starts anew", async () => {
  const [first, second] = [createRegistry(), createRegistry()];
  const names = first.getMetricsAsArray().map(({ name }) => name);
  assert.ok(names.includes("nodejs_eventloop_lag_seconds") && names.includes("process_resident_memory_bytes"));
  for (const name of names) assert.equal(second.getSingleMetric(name), first.getSingleMetric(name), name);
  assert.match(await second.metrics(), /^process_resident_memory_bytes [1-9]/m);
});

test("createRegistry: every program tells its version", async () => {
  assert.match(await createRegistry().metrics(), /^isthmus_build_info\{version="\S+"\} 1$/m);
});

test("createRegistry: metrics of a program are only in its own registry", () => {
  const [first, second] = [createRegistry(), createRegistry()];
  for (const registry of [first, second]) new Counter({ name: "a", help: "a", registers: [registry] });
  assert.notEqual(first.getSingleMetric("a"), second.getSingleMetric("a"));
  assert.equal(createRegistry().getSingleMetric("a"), undefined);
});
