import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { createLogger } from "#base/log";
import type { CrowdedDestination } from "#features/egress";
import { type ConntrackEntry, FakeConntrack } from "#kernel/conntrack";
import { PortsWatch } from "./watch-ports.ts";

const ip = IpAddress.parse;

const flow = (client: string, port: number): ConntrackEntry => ({
  family: 4,
  protocol: 6,
  original: { src: ip(client), dst: ip("203.0.113.9"), srcPort: port, dstPort: 443 },
  reply: { src: ip("203.0.113.9"), dst: ip("10.64.0.8"), srcPort: 443, dstPort: port },
  mark: 0,
});

test("PortsWatch: a destination without common source ports is told once, with the clients that have the most flows, and its health ends with it", async () => {
  const conntrack = new FakeConntrack();
  for (let port = 1; port <= 10; port += 1)
    for (let at = 1; at <= 5; at += 1) if (port <= 2 * at) conntrack.entries.push(flow(`10.64.1.${at}`, port));
  let crowded: CrowdedDestination[] = [];
  const told: string[] = [];
  const counts: number[] = [];
  let health = "";
  const watch = new PortsWatch({
    crowded: () => crowded,
    conntrack,
    report: (destinations) => void counts.push(destinations.length),
    health: {
      ok: () => {
        health = "ok";
      },
      degraded: (error) => {
        health = String(error);
      },
    },
    log: createLogger({ name: "coil-egress", write: (line) => told.push(line) }),
  });
  await watch.look({});
  assert.deepEqual([health, told, counts], ["ok", [], [0]]);
  crowded = [{ protocol: "tcp", address: ip("203.0.113.9"), port: 443 }];
  await watch.look({});
  await watch.look({});
  assert.equal(health, "Error: no common source port is left to tcp 203.0.113.9:443");
  assert.equal(told.length, 1);
  assert.match(told[0] ?? "", /"mostFlows":"10\.64\.1\.5 \(10\), 10\.64\.1\.4 \(8\), 10\.64\.1\.3 \(6\)"/);
  crowded = Array.from({ length: 9 }, (_, at) => ({ protocol: "udp", address: ip("2001:db8::9"), port: at }));
  await watch.look({});
  assert.match(health, /udp \[2001:db8::9\]:0, .*:2, 6 more$/);
  assert.equal(told.length, 4);
  assert.ok(
    told.slice(1).every((line) => !line.includes("mostFlows")),
    "connection tracking was read lately",
  );
  for (let looks = 0; looks < 30; looks += 1) await watch.look({});
  crowded = [{ protocol: "tcp", address: ip("203.0.113.9"), port: 443 }];
  await watch.look({});
  assert.match(told.at(-1) ?? "", /"mostFlows":/);
  crowded = [];
  await watch.look({});
  assert.deepEqual([health, counts.at(-1)], ["ok", 0]);
});
