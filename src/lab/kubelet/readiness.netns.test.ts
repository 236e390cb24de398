import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { createServer } from "node:net";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { createNetNs, deleteNetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";
import { type ReadinessProbe, readinessProbes, watchReadiness } from "./readiness.ts";

const PORT = 8080;
const LOOPBACK = IpAddress.parse("127.0.0.1");

test("readinessProbes: tcpSocket and httpGet of every container, by number or name; without unknown names and exec probes", () => {
  const container = (readinessProbe?: object) => ({
    name: "main",
    ports: [{ name: "health", containerPort: 8081 }],
    ...(readinessProbe && { readinessProbe }),
  });
  const containers = [
    container({ tcpSocket: { port: 80 }, periodSeconds: 1, failureThreshold: 1 }),
    container({ httpGet: { port: "health", path: "/readyz" } }),
    container({ tcpSocket: { port: "http" } }),
    container({ exec: { command: ["true"] } }),
    container(),
  ];
  assert.deepEqual(readinessProbes({ spec: { containers } as never }), [
    { port: 80, path: undefined, periodMs: 1000, failures: 1 },
    { port: 8081, path: "/readyz", periodMs: 10_000, failures: 3 },
  ]);
});

/** A namespace in which a probe runs; `next` is the next report. */
function open(t: { after(fn: () => unknown): void }, probe: Pick<ReadinessProbe, "path" | "failures">) {
  const name = `isthmus-ready-${process.pid}-${Math.random().toString(36).slice(2, 8)}`;
  const netns = createNetNs(name);
  execFileSync("ip", ["-n", name, "link", "set", "lo", "up"]);
  const ended = new AbortController();
  const told: boolean[] = [];
  let heard = Promise.withResolvers<boolean>();
  const next = (): Promise<boolean> => {
    heard = Promise.withResolvers();
    return heard.promise;
  };
  const at = { netns, ip: String(LOOPBACK), probes: [{ port: PORT, periodMs: 20, ...probe }] };
  const tell = (isReady: boolean): void => {
    told.push(isReady);
    heard.resolve(isReady);
  };
  const watching = watchReadiness(at, tell, { signal: ended.signal, clock: systemClock });
  t.after(async () => {
    ended.abort();
    await watching;
    netns[Symbol.dispose]();
    deleteNetNs(name);
  });
  const listen = (): { fd: number } => ({ fd: listenTcp(LOOPBACK, PORT, { netns }) });
  return { told, next, listen };
}

test("watchReadiness: reports once that the port answers and once that it does not any more", async (t) => {
  const { told, next, listen } = open(t, { path: undefined, failures: 1 });
  const isThere = next();
  const server = createServer((socket) => socket.destroy());
  await once(server.listen(listen()), "listening");
  assert.equal(await isThere, true);
  const isGone = next();
  server.close();
  assert.equal(await isGone, false);
  assert.deepEqual(told, [true, false]);
});

test("watchReadiness: the status of httpGet decides, after as many failures as the probe has", async (t) => {
  const { told, next, listen } = open(t, { path: "/readyz", failures: 3 });
  let status = 503;
  const asked = new Map<number, number>();
  const server = createHttpServer((request, response) => {
    assert.equal(request.url, "/readyz");
    asked.set(status, (asked.get(status) ?? 0) + 1);
    response.writeHead(status).end();
  });
  t.after(() => server.close());
  await once(server.listen(listen()), "listening");
  const isThere = next();
  while ((asked.get(503) ?? 0) < 2) await once(server, "request");
  assert.deepEqual(told, []);
  status = 200;
  assert.equal(await isThere, true);
  asked.clear();
  const isGone = next();
  status = 500;
  assert.equal(await isGone, false);
  assert.ok((asked.get(500) ?? 0) >= 3, "not after the first failure");
  assert.deepEqual(told, [true, false]);
});
