import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { systemClock } from "#base/clock";
import { createLogger } from "#base/log";
import type { Settings } from "#base/uplink-model";
import type { TcpStreamsKind } from "#kernel/reactor";
import { freePort } from "#test/ports";
import {
  EvidenceLog,
  FakeSnapshots,
  hostListener,
  serverFor,
  settingsOf,
  snapshotOf,
  TestClient,
  uplink,
} from "../testing/proxy-fixtures.ts";
import { UplinkProxy } from "./index.ts";

const TIMEOUT = { timeout: 20_000 };

/** A proxy at a port of loopback; its one uplink has a source of loopback too. */
async function proxyFor(t: TestContext, fields: Partial<Settings> = {}, streams: TcpStreamsKind = "epoll") {
  const port = await freePort();
  const snapshots = new FakeSnapshots(snapshotOf([uplink("eth0", { sources: ["127.0.0.2"] })]));
  const evidence = new EvidenceLog();
  const lines: string[] = [];
  const log = createLogger({ name: "p", level: "debug", write: (line) => lines.push(JSON.parse(line).msg) });
  const settings = settingsOf({
    listeners: [hostListener(port)],
    limits: { ...settingsOf().limits, drainMs: 50 },
    ...fields,
  });
  const proxy = new UplinkProxy({ snapshots, evidence, log, clock: systemClock }, settings, { version: "1", streams });
  const stop = new AbortController();
  const done = proxy.run({ signal: stop.signal });
  t.after(async () => {
    stop.abort();
    await done;
  });
  while (!proxy.bound.has("host")) await new Promise((resolve) => setImmediate(resolve));
  return { port, proxy, snapshots, evidence, lines, settings, stop, done };
}

for (const streams of ["epoll", "node"] as const) {
  test(
    `UplinkProxy, ${streams}: a CONNECT is carried over the uplink, early bytes first, ends in order both ways`,
    TIMEOUT,
    async (t) => {
      const target = await serverFor(t, (client) => {
        let text = `${client.remoteAddress} `;
        client.on("data", (chunk: Buffer) => {
          text += chunk.toString();
        });
        client.on("end", () => client.end(text));
      });
      const { port, proxy, lines, evidence } = await proxyFor(t, {}, streams);
      const client = await TestClient.to(t, port);
      client.write(`CONNECT 127.0.0.1:${target.port} HTTP/1.1\r\nHost: x\r\n\r\nearly `);
      await client.read("200 OK\r\n\r\n");
      client.write("late");
      client.socket.end();
      await client.until(({ isEnded }) => isEnded);
      assert.equal(client.text, "HTTP/1.1 200 OK\r\n\r\n127.0.0.2 early late");
      await client.until(({ isClosed }) => isClosed);
      while (proxy.counters.activeTunnels > 0) await new Promise((resolve) => setImmediate(resolve));
      const { successByPort, bytesUp, bytesDown, requests } = proxy.health() as Record<string, unknown>;
      assert.deepEqual(
        { successByPort, bytesUp, bytesDown, requests },
        {
          successByPort: { eth0: 1 },
          bytesUp: 10,
          bytesDown: 20,
          requests: 1,
        },
      );
      assert.match(
        lines.join("\n"),
        /CONNECT 127\.0\.0\.1:\d+ from 127\.0\.0\.1:\d+ via eth0 src 127\.0\.0\.2 cost 0 \(dial \d+ms, 0 fallback\(s\)\)/,
      );
      assert.match(lines.join("\n"), /closed: up=10 down=20 duration=\d+ms idle=false reason=eof/);
      assert.equal(evidence.lines[0], `dialled eth0 127.0.0.1:${target.port}`);
    },
  );
}

