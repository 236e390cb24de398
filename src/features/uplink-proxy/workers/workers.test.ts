import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import fc from "fast-check";
import { systemClock } from "#base/clock";
import { Cidr, IpAddress } from "#base/ip";
import { createLogger, nullLogger } from "#base/log";
import { freePort } from "#test/ports";
import { TunnelLimiter } from "../front/index.ts";
import { UplinkProxy } from "../proxy/index.ts";
import { Penalties, type PenaltyEvent } from "../select/index.ts";
import type { StatsEvent } from "../stats/index.ts";
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
import { decode, encode, startWorkers } from "./index.ts";

const TIMEOUT = { timeout: 30_000 };

test("encode: values of the model survive a structured clone (property)", () => {
  const leaf = fc.oneof(
    fc.string(),
    fc.integer(),
    fc.boolean(),
    fc.constant(undefined),
    fc.oneof(fc.ipV4(), fc.ipV6()).map((text) => IpAddress.parse(text)),
    fc.tuple(fc.ipV4(), fc.nat(32)).map(([text, length]) => Cidr.of(IpAddress.parse(text), length)),
  );
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { depthSize: "small" },
      leaf,
      fc.array(tie("value"), { maxLength: 4 }),
      fc
        .dictionary(
          fc.string().filter((key) => !key.startsWith("$") && key !== "__proto__"),
          tie("value"),
          { maxKeys: 4 },
        )
        .map((each) => ({ ...each })),
    ),
  }));
  fc.assert(
    fc.property(value, (original) => {
      assert.deepEqual(decode(structuredClone(encode(original))), original);
    }),
  );
  const settings = settingsOf({ listeners: [hostListener(1)] });
  assert.deepEqual(decode(structuredClone(encode(settings))), settings);
});

test(
  "startWorkers: a thread serves, reports events, and shares counts, penalties and pages with the first",
  TIMEOUT,
  async (t) => {
    const echo = await serverFor(t, (socket) => socket.pipe(socket));
    const port = await freePort();
    const settings = settingsOf({ listeners: [hostListener(port)] });
    const snapshots = new FakeSnapshots(snapshotOf([uplink("eth0", { sources: ["127.0.0.3"] })]));
    const evidence = new EvidenceLog();
    const events: StatsEvent[] = [];
    const penalties: PenaltyEvent[] = [];
    const lines: string[] = [];
    const bugs: unknown[] = [];
    const limiter = new TunnelLimiter(() => settings.limits);
    const pool = startWorkers(
      {
        evidence,
        snapshots,
        log: createLogger({ name: "p", write: (line) => lines.push((JSON.parse(line) as { msg: string }).msg) }),
        record: (event) => events.push(event),
        onPenalty: (event) => penalties.push(event),
        page: async (page) => `page ${page}`,
        onBug: (error) => bugs.push(error),
      },
      { threads: 1, settings, limiter: limiter.memory, mark: undefined, hostsPath: undefined, streams: "epoll" },
    );
    let isClosed = false;
    t.after(async () => {
      if (!isClosed) await pool.close();
    });
    const until = async (condition: () => boolean): Promise<void> => {
      while (!condition()) await delay(5);
    };
    await until(() => pool.isBound("host"));
    const client = await TestClient.to(t, port);
    client.write("GET /healthz HTTP/1.1\r\n\r\n");
    await client.read("page healthz");
    client.write(`CONNECT 127.0.0.1:${echo.port} HTTP/1.1\r\n\r\nhello`);
    await client.read("hello");
    assert.equal(limiter.tunnels, 1);
    await until(() => events.some(({ kind }) => kind === "connected") && lines.length > 0);
    assert.match(lines[0] ?? "", /via eth0 src 127\.0\.0\.3 cost 0/);
    await until(() => evidence.lines.length >= 2);
    assert.deepEqual(evidence.lines, [`dialled eth0 127.0.0.1:${echo.port}`, `first-byte eth0 127.0.0.1:${echo.port}`]);
    client.socket.end();
    await client.until(({ isEnded }) => isEnded);
    await until(() => events.some(({ kind }) => kind === "closed") && limiter.tunnels === 0);
    const bytes = events.filter((event) => event.kind === "bytes");
    await until(() => events.some(({ kind }) => kind === "bytes") || bytes.length > 0);
    // A penalty of the first thread reaches this one: of two uplinks the other is taken.
    const target = `127.0.0.1:${echo.port}`;
    snapshots.set(
      snapshotOf([uplink("eth0", { sources: ["127.0.0.3"] }), uplink("eth1", { sources: ["127.0.0.4"], cost: 1 })]),
    );
    pool.setSnapshot(snapshots.current);
    const own = new Penalties(systemClock, settings.selection);
    own.onEvent = (event) => pool.sendPenalty(event);
    own.add(target, "eth0");
    const second = await TestClient.to(t, port);
    second.write(`CONNECT ${target} HTTP/1.1\r\n\r\nhello`);
    await second.read("hello");
    await until(() => lines.length === 2);
    assert.match(lines[1] ?? "", /via eth1 src 127\.0\.0\.4 cost 1/);
    // What all threads have taken together is what is refused.
    for (let at = limiter.tunnels; at < settings.limits.tunnels; at += 1) {
      assert.ok(limiter.tryTake());
      limiter.dialled();
    }
    const third = await TestClient.to(t, port);
    third.write(`CONNECT ${target} HTTP/1.1\r\n\r\n`);
    await third.read("503");
    assert.deepEqual(bugs, []);
    pool.drain();
    isClosed = true;
    await pool.close();
    await second.until(({ isEnded, isClosed: closed }) => isEnded || closed);
    assert.deepEqual(bugs, []);
  },
);

test(
  "UplinkProxy: two threads: tunnels of both are counted together, and each answers /healthz for both",
  TIMEOUT,
  async (t) => {
    const echo = await serverFor(t, (socket) => socket.pipe(socket));
    const port = await freePort();
    const settings = settingsOf({ workers: 2, listeners: [hostListener(port)] });
    const snapshots = new FakeSnapshots(snapshotOf([uplink("eth0", { sources: ["127.0.0.2"] })]));
    const deps = { snapshots, evidence: new EvidenceLog(), clock: systemClock, log: nullLogger };
    const proxy = new UplinkProxy({ ...deps, startThreads: startWorkers }, settings, { version: "1" });
    const stop = new AbortController();
    const done = proxy.run({ signal: stop.signal });
    t.after(async () => {
      stop.abort();
      await done;
    });
    while (!proxy.bound.has("host")) await delay(5);
    const clients = await Promise.all(Array.from({ length: 40 }, () => TestClient.to(t, port)));
    for (const client of clients) client.write(`CONNECT 127.0.0.1:${echo.port} HTTP/1.1\r\n\r\nx`);
    await Promise.all(clients.map((client) => client.read("\r\n\r\nx")));
    while (proxy.counters.activeTunnels < 40) await new Promise((resolve) => setImmediate(resolve));
    for (let at = 0; at < 8; at += 1) {
      const asking = await TestClient.to(t, port);
      asking.write("GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n");
      await asking.until(({ isEnded }) => isEnded);
      assert.match(asking.text, /"activeTunnels":40/);
      asking.socket.destroy();
    }
    for (const client of clients) client.socket.resetAndDestroy();
    while (proxy.counters.activeTunnels > 0) await new Promise((resolve) => setImmediate(resolve));
  },
);
