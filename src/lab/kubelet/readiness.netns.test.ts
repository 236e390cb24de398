import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { createNetNs, deleteNetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";
import { probedPorts, watchReadiness } from "./readiness.ts";

const PORT = 8080;

test("probedPorts: tcpSocket and httpGet of every container; without named ports and exec probes", () => {
  const container = (readinessProbe?: object) => ({ name: "main", ...(readinessProbe && { readinessProbe }) });
  const containers = [
    container({ tcpSocket: { port: 80 } }),
    container({ httpGet: { port: 81 } }),
    container({ tcpSocket: { port: "http" } }),
    container({ exec: { command: ["true"] } }),
    container(),
  ];
  assert.deepEqual(probedPorts({ spec: { containers } as never }), [80, 81]);
});

test("watchReadiness: reports once that the port answers and once that it does not any more", async (t) => {
  const name = `isthmus-ready-${process.pid}`;
  const netns = createNetNs(name);
  t.after(() => {
    netns[Symbol.dispose]();
    deleteNetNs(name);
  });
  execFileSync("ip", ["-n", name, "link", "set", "lo", "up"]);
  const ended = new AbortController();
  const told: boolean[] = [];
  const { promise: isGone, resolve: gone } = Promise.withResolvers<void>();
  const { promise: isThere, resolve: there } = Promise.withResolvers<void>();
  const at = { netns, ip: "127.0.0.1", ports: [PORT], periodMs: 20 };
  const watching = watchReadiness(
    at,
    (isReady) => {
      told.push(isReady);
      (isReady ? there : gone)();
    },
    { signal: ended.signal, clock: systemClock },
  );
  const server = createServer((socket) => socket.destroy());
  await once(server.listen({ fd: listenTcp(IpAddress.parse("127.0.0.1"), PORT, { netns }) }), "listening");
  await isThere;
  server.close();
  await isGone;
  ended.abort();
  await watching;
  assert.deepEqual(told, [true, false]);
});
