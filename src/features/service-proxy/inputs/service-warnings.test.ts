import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "#base/log";
import { lacksHealthPort } from "#features/service-health";
import type { Service } from "#kube/client";
import { serviceWarnings } from "./service-warnings.ts";

/** How many lines were logged after each of these states of Service `ns/a`; `undefined`: it is gone. */
function loggedAfter(
  specs: readonly (Service["spec"] | undefined)[],
  allowExternalIPs = true,
): {
  readonly counts: number[];
  readonly first: string;
} {
  const lines: string[] = [];
  const note = serviceWarnings(createLogger({ name: "t", write: (line) => lines.push(line) }), {
    allowExternalIPs,
    lacksHealthPort,
  });
  const metadata = { name: "a", namespace: "ns", uid: "1", resourceVersion: "1" };
  const counts = specs.map((spec) => {
    note("ns/a", spec === undefined ? undefined : { metadata, spec });
    return lines.length;
  });
  return { counts, first: lines[0] ?? "" };
}

test("serviceWarnings: a Service without its health port is logged once, until it has one or is gone", () => {
  const spec = (healthCheckNodePort: number): Service["spec"] => ({
    type: "LoadBalancer",
    externalTrafficPolicy: "Local",
    healthCheckNodePort,
  });
  const specs = [spec(32_000), spec(0), spec(0), spec(32_000), spec(0), undefined, spec(0)];
  const { counts, first } = loggedAfter(specs);
  assert.deepEqual(counts, [0, 1, 1, 1, 2, 2, 3]);
  assert.match(first, /"level":"error".*"service":"ns\/a"/);
});

test("serviceWarnings: a Service with external IPs is logged once, until it has none or is gone", () => {
  const external = { externalIPs: ["203.0.113.9"] };
  const { counts, first } = loggedAfter([{}, external, external, { externalIPs: [] }, external, undefined, external]);
  assert.deepEqual(counts, [0, 1, 1, 1, 2, 2, 3]);
  assert.match(first, /"level":"warn".*"service":"ns\/a"/);
  assert.deepEqual(loggedAfter([external], false).counts, [0], "where they are turned off nothing is logged");
});
