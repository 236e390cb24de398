import assert from "node:assert/strict";
import { connect } from "node:net";
import { type TestContext, test } from "node:test";
import { connect as connectTls, createSecureContext, type TLSSocket } from "node:tls";
import { type Clock, FakeClock, systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import type { ListenerSettings, Settings } from "#base/uplink-model";
import { tcpStreams } from "#kernel/reactor";
import { TunnelLimiter } from "../front/index.ts";
import { freshIdentity } from "../policy/index.ts";
import { Counters } from "../stats/index.ts";
import {
  EvidenceLog,
  FakeSnapshots,
  hostListener,
  listenerFor,
  serverFor,
  settingsOf,
  snapshotOf,
  TestClient,
  uplink,
} from "../testing/proxy-fixtures.ts";
import { Engine } from "./index.ts";

const TIMEOUT = { timeout: 20_000 };
const LOOPBACK = IpAddress.parse("127.0.0.1");
const identity = freshIdentity(LOOPBACK);
const AUTH = `Proxy-Authorization: Basic ${Buffer.from(`cdi:${identity.token}`).toString("base64")}\r\n`;
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** An engine behind a server of the test; its uplink has a source of loopback. */
async function engineFor(
  t: TestContext,
  listener: Partial<ListenerSettings>,
  fields: Partial<Settings> = {},
  clock: Clock = systemClock,
) {
  const settings = settingsOf(fields);
  const counters = new Counters(systemClock);
  const snapshots = new FakeSnapshots(snapshotOf([uplink("eth0", { sources: ["127.0.0.2"] })]));
  const bugs: unknown[] = [];
  const engine = new Engine({
    clock,
    log: nullLogger,
    settings: () => settings,
    snapshots,
    evidence: new EvidenceLog(),
    streams: tcpStreams("epoll"),
    record: (event) => counters.record(event),
    limiter: new TunnelLimiter(() => settings.limits),
    tokens: () => [identity.token],
    secureContext: () => createSecureContext({ cert: identity.cert, key: identity.key }),
    healthz: async () => "{}",
    readyz: async () => ({ isReady: true, text: "ok\n" }),
    metrics: async () => "",
    onBug: (error) => bugs.push(error),
  });
  const { port } = listenerFor(t, (fd, remote) => engine.accept(fd, remote, hostListener(5443, listener)));
  t.after(() => {
    engine.close("drain");
    assert.deepEqual(bugs, []);
  });
  return { port, engine, counters, snapshots };
}

/** Returns the error with which a client's connection ends; the reset may arrive before the client knows that it is connected. */
async function errorOf(port: number): Promise<string | undefined> {
  const socket = connect(port, "127.0.0.1");
  let code: string | undefined;
  socket.on("error", (error: NodeJS.ErrnoException) => {
    code = error.code;
  });
  socket.resume();
  await new Promise<void>((resolve) => socket.once("close", () => resolve()));
  return code;
}

async function tlsClient(t: TestContext, port: number): Promise<TestClient> {
  const socket: TLSSocket = connectTls({ port, host: "127.0.0.1", ca: identity.cert });
  t.after(() => socket.destroy());
  await new Promise<void>((resolve, reject) => {
    socket.once("secureConnect", resolve);
    socket.once("error", reject);
  });
  return new TestClient(socket);
}

test("Engine: TLS optional: the first byte decides; inside it everything is as without", TIMEOUT, async (t) => {
  // Pods may reach no loopback: what is asked for is refused, which shows that it was read.
  const { port } = await engineFor(t, { role: "pod", auth: "token", tls: "optional", allowedPorts: [443] });
  const plain = await TestClient.to(t, port);
  plain.write("CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n");
  assert.match(await plain.read("\r\n\r\n"), /^HTTP\/1\.1 407 /);
  const secure = await tlsClient(t, port);
  assert.equal((secure.socket as TLSSocket).authorized, true);
  secure.write(`CONNECT 127.0.0.1:443 HTTP/1.1\r\n${AUTH}\r\n`);
  assert.match(await secure.read("\r\n\r\n"), /^HTTP\/1\.1 403 /);
});

test(
  "Engine: TLS required: a client without TLS is closed without an answer; a failed handshake is no bug",
  TIMEOUT,
  async (t) => {
    const { port } = await engineFor(t, { role: "pod", auth: "token", tls: "required", allowedPorts: [443] });
    const plain = await TestClient.to(t, port);
    plain.write(`CONNECT a.example:443 HTTP/1.1\r\n${AUTH}\r\n`);
    await plain.until(({ isEnded, isClosed }) => isEnded || isClosed);
    assert.equal(plain.text, "");
    const broken = await TestClient.to(t, port);
    broken.socket.write(Buffer.from("160301000401000000", "hex"));
    await broken.until(({ isEnded, isClosed }) => isEnded || isClosed);
    const secure = await tlsClient(t, port);
    secure.write("GET /healthz HTTP/1.1\r\n\r\n");
    assert.match(await secure.read("\r\n\r\n"), /^HTTP\/1\.1 404 /);
  },
);

test("Engine: a tunnel inside TLS passes bytes and ends both ways", TIMEOUT, async (t) => {
  const echo = await serverFor(t, (socket) => socket.pipe(socket));
  // The host's policy, so that there is a destination on loopback.
  const { port, counters, engine } = await engineFor(t, { role: "host", tls: "required" });
  const secure = await tlsClient(t, port);
  secure.write(`CONNECT 127.0.0.1:${echo.port} HTTP/1.1\r\n\r\nearly `);
  await secure.read("early ");
  const body = "x".repeat(1 << 20);
  secure.write(`${body} end`);
  await secure.read(" end");
  assert.equal(secure.text, `HTTP/1.1 200 OK\r\n\r\nearly ${body} end`);
  secure.socket.end();
  await secure.until(({ isEnded }) => isEnded);
  while (engine.tunnels > 0) await turn();
  assert.equal(counters.activeTunnels, 0);
});

test(
  "Engine: 400 clients that do not even begin are not more than are allowed to owe a request",
  TIMEOUT,
  async (t) => {
    const { port } = await engineFor(t, { role: "pod", auth: "token", tls: "optional" });
    const silent = await Promise.all(Array.from({ length: 400 }, () => TestClient.to(t, port)));
    const isCut = ({ isEnded, isClosed }: TestClient): boolean => isEnded || isClosed;
    while (silent.filter(isCut).length < 144) await turn();
    assert.equal(silent.filter(isCut).length, 144);
    const plain = await TestClient.to(t, port);
    plain.write("GET /healthz HTTP/1.1\r\n\r\n");
    assert.match(await plain.read("\r\n\r\n"), /^HTTP\/1\.1 404 /);
  },
);

test("Engine: pods that owe requests push no client of the host out", TIMEOUT, async (t) => {
  const { engine } = await engineFor(t, { role: "host" });
  const at = (role: ListenerSettings["role"]): number =>
    listenerFor(t, (fd, remote) => engine.accept(fd, remote, hostListener(5443, { role }))).port;
  const [host, pod] = [at("host"), at("pod")];
  const slow = await TestClient.to(t, host);
  slow.write("GET /healthz");
  const silent = await Promise.all(Array.from({ length: 300 }, () => TestClient.to(t, pod)));
  while (silent.filter(({ isEnded, isClosed }) => isEnded || isClosed).length < 44) await turn();
  slow.write(" HTTP/1.1\r\n\r\n");
  assert.match(await slow.read("\r\n\r\n"), /^HTTP\/1\.1 200 /);
});

test(
  "Engine: when the source address of a tunnel is gone, the tunnel ends at once, and others go on",
  TIMEOUT,
  async (t) => {
    const echo = await serverFor(t, (socket) => socket.pipe(socket));
    const { port, engine, snapshots } = await engineFor(t, {});
    const open = async (): Promise<TestClient> => {
      const client = await TestClient.to(t, port);
      client.write(`CONNECT 127.0.0.1:${echo.port} HTTP/1.1\r\n\r\nx`);
      await client.read("\r\n\r\nx");
      return client;
    };
    const lost = await open();
    snapshots.set(snapshotOf([uplink("eth0", { sources: ["127.0.0.3"] })]));
    const kept = await open();
    engine.snapshotChanged();
    await lost.until(({ isClosed }) => isClosed);
    assert.equal(lost.error?.code, "ECONNRESET");
    kept.write("still");
    await kept.read("still");
  },
);

test(
  "Engine: a tunnel outlives the loss of its link for the grace, and a link that is back in time",
  TIMEOUT,
  async (t) => {
    const echo = await serverFor(t, (socket) => socket.pipe(socket));
    const clock = new FakeClock();
    const { tunnel } = settingsOf();
    const { port, engine, snapshots } = await engineFor(t, {}, { tunnel: { ...tunnel, linkGraceMs: 5000 } }, clock);
    const client = await TestClient.to(t, port);
    client.write(`CONNECT 127.0.0.1:${echo.port} HTTP/1.1\r\n\r\nx`);
    await client.read("\r\n\r\nx");
    const link = async (isUp: boolean, ms: number): Promise<void> => {
      snapshots.set(snapshotOf([uplink("eth0", { sources: ["127.0.0.2"], isUp })]));
      engine.snapshotChanged();
      await clock.advance(ms);
    };
    await link(false, 4900);
    await link(true, 10_000);
    await link(false, 4900);
    // Another change of the uplinks does not prolong it.
    client.write("still");
    await client.read("still");
    await link(false, 200);
    await client.until(({ isClosed }) => isClosed);
    assert.equal(client.error?.code, "ECONNRESET");
  },
);

test(
  "Engine: a tunnel whose address has left its uplink ends, unless others program the kernel",
  TIMEOUT,
  async (t) => {
    const echo = await serverFor(t, (socket) => socket.pipe(socket));
    // Addresses of loopback: this host has them whatever the snapshot says.
    const moved = snapshotOf([uplink("eth0", { sources: ["127.0.0.3"] })]);
    const open = async (port: number): Promise<TestClient> => {
      const client = await TestClient.to(t, port);
      client.write(`CONNECT 127.0.0.1:${echo.port} HTTP/1.1\r\n\r\nx`);
      await client.read("\r\n\r\nx");
      return client;
    };
    const routing = { ...settingsOf().routing, manage: false };
    const others = await engineFor(t, {}, { routing });
    const [ours, theirs] = [await engineFor(t, {}), others];
    const [lost, kept] = [await open(ours.port), await open(theirs.port)];
    for (const { snapshots, engine } of [ours, theirs]) {
      snapshots.set({ ...moved, localAddresses: [IpAddress.parse("127.0.0.2")] });
      engine.snapshotChanged();
    }
    await lost.until(({ isClosed }) => isClosed);
    assert.equal(lost.error?.code, "ECONNRESET");
    kept.write("still");
    await kept.read("still");
  },
);

test(
  "Engine: a transparent client gets a tunnel to its destination; one that connects to the listener itself is reset",
  TIMEOUT,
  async (t) => {
    const own = await engineFor(t, { role: "transparent", port: 1 });
    // Its own local address is the test's server, which gives it to the engine again: the limit on tunnels ends that.
    const { limits } = settingsOf();
    const circle = await engineFor(t, { role: "transparent", port: 1 }, { limits: { ...limits, tunnels: 3 } });
    assert.equal(await errorOf(circle.port), "ECONNRESET");
    while (circle.engine.tunnels > 0) await turn();
    assert.equal(circle.counters.lastSuccess?.target, `127.0.0.1:${circle.port}`);
    assert.ok((circle.counters.successByPort.get("eth0") ?? 0) <= 3);
    const direct = await engineFor(t, { role: "transparent", port: own.port, address: LOOPBACK });
    // The listener's own address and port, as the kernel shows them.
    const { port } = listenerFor(t, (fd, remote) => {
      direct.engine.accept(fd, remote, hostListener(port, { role: "transparent" }));
    });
    assert.equal(await errorOf(port), "ECONNRESET");
    assert.equal(direct.counters.successByPort.size, 0);
  },
);
