import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "#base/log";
import type { Service } from "#kube/client";
import { serviceNotes } from "./service-notes.ts";

/** Tells of Service `ns/a` with each of these in turn, `undefined`: it is gone; how many lines there were after each. */
function toldAfter(
  specs: readonly (Service["spec"] | undefined)[],
  allowExternalIPs = true,
): {
  readonly counts: number[];
  readonly first: string;
} {
  const lines: string[] = [];
  const note = serviceNotes(createLogger({ name: "t", write: (line) => lines.push(line) }), { allowExternalIPs });
  const metadata = { name: "a", namespace: "ns", uid: "1", resourceVersion: "1" };
  const counts = specs.map((spec) => {
    note("ns/a", spec === undefined ? undefined : { metadata, spec });
    return lines.length;
  });
  return { counts, first: lines[0] ?? "" };
}

test("serviceNotes: a Service without its health port is told of once, until it has one or is gone", () => {
  const spec = (healthCheckNodePort: number): Service["spec"] => ({
    type: "LoadBalancer",
    externalTrafficPolicy: "Local",
    healthCheckNodePort,
  });
  const specs = [spec(32_000), spec(0), spec(0), spec(32_000), spec(0), undefined, spec(0)];
  const { counts, first } = toldAfter(specs);
  assert.deepEqual(counts, [0, 1, 1, 1, 2, 2, 3]);
  assert.match(first, /"level":"error".*"service":"ns\/a"/);
});

test("serviceNotes: a Service with external IPs is warned of once, until it has none or is gone", () => {
  const external = { externalIPs: ["203.0.113.9"] };
  const { counts, first } = toldAfter([{}, external, external, { externalIPs: [] }, external, undefined, external]);
  assert.deepEqual(counts, [0, 1, 1, 1, 2, 2, 3]);
  assert.match(first, /"level":"warn".*"service":"ns\/a"/);
  assert.deepEqual(toldAfter([external], false).counts, [0], "where they are turned off there is nothing to say");
});
