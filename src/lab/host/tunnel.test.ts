import assert from "node:assert/strict";
import { test } from "node:test";
import { planTopology } from "#lab/topology";
import { planTunnel, tunnelPrograms } from "./tunnel.ts";

const PATHS = { dir: "/run/isthmus/lab-x" };

test("planTunnel: there is no tunnel without a separate control plane", () => {
  assert.equal(planTunnel(planTopology({ lab: "x", nodes: 1, families: "dual", tunnel: false }), PATHS), undefined);
});

for (const [families, destination, bind, identifiers] of [
  ["dual", "172.31.0.2:6443", "10.255.255.1,fd10:255:255::1", "host=node2&ipv4=172.31.0.12&ipv6=fd31:0:0:1::c"],
  ["ipv4", "172.31.0.2:6443", "10.255.255.1", "host=node2&ipv4=172.31.0.12"],
  ["ipv6", "[fd31:0:0:1::2]:6443", "fd10:255:255::1", "host=node2&ipv6=fd31:0:0:1::c"],
] as const) {
  test(`tunnelPrograms, ${families}: a server in the control plane, an agent in each node, and the server allows exactly the targets of the agents`, () => {
    const topology = planTopology({ lab: "x", nodes: 2, families, tunnel: true });
    const tunnel = planTunnel(topology, PATHS);
    assert.ok(tunnel !== undefined);
    const programs = tunnelPrograms(tunnel, topology, PATHS);
    assert.deepEqual(
      programs.map(({ name, netns }) => [name, netns]),
      [
        ["proxy-server", "isthmus-x-cp"],
        ["proxy-agent-node1", "isthmus-x-node1"],
        ["proxy-agent-node2", "isthmus-x-node2"],
      ],
    );
    const [server, , agent] = programs.map(({ flags }) => new Set(flags));
    assert.ok(server !== undefined && agent !== undefined);
    assert.ok(server.has(`--allowed-destination=${destination}`));
    assert.ok(agent?.has(`--target=6443:${destination}`));
    assert.ok(agent.has(`--bind-address=${bind}`));
    assert.ok(agent.has(`--agent-identifiers=${identifiers}`));
  });
}