test("UplinkProxy: answers of the host listener, on a connection that stays", TIMEOUT, async (t) => {
  const { port } = await proxyFor(t);
  const client = await TestClient.to(t, port);
  client.write("GET /healthz HTTP/1.1\r\n\r\n");
  await client.read('"ready":true');
  client.write("POST / HTTP/1.1\r\n\r\n");
  const text = await client.read("are supported\n");
  assert.match(text, /HTTP\/1\.1 405 Method Not Allowed\r\n.*Allow: CONNECT, GET\r\n/s);
  client.write("CONNECT nowhere HTTP/1.1\r\n\r\n");
  await client.read("mgmtproxy: bad CONNECT target\n");
  await client.until(({ isEnded }) => isEnded);
});

test(
  "UplinkProxy: a reload opens and closes listeners, turns metrics on, and leaves tunnels alone",
  TIMEOUT,
  async (t) => {
    const echo = await serverFor(t, (socket) => socket.pipe(socket));
    const { port, proxy, settings, lines } = await proxyFor(t);
    const client = await TestClient.to(t, port);
    client.write(`CONNECT 127.0.0.1:${echo.port} HTTP/1.1\r\n\r\nx`);
    await client.read("\r\n\r\nx");
    const second = await freePort();
    proxy.reload({ ...settings, workers: 2 });
    assert.match(lines.join("\n"), /the number of workers changes only when uplink-proxy is restarted/);
    proxy.reload({ ...settings, metrics: true, listeners: [hostListener(second, { name: "second" })] });
    while (!proxy.bound.has("second")) await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual([...proxy.bound], ["second"]);
    await assert.rejects(TestClient.to(t, port), { code: "ECONNREFUSED" });
    const scrape = await TestClient.to(t, second);
    scrape.write("GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n");
    await scrape.until(({ isEnded }) => isEnded);
    assert.match(scrape.text, /^HTTP\/1\.1 200 OK\r\n/);
    assert.match(scrape.text, /^uplink_proxy_active_tunnels\{interface="eth0"\} 1$/m);
    client.write("still");
    await client.read("still");
  },
);

test(
  "UplinkProxy: at the end new requests are refused, tunnels run on until their time is over",
  TIMEOUT,
  async (t) => {
    const echo = await serverFor(t, (socket) => socket.pipe(socket));
    const { limits } = settingsOf();
    const { port, proxy, stop, done } = await proxyFor(t, { limits: { ...limits, drainMs: 300 } });
    const client = await TestClient.to(t, port);
    client.write(`CONNECT 127.0.0.1:${echo.port} HTTP/1.1\r\n\r\nx`);
    await client.read("\r\n\r\nx");
    const waiting = await TestClient.to(t, port);
    waiting.write("GET /healthz HTTP/1.1\r\n");
    const kept = await TestClient.to(t, port);
    kept.write("GET /healthz HTTP/1.1\r\n\r\n");
    await kept.read('"ready":true');
    stop.abort();
    const before = kept.text.length;
    kept.write("GET /healthz HTTP/1.1\r\n\r\n");
    await kept.until(({ isEnded }) => isEnded);
    assert.match(kept.text.slice(before), /^HTTP\/1\.1 503 /);
    waiting.write("\r\n");
    await waiting.read("503 Service Unavailable");
    client.write("still");
    await client.read("still");
    await assert.rejects(TestClient.to(t, port), { code: "ECONNREFUSED" });
    await done;
    await client.until(({ isEnded, isClosed }) => isEnded || isClosed);
    assert.equal(proxy.counters.activeTunnels, 0);
  },
);

