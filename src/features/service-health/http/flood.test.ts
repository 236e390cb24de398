import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { Agent } from "node:http";
import type { Socket } from "node:net";
import { test } from "node:test";
import fc from "fast-check";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import type { EndpointAnswer } from "#wire/http-endpoint";
import { connected, eventually, onBug, probe } from "../testing/probe.ts";
import { MAX_CONNECTIONS, ProbeHttp } from "./index.ts";

const LOOPBACK = IpAddress.parse("127.0.0.1");

const handler = (): EndpointAnswer => ({ type: "application/json", body: "{}" });
const deps = { log: nullLogger, clock: systemClock, onBug };

/** Counts the connections that it makes. */
class CountingAgent extends Agent {
  made = 0;

  override createConnection(...args: Parameters<Agent["createConnection"]>): ReturnType<Agent["createConnection"]> {
    this.made += 1;
    return super.createConnection(...args);
  }
}

/** `count` connections that each have sent `head`. */
async function flood(port: number, count: number, head: string): Promise<Socket[]> {
  const sockets: Socket[] = [];
  for (let at = 0; at < count; at += 100) {
    const batch = Array.from({ length: Math.min(100, count - at) }, () => connected(port));
    for (const socket of await Promise.all(batch)) {
      // One that had to make room for others is reset.
      socket.removeAllListeners("error").on("error", () => socket.destroy());
      socket.resume();
      if (head !== "") socket.write(head);
      sockets.push(socket);
    }
  }
  return sockets;
}

test("ProbeHttp: clients beyond the limit that send half a head or nothing do not keep a probe out or waiting", async () => {
  await using http = new ProbeHttp(handler, deps, { headersTimeoutMs: 600_000 });
  const { port } = http.listen(LOOPBACK, 0);
  const slow = await flood(port, MAX_CONNECTIONS / 2 + 200, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ");
  const silent = await flood(port, MAX_CONNECTIONS / 2, "");
  const isEnded = ({ closed }: Socket): boolean => closed;
  await eventually(() => (slow.filter(isEnded).length === 200 ? true : undefined));
  for (let at = 1; at <= 50; at += 1) {
    assert.equal((await probe(port)).code, 200);
    assert.ok(http.connections <= MAX_CONNECTIONS);
  }
  // The slow ones are still there: no probe had to wait until they were ended, but for those that made room.
  assert.ok(slow.filter(isEnded).length <= 250);
  assert.equal(silent.filter(isEnded).length, 0);
  for (const socket of [...slow, ...silent]) socket.destroy();
  await eventually(() => (http.connections === 0 ? true : undefined));
});

test("ProbeHttp: a connection of a prober that is kept alive outlives a flood shorter than the limit", async () => {
  await using http = new ProbeHttp(handler, deps, { maxConnections: 20 });
  const { port } = http.listen(LOOPBACK, 0);
  const agent = new CountingAgent({ keepAlive: true, maxSockets: 1 });
  await probe(port, { agent });
  const sockets = await flood(port, 19, "");
  await eventually(() => (http.connections === 20 ? true : undefined));
  await probe(port, { agent });
  assert.equal(agent.made, 1);
  for (const socket of sockets) socket.destroy();
  agent.destroy();
});

test("ProbeHttp: if all clients leave their answers unread, the oldest connection ends for a new one", async () => {
  await using http = new ProbeHttp(
    ({ path }) => (path === "/stuck" ? new Promise<never>(() => undefined) : handler()),
    deps,
    { maxConnections: 10 },
  );
  const { port } = http.listen(LOOPBACK, 0);
  const sockets = await flood(port, 10, "GET /stuck HTTP/1.1\r\nHost: x\r\n\r\n");
  await eventually(() => (http.connections === 10 ? true : undefined));
  assert.equal((await probe(port)).code, 200);
  await eventually(() => (sockets.some(({ closed }) => closed) ? true : undefined));
  assert.equal(sockets.filter(({ closed }) => closed).length, 1);
  for (const socket of sockets) socket.destroy();
});

test("ProbeHttp: a client that does not finish the head of its request, or sends nothing, gets an error and is closed", async () => {
  await using http = new ProbeHttp(handler, deps, { headersTimeoutMs: 100 });
  const { port } = http.listen(LOOPBACK, 0);
  for (const head of ["GET /healthz HTTP/1.1\r\nHost:", ""]) {
    const socket = await connected(port);
    if (head !== "") socket.write(head);
    const [first] = (await once(socket, "data")) as [Buffer];
    assert.match(first.toString(), /^HTTP\/1\.1 408 /);
    if (!socket.closed) await once(socket, "close");
  }
  await eventually(() => (http.connections === 0 ? true : undefined));
});

test("ProbeHttp: as many connections may wait to be accepted as the kernel lets", async () => {
  await using http = new ProbeHttp(handler, deps);
  const { port } = http.listen(LOOPBACK, 0);
  // Of a listening socket the column after the bytes that wait is the length of the queue (ss(8)).
  const line = execFileSync("ss", ["-Hltn", `sport = :${port}`], { encoding: "utf8" });
  const most = Number(readFileSync("/proc/sys/net/core/somaxconn", "utf8"));
  assert.equal(Number(line.trim().split(/\s+/)[2]), Math.min(4096, most));
});

test("ProbeHttp: whatever bytes come, the next probe is answered", async () => {
  await using http = new ProbeHttp(handler, deps);
  const { port } = http.listen(LOOPBACK, 0);
  const piece = fc.oneof(
    fc.uint8Array({ maxLength: 64 }),
    fc
      .constantFrom("GET ", "/healthz", " HTTP/1.1", "\r\n", "Host: x", "Content-Length: 99999999999999999999", "\0")
      .map((text) => Buffer.from(text)),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(piece, { maxLength: 12 }), async (pieces) => {
      const socket = await connected(port);
      socket.removeAllListeners("error").on("error", () => socket.destroy());
      for (const bytes of pieces) socket.write(bytes);
      socket.end();
      socket.resume();
      if (!socket.closed) await once(socket, "close");
      assert.equal((await probe(port)).code, 200);
    }),
    { numRuns: 60 },
  );
});
