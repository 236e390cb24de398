import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "#base/log";
import { lacksHealthPort } from "#features/service-health";
import type { Service } from "#kube/client";
import { type ServiceEventSink, serviceWarnings } from "./service-warnings.ts";

/** The number of lines that were logged after each of these states of Service `ns/a`; `undefined`: it is gone. */
function loggedAfter(
  specs: readonly (Service["spec"] | undefined)[],
  allowExternalIPs = true,
): {
  readonly counts: number[];
  readonly first: string;
  readonly events: readonly string[];
} {
  const lines: string[] = [];
  const events: string[] = [];
  const log = createLogger({ name: "t", write: (line) => lines.push(line) });
  const onEvent: ServiceEventSink = ({ about, reason, note: text }) =>
    events.push(`${about.namespace}/${about.name} ${reason} ${text}`);
  const note = serviceWarnings({ log, onEvent }, { allowExternalIPs, lacksHealthPort });
  const metadata = { name: "a", namespace: "ns", uid: "1", resourceVersion: "1" };
  const counts = specs.map((spec) => {
    note("ns/a", spec === undefined ? undefined : { metadata, spec });
    return lines.length;
  });
  return { counts, first: lines[0] ?? "", events };
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

test("serviceWarnings: a list of sources with an entry that cannot be read, or of one family alone, is an Event of the Service, once", () => {
  const list = (...loadBalancerSourceRanges: string[]): Service["spec"] => ({
    ...{ type: "LoadBalancer", ipFamilies: ["IPv4", "IPv6"], loadBalancerSourceRanges },
  });
  const both = list("10.0.0.0/8", "fd00::/8");
  const { counts, events } = loggedAfter([both, list("10.0.0.1"), list("10.0.0.1", "x"), both, list("fd00::/8"), both]);
  assert.deepEqual(counts, [0, 1, 1, 1, 2, 2]);
  assert.equal(events.length, 2);
  assert.match(events[0] ?? "", /^ns\/a UnreadableSourceRange .*"10\.0\.0\.1" cannot be read/);
  assert.match(events[1] ?? "", /^ns\/a SourceRangesOfOneFamily .* no range of IPv4/);
  assert.equal(loggedAfter([{ ...list("10.0.0.0/8"), ipFamilies: ["IPv4"] }]).events.length, 0);
});
