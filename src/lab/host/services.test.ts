import assert from "node:assert/strict";
import { test } from "node:test";
import { planTopology } from "#lab/topology";
import { planLabServices, serviceProxyFlags } from "./services.ts";

const topology = planTopology({ lab: "x", nodes: 2, families: "dual", tunnel: false });

test("planLabServices: none without the flag; else clients in the fabric, and a command for pods", () => {
  assert.equal(planLabServices(topology, { services: false, isthmus: [] }), undefined);
  const services = planLabServices(topology, { services: true, isthmus: ["node", "isthmus"] });
  assert.ok(services !== undefined);
  assert.deepEqual([services.outside, services.addresses], ["isthmus-x-fabric", ["172.31.0.1", "fd31:0:0:1::1"]]);
  assert.deepEqual(services.backend.command, ["node", "isthmus", "lab-backend", "--port=8080", "--linger=6000ms"]);
});

test("serviceProxyFlags: settings of the whole machine are not changed", () => {
  const flags = serviceProxyFlags({ name: "node1" });
  for (const flag of [
    "--hostname-override=node1",
    "--conntrack-max-per-core=0",
    "--conntrack-min=0",
    "--oom-score-adj=0",
  ])
    assert.ok(flags.includes(flag), flag);
});
