import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "#base/log";
import type { Service } from "#kube/client";
import { healthPortWatch } from "./health-port-watch.ts";

test("healthPortWatch: a Service without its health port is told of once, until it has one or is gone", () => {
  const lines: string[] = [];
  const watch = healthPortWatch(createLogger({ name: "t", write: (line) => lines.push(line) }));
  const service = (healthCheckNodePort: number): Service => ({
    metadata: { name: "a", namespace: "ns", uid: "1", resourceVersion: "1" },
    spec: { type: "LoadBalancer", externalTrafficPolicy: "Local", healthCheckNodePort },
  });
  const told = (healthCheckNodePort?: number): number => {
    watch("ns/a", healthCheckNodePort === undefined ? undefined : service(healthCheckNodePort));
    return lines.length;
  };
  assert.deepEqual([told(32_000), told(0), told(0), told(32_000), told(0), told(), told(0)], [0, 1, 1, 1, 2, 2, 3]);
  assert.match(lines[0] ?? "", /"level":"error".*"service":"ns\/a"/);
});