for (const streams of ["epoll", "node"] as const) {
  test(
    `UplinkProxy, ${streams}: 900 tunnels ended in thirds by client, by destination with bytes in flight, by reset: all arrives, nothing is left`,
    TIMEOUT,
    async (t) => {
      const body = "y".repeat(20_000);
      const target = await serverFor(t, (socket) => {
        socket.once("data", (chunk: Buffer) => {
          const kind = chunk.toString();
          if (kind === "end") socket.end(body);
          else socket.write("ok");
          socket.once("end", () => socket.end());
        });
      });
      const { port, proxy } = await proxyFor(t, {}, streams);
      const descriptors = (): number => readdirSync("/proc/self/fd").length;
      const one = async (kind: string): Promise<void> => {
        const client = await TestClient.to(t, port);
        client.write(`CONNECT 127.0.0.1:${target.port} HTTP/1.1\r\n\r\n${kind}`);
        if (kind === "end") {
          await client.until(({ isEnded }) => isEnded);
          assert.equal(client.text.length, 19 + body.length);
          client.socket.end();
        } else {
          await client.read("ok");
          if (kind === "reset") client.socket.resetAndDestroy();
          else client.socket.end();
        }
        await client.until(({ isClosed }) => isClosed);
      };
      await one("end");
      const before = descriptors();
      for (let round = 0; round < 30; round += 1) {
        await Promise.all(Array.from({ length: 30 }, (_, at) => one(["fin", "end", "reset"][at % 3] ?? "")));
      }
      while (proxy.counters.activeTunnels > 0 || target.clients.size > 0)
        await new Promise((resolve) => setImmediate(resolve));
      assert.equal(proxy.counters.requests, 901);
      assert.equal(proxy.counters.dialFailures, 0);
      while (descriptors() > before) await new Promise((resolve) => setImmediate(resolve));
    },
  );
}

for (const streams of ["epoll", "node"] as const) {
  test(
    `UplinkProxy, ${streams}: clients and destinations that leave at any moment: no error without a listener, nothing is left (fuzz)`,
    TIMEOUT,
    async (t) => {
      const target = await serverFor(t, (socket) => {
        // Each destination does something else, by turns.
        turn += 1;
        if (turn % 5 === 0) socket.resetAndDestroy();
        else if (turn % 5 === 1) socket.end("bye");
        else if (turn % 5 === 2) socket.pipe(socket);
        else if (turn % 5 === 3) socket.once("data", () => socket.destroy());
        else socket.write("x".repeat(200_000), () => socket.resetAndDestroy());
      });
      let turn = 0;
      const { port } = await proxyFor(t, {}, streams);
      const step = fc.constantFrom("write", "end", "reset", "destroy", "pause", "resume", "turn");
      const head = fc.constantFrom(
        `CONNECT 127.0.0.1:${target.port} HTTP/1.1\r\n\r\n`,
        `CONNECT 127.0.0.1:${target.port} HTTP/1.1\r\n\r\nearly`,
        "CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n",
        "GET /healthz HTTP/1.1\r\n\r\n",
        "CONNECT 127.0.0.1:",
      );
      await fc.assert(
        fc.asyncProperty(head, fc.array(step, { maxLength: 8 }), async (request, steps) => {
          const { socket } = await TestClient.to(t, port);
          socket.write(request);
          for (const each of steps) {
            if (each === "write" && socket.writable) socket.write("y".repeat(5000));
            else if (each === "end") socket.end();
            else if (each === "reset" && socket.writable) socket.resetAndDestroy();
            else if (each === "destroy") socket.destroy();
            else if (each === "pause") socket.pause();
            else if (each === "resume") socket.resume();
            else await new Promise((resolve) => setImmediate(resolve));
          }
          socket.destroy();
        }),
        { numRuns: 300 },
      );
      // A client that was closed may have been half-closed for all that anybody knows: its destination must end too. Requests of
      // the last clients may still be on their way: none is none when many answers in a row say so.
      const asking = await TestClient.to(t, port);
      for (let answers = 1, inRow = 0; inRow < 50; answers += 1) {
        for (const client of target.clients) client.destroy();
        const from = asking.text.length;
        asking.write("GET /healthz HTTP/1.1\r\n\r\n");
        await asking.until((client) => client.text.split('"costExcluded"').length > answers);
        inRow = asking.text.includes('"activeTunnels":0,', from) ? inRow + 1 : 0;
      }
    },
  );
}
