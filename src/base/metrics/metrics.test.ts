import assert from "node:assert/strict";
import { test } from "node:test";
import { Counter, createRegistry, Gauge, Histogram, readMetrics, sumMetrics } from "./index.ts";

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

test("sumMetrics: counters and histograms are summed, gauges as they say; the version is there once", async () => {
  const parts = await Promise.all(
    [1, 2].map((times) => {
      const registry = createRegistry();
      const registers = [registry];
      new Counter({ name: "calls_total", help: "Calls.", labelNames: ["code"], registers }).inc({ code: "ok" }, times);
      new Gauge({ name: "open", help: "Open.", registers }).set(times);
      new Gauge({ name: "agents", help: "Agents.", registers, aggregator: "max" }).set(times);
      new Histogram({ name: "time_seconds", help: "Time.", buckets: [1, 5], registers }).observe(2 * times);
      return readMetrics(registry);
    }),
  );
  const text = await sumMetrics(JSON.parse(JSON.stringify(parts)));
  for (const line of [
    'calls_total{code="ok"} 3',
    "open 3",
    "agents 2",
    'time_seconds_bucket{le="1"} 0',
    'time_seconds_bucket{le="5"} 2',
    "time_seconds_count 2",
    "time_seconds_sum 6",
  ]) {
    assert.ok(text.split("\n").includes(line), `${line} is not in\n${text}`);
  }
  assert.match(text, /^isthmus_build_info\{version="[^"]+"\} 1$/m);
  assert.equal(await sumMetrics([]), "\n");
});
