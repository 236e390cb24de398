import assert from "node:assert/strict";
import { once } from "node:events";
import type { Socket } from "node:net";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { Deferred } from "#base/async";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import type { ListenerSettings, Settings } from "../model/index.ts";
import { ClientLimits } from "../policy/index.ts";
import { BufferPool, TunnelWatch, Upstream } from "../relay/index.ts";
import { type DialRequest, Penalties, Rotation, SelectError, type Won } from "../select/index.ts";
import { Counters, LogLines, Traffic } from "../stats/index.ts";
import {
  clientHello,
  EvidenceLog,
  FakeSnapshots,
  hostListener,
  serverFor,
  settingsOf,
  snapshotOf,
  TestClient,
  uplink,
} from "../testing/proxy-fixtures.ts";
import { Carrier, HttpConnection, PendingHeads, Room } from "./index.ts";

const TIMEOUT = { timeout: 20_000 };
const TOKEN = "ab".repeat(32);
const AUTH = `Proxy-Authorization: Basic ${Buffer.from(`cdi:${TOKEN}`).toString("base64")}\r\n`;
const POD: Partial<ListenerSettings> = { role: "pod", name: "pods", auth: "token" };

/** A front end over real sockets of loopback; dialling is the test's, and so is time. */
class Bed {
  readonly clock = new FakeClock();
  readonly evidence = new EvidenceLog();
  readonly counters: Counters;
  readonly penalties: Penalties;
  readonly snapshots = new FakeSnapshots(snapshotOf([uplink("eth0"), uplink("eth1", { cost: 1 })]));
  readonly dials: string[] = [];
  readonly pending: PendingHeads;
  readonly carrier: Carrier;
  readonly room: Room;
  readonly bugs: unknown[] = [];
  readonly pool = new BufferPool(65_536);
  /** What a dial does; by default it connects to a server that echoes. */
  dial: (request: DialRequest) => Promise<Won<Upstream>>;
  hasAlternative = true;
  isDraining = false;
  tokens: readonly string[] | undefined = [TOKEN];
  healthz = "{}\n";
  port = 0;
  /** Sockets of the front end. */
  clients: ReadonlySet<Socket> = new Set();

  private constructor(settings: Settings, echoPort: number) {
    this.counters = new Counters(this.clock);
    this.penalties = new Penalties(this.clock, settings.selection);
    this.pending = new PendingHeads(() => settings.limits.pendingHeaders);
    this.room = new Room(() => settings.limits);
    this.dial = () => this.connected(echoPort, "eth0");
    this.carrier = new Carrier({
      clock: this.clock,
      settings: () => settings,
      snapshots: this.snapshots,
      penalties: this.penalties,
      rotation: new Rotation(),
      evidence: this.evidence,
      room: this.room,
      watch: new TunnelWatch(this.clock),
      traffic: new Traffic(),
      record: (event) => this.counters.record(event),
      lines: new LogLines(nullLogger, this.clock),
      onBug: (error) => this.bugs.push(error),
      dialler: {
        dial: async (request) => {
          const { address, text } = request.destination;
          if (address !== undefined && request.judge([address]) === "denied") {
            throw new SelectError("denied", `${text} is not an allowed destination`);
          }
          this.dials.push(text);
          return await this.dial(request);
        },
        hasAlternative: () => this.hasAlternative,
      },
    });
  }

  static async open(
    t: TestContext,
    fields: Partial<Settings> = {},
    listener: Partial<ListenerSettings> = {},
  ): Promise<Bed> {
    const echo = await serverFor(t, (socket) => socket.pipe(socket));
    const settings = settingsOf({ allowLoopback: false, ...fields });
    const bed = new Bed(settings, echo.port);
    const listening = hostListener(5443, listener);
    const clients = new ClientLimits(bed.clock, () => settings.limits);
    const { port, clients: accepted } = await serverFor(t, (socket) => {
      new HttpConnection(socket, listening, {
        clock: bed.clock,
        settings: () => settings,
        carrier: bed.carrier,
        pending: bed.pending,
        clients,
        record: (event) => bed.counters.record(event),
        isDraining: () => bed.isDraining,
        tokens: () => bed.tokens,
        healthz: async () => bed.healthz,
        metrics: async () => "metrics 1\n",
        onBug: (error) => bed.bugs.push(error),
      }).start();
    });
    bed.port = port;
    bed.clients = accepted;
    t.after(() => {
      bed.carrier.closeAll("drain");
      assert.deepEqual(bed.bugs, []);
    });
    return bed;
  }

  /** A connection to a server of loopback, as if over an uplink. */
  async connected(port: number, name: string): Promise<Won<Upstream>> {
    const address = IpAddress.parse("127.0.0.1");
    const connection = Upstream.connect({ address, port }, this.pool);
    await once(connection.socket, "connect");
    const via = this.snapshots.current.uplinks.find((each) => each.name === name);
    return { connection, address, failures: [], ...(via === undefined ? {} : { uplink: via }) };
  }

  /** Everything that a client reads in answer to a text, until the end or the next answer is awaited. */
  async ask(t: TestContext, text: string, until = "\r\n\r\n"): Promise<string> {
    const client = await TestClient.to(t, this.port);
    client.write(text);
    const answer = await client.read(until);
    client.socket.destroy();
    return answer;
  }
}

/** Status, reason, what else an answer must have, and whether it ends the connection. */
const ANSWERS: readonly (readonly [name: string, request: string, pod: boolean, answer: RegExp])[] = [
  [
    "healthz",
    "GET /healthz HTTP/1.1\r\n\r\n",
    false,
    /^HTTP\/1\.1 200 OK\r\nContent-Type: application\/json\r\nContent-Length: 3\r\n\r\n/,
  ],
  ["healthz in absolute form", "GET http://x/healthz?a HTTP/1.1\r\nHost: x\r\n\r\n", false, /^HTTP\/1\.1 200 /],
  ["healthz for a pod", "GET /healthz HTTP/1.1\r\n\r\n", true, /^HTTP\/1\.1 404 /],
  ["metrics for a pod", "GET /metrics HTTP/1.1\r\n\r\n", true, /^HTTP\/1\.1 404 /],
  ["HEAD", "HEAD /healthz HTTP/1.1\r\n\r\n", false, /^HTTP\/1\.1 405 .*Allow: CONNECT, GET\r\n/s],
  ["metrics that are off", "GET /metrics HTTP/1.1\r\n\r\n", false, /^HTTP\/1\.1 405 /],
  [
    "plain HTTP that is off",
    "GET http://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
    false,
    /^HTTP\/1\.1 405 .*X-Content-Type-Options: nosniff\r\n/s,
  ],
  ["a body", "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", false, /^HTTP\/1\.1 405 .*Connection: close\r\n/s],
  [
    "no port",
    "CONNECT a.example HTTP/1.1\r\n\r\n",
    false,
    /^HTTP\/1\.1 400 .*Connection: close\r\n.*X-Uplink-Reason: bad-target\r\n/s,
  ],
  ["an empty host", "CONNECT :443 HTTP/1.1\r\n\r\n", false, /^HTTP\/1\.1 400 .*bad-target/s],
  ["a body of a CONNECT", "CONNECT a:1 HTTP/1.1\r\nContent-Length: 5\r\n\r\n", false, /^HTTP\/1\.1 400 .*bad-target/s],
  [
    "chunks of a CONNECT",
    "CONNECT a:1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    false,
    /^HTTP\/1\.1 400 .*bad-target/s,
  ],
  ["two hosts", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", false, /^HTTP\/1\.1 400 .*Connection: close/s],
  ["a bare LF", "CONNECT a:1 HTTP/1.1\n\n", false, /^HTTP\/1\.1 400 .*Connection: close/s],
  ["a long line", `CONNECT ${"a".repeat(3000)}:1 HTTP/1.1\r\n\r\n`, false, /^HTTP\/1\.1 431 .*header-too-large/s],
  ["many fields", `CONNECT a:1 HTTP/1.1\r\n${"x: y\r\n".repeat(65)}\r\n`, false, /^HTTP\/1\.1 431 /],
  ["a long head", `CONNECT a:1 HTTP/1.1\r\n${`x: ${"y".repeat(1000)}\r\n`.repeat(17)}\r\n`, false, /^HTTP\/1\.1 431 /],
  ["HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false, /^HTTP\/1\.1 505 .*Connection: close/s],
  ["loopback", "CONNECT 127.0.0.1:80 HTTP/1.1\r\n\r\n", false, /^HTTP\/1\.1 403 .*X-Uplink-Reason: denied/s],
  [
    "no credential",
    "CONNECT a.example:443 HTTP/1.1\r\n\r\n",
    true,
    /^HTTP\/1\.1 407 .*Proxy-Authenticate: Basic realm="mgmtproxy"\r\n/s,
  ],
  ["a denied port with the credential", `CONNECT a.example:22 HTTP/1.1\r\n${AUTH}\r\n`, true, /^HTTP\/1\.1 403 /],
  ["metadata with the credential", `CONNECT 169.254.169.254:443 HTTP/1.1\r\n${AUTH}\r\n`, true, /^HTTP\/1\.1 403 /],
  ["an allowed destination", `CONNECT a.example:443 HTTP/1.1\r\n${AUTH}\r\n`, true, /^HTTP\/1\.1 200 OK\r\n\r\n$/],
  ["HTTP/1.0", "CONNECT a.example:443 HTTP/1.0\r\n\r\n", false, /^HTTP\/1\.1 200 OK\r\n\r\n$/],
];

test("HttpConnection: each request has its exact answer", TIMEOUT, async (t) => {
  const beds = { host: await Bed.open(t), pod: await Bed.open(t, {}, POD) };
  for (const [name, request, isPod, answer] of ANSWERS) {
    assert.match(await beds[isPod ? "pod" : "host"].ask(t, request), answer, name);
  }
  assert.equal(
    beds.host.counters.requests,
    ANSWERS.filter(([, request, isPod]) => !isPod && request.startsWith("CONNECT a.example")).length + 4,
  );
});

test(
  "HttpConnection: a pod is told 503 while no token is loaded, before anything is said of it",
  TIMEOUT,
  async (t) => {
    const bed = await Bed.open(t, {}, POD);
    bed.tokens = undefined;
    assert.match(
      await bed.ask(t, `CONNECT a.example:443 HTTP/1.1\r\n${AUTH}\r\n`),
      /^HTTP\/1\.1 503 .*Retry-After: 5\r\n/s,
    );
  },
);

test("HttpConnection: failures have their reason, and a pod learns nothing of this host", TIMEOUT, async (t) => {
  const text = "all attempts to a.example:443 failed; eth0/192.0.2.10(cost=0): connection refused";
  for (const isPod of [false, true]) {
    const bed = await Bed.open(t, {}, isPod ? POD : {});
    for (const code of ["not-ready", "no-uplink", "cost-limit", "dial-failed", "timeout", "dns"] as const) {
      bed.dial = () => Promise.reject(new SelectError(code, text));
      const answer = await bed.ask(t, `CONNECT a.example:443 HTTP/1.1\r\n${AUTH}\r\n`, "\r\n\r\nmgmtproxy:");
      assert.match(answer, /^HTTP\/1\.1 502 Bad Gateway\r\n/);
      assert.ok(answer.includes(`X-Uplink-Reason: ${code}\r\n`));
      assert.equal(answer.includes("Retry-After: 5"), code === "not-ready");
      assert.equal(answer.includes("eth0"), !isPod);
    }
    assert.equal(bed.counters.dialFailures, 6);
    assert.equal(bed.counters.notReady, 1);
  }
});

test(
  "HttpConnection: a connection stays usable after an answer, also pipelined; not after something malformed",
  TIMEOUT,
  async (t) => {
    const bed = await Bed.open(t);
    bed.dial = () => Promise.reject(new SelectError("dns", "no such host"));
    const client = await TestClient.to(t, bed.port);
    client.write("GET /healthz HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\n\r\nCONNECT a.example:443 HTTP/1.1\r\n\r\n");
    await client.until(({ text }) => text.split("HTTP/1.1 ").length === 4);
    assert.deepEqual(client.text.match(/HTTP\/1\.1 \d+/g), ["HTTP/1.1 200", "HTTP/1.1 405", "HTTP/1.1 502"]);
    bed.dial = () => bed.connected(1, "eth0");
    client.write("BAD\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n");
    await client.until(({ isEnded }) => isEnded);
    assert.deepEqual(client.text.match(/HTTP\/1\.1 \d+/g), [
      "HTTP/1.1 200",
      "HTTP/1.1 405",
      "HTTP/1.1 502",
      "HTTP/1.1 400",
    ]);
  },
);

test(
  "HttpConnection: what a client said before a failed dial is never read as its next request",
  TIMEOUT,
  async (t) => {
    const bed = await Bed.open(t);
    bed.dial = () => Promise.reject(new SelectError("dns", "no such host"));
    const client = await TestClient.to(t, bed.port);
    client.write("CONNECT a.example:443 HTTP/1.1\r\n\r\nCONNECT b.example:443 HTTP/1.1\r\n\r\n");
    await client.until(({ isEnded }) => isEnded);
    assert.deepEqual(client.text.match(/HTTP\/1\.1 \d+/g), ["HTTP/1.1 502"]);
    assert.deepEqual(bed.dials, ["a.example:443"]);
  },
);

test(
  "HttpConnection: what was said behind a CONNECT that is refused at once is never read as a request either",
  TIMEOUT,
  async (t) => {
    const bed = await Bed.open(t, {}, { ...POD, allowedPorts: [443] });
    for (const [head, status] of [
      ["CONNECT a.example:443 HTTP/1.1\r\n\r\n", 407],
      [`CONNECT a.example:22 HTTP/1.1\r\n${AUTH}\r\n`, 403],
    ] as const) {
      const client = await TestClient.to(t, bed.port);
      client.write(`${head}CONNECT b.example:443 HTTP/1.1\r\n${AUTH}\r\n`);
      await client.until(({ isEnded }) => isEnded);
      assert.deepEqual(client.text.match(/HTTP\/1\.1 \d+/g), [`HTTP/1.1 ${status}`]);
    }
    assert.deepEqual(bed.dials, []);
  },
);

test("HttpConnection: a head has 10 s, a pause between requests 30 s", TIMEOUT, async (t) => {
  const bed = await Bed.open(t);
  const slow = await TestClient.to(t, bed.port);
  slow.write("CONNECT a.example:443 HT");
  while (bed.pending.size === 0) await new Promise((resolve) => setImmediate(resolve));
  await bed.clock.advance(9999);
  assert.equal(slow.text, "");
  await bed.clock.advance(1);
  assert.match(await slow.read("\r\n\r\n"), /^HTTP\/1\.1 408 .*Connection: close/s);
  const kept = await TestClient.to(t, bed.port);
  kept.write("GET /healthz HTTP/1.1\r\n\r\n");
  await kept.read("{}");
  while (bed.pending.size === 0) await new Promise((resolve) => setImmediate(resolve));
  await bed.clock.advance(30_000);
  await kept.until(({ isEnded }) => isEnded);
  assert.deepEqual(kept.text.match(/HTTP\/1\.1 \d+/g), ["HTTP/1.1 200"]);
});

test(
  "HttpConnection: who asks and does not read the answers is counted, and cut off after 30 s",
  TIMEOUT,
  async (t) => {
    const bed = await Bed.open(t);
    // More than the kernel takes for somebody who does not read.
    bed.healthz = "x".repeat(1 << 25);
    const client = await TestClient.to(t, bed.port);
    client.socket.pause();
    client.write("GET /healthz HTTP/1.1\r\n\r\n".repeat(100));
    const isStuck = (): boolean => [...bed.clients].some(({ writableNeedDrain }) => writableNeedDrain);
    while (!isStuck()) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(bed.pending.size, 1);
    await bed.clock.advance(29_000);
    assert.equal(bed.clients.size, 1);
    await bed.clock.advance(1000);
    while (bed.clients.size > 0) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(bed.pending.size, 0);
  },
);

test("HttpConnection: who reads the answers late gets all of them", TIMEOUT, async (t) => {
  const bed = await Bed.open(t);
  bed.healthz = `${"x".repeat(1 << 20)}\n`;
  const client = await TestClient.to(t, bed.port);
  client.socket.pause();
  client.write(`${"GET /healthz HTTP/1.1\r\n\r\n".repeat(9)}GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n`);
  const isStuck = (): boolean => [...bed.clients].some(({ writableNeedDrain }) => writableNeedDrain);
  while (!isStuck()) await new Promise((resolve) => setImmediate(resolve));
  client.socket.resume();
  await client.until(({ isEnded }) => isEnded);
  assert.equal(client.text.match(/HTTP\/1\.1 200 OK/g)?.length, 10);
});

test("HttpConnection: 500 half-open heads do not hold up a valid request; the oldest go", TIMEOUT, async (t) => {
  const bed = await Bed.open(t);
  const slow = await Promise.all(Array.from({ length: 500 }, () => TestClient.to(t, bed.port)));
  for (const client of slow) client.write("CONNECT a.ex");
  const before = performance.now();
  assert.match(await bed.ask(t, "CONNECT a.example:443 HTTP/1.1\r\n\r\n"), /^HTTP\/1\.1 200 /);
  assert.ok(performance.now() - before < 500);
  assert.ok(bed.pending.size <= 256);
  await slow[0]?.until(({ isEnded, isClosed }) => isEnded || isClosed);
});

test(
  "HttpConnection: bytes behind the head are the first of the tunnel; nothing is lost while dialling",
  TIMEOUT,
  async (t) => {
    const bed = await Bed.open(t);
    const gate = new Deferred();
    const { dial } = bed;
    bed.dial = async (request) => {
      await gate.promise;
      return await dial(request);
    };
    const client = await TestClient.to(t, bed.port);
    client.write("CONNECT a.example:443 HTTP/1.1\r\n\r\none ");
    while (bed.dials.length === 0) await new Promise((resolve) => setImmediate(resolve));
    client.write("two ");
    client.write(`${"x".repeat(300_000)} end`);
    gate.resolve();
    await client.read(" end");
    assert.equal(client.text, `HTTP/1.1 200 OK\r\n\r\none two ${"x".repeat(300_000)} end`);
  },
);

test(
  "HttpConnection: a client that leaves while dialling ends the dial; no failure, no socket, no place is left",
  TIMEOUT,
  async (t) => {
    for (const how of ["destroy", "reset", "end"] as const) {
      const bed = await Bed.open(t);
      const aborted = new Deferred();
      bed.dial = ({ signal }) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener("abort", () => {
            aborted.resolve();
            reject(signal.reason);
          });
        });
      const client = await TestClient.to(t, bed.port);
      client.write("CONNECT a.example:443 HTTP/1.1\r\n\r\n");
      while (bed.dials.length === 0) await new Promise((resolve) => setImmediate(resolve));
      assert.deepEqual([bed.room.tunnels, bed.room.dialling], [1, 1]);
      if (how === "end") client.socket.end();
      else if (how === "reset") client.socket.resetAndDestroy();
      else client.socket.destroy();
      await aborted.promise;
      while (bed.room.tunnels > 0) await new Promise((resolve) => setImmediate(resolve));
      assert.deepEqual([bed.counters.dialFailures, bed.room.dialling], [0, 0], how);
    }
  },
);

test("HttpConnection: without room there is a 503 at once, and room comes back", TIMEOUT, async (t) => {
  const { limits } = settingsOf();
  const bed = await Bed.open(t, { limits: { ...limits, tunnels: 1 } });
  const first = await TestClient.to(t, bed.port);
  first.write("CONNECT a.example:443 HTTP/1.1\r\n\r\n");
  await first.read("200");
  const refused = await bed.ask(t, "CONNECT a.example:443 HTTP/1.1\r\n\r\n");
  assert.match(refused, /^HTTP\/1\.1 503 .*Retry-After: 1\r\nX|^HTTP\/1\.1 503 .*X-Uplink-Reason: overload\r\n/s);
  assert.equal(bed.counters.overload, 1);
  first.socket.resetAndDestroy();
  while (bed.room.tunnels > 0) await new Promise((resolve) => setImmediate(resolve));
  assert.match(await bed.ask(t, "CONNECT a.example:443 HTTP/1.1\r\n\r\n"), /^HTTP\/1\.1 200 /);
  bed.room.isStarved = true;
  assert.match(await bed.ask(t, "CONNECT a.example:443 HTTP/1.1\r\n\r\n"), /^HTTP\/1\.1 503 /);
});

test("HttpConnection: a pod has 32 tunnels, and what is refused takes no place", TIMEOUT, async (t) => {
  const { limits } = settingsOf();
  const bed = await Bed.open(t, { limits: { ...limits, podTunnelsPerClient: 2, podConnectsPerSecond: 100 } }, POD);
  const open = async (): Promise<TestClient> => {
    const client = await TestClient.to(t, bed.port);
    client.write(`CONNECT a.example:443 HTTP/1.1\r\n${AUTH}\r\n`);
    await client.read("\r\n\r\n");
    return client;
  };
  const [one, two, three] = [await open(), await open(), await open()];
  assert.deepEqual(
    [one, two, three].map(({ text }) => text.slice(9, 12)),
    ["200", "200", "503"],
  );
  one.socket.resetAndDestroy();
  while (bed.carrier.size > 1) await new Promise((resolve) => setImmediate(resolve));
  assert.match((await open()).text, /^HTTP\/1\.1 200/);
});

test("HttpConnection: while draining requests are refused, and tunnels go on", TIMEOUT, async (t) => {
  const bed = await Bed.open(t);
  const client = await TestClient.to(t, bed.port);
  client.write("CONNECT a.example:443 HTTP/1.1\r\n\r\n");
  await client.read("200");
  const waiting = await TestClient.to(t, bed.port);
  bed.isDraining = true;
  waiting.write("GET /healthz HTTP/1.1\r\n\r\n");
  assert.match(await waiting.read("\r\n\r\n"), /^HTTP\/1\.1 503 .*Connection: close/s);
  client.write("still here");
  await client.read("still here");
});

test(
  "Carrier: a tunnel that gets no answer goes on over another uplink, and the client does not notice",
  TIMEOUT,
  async (t) => {
    const bed = await Bed.open(t);
    const hole = await serverFor(t, (socket) => socket.resume());
    const { dial } = bed;
    const excepted: string[][] = [];
    bed.dial = (request) => {
      excepted.push([...(request.except ?? [])]);
      return excepted.length === 1 ? bed.connected(hole.port, "eth0") : bed.connected(hole.port, "eth1");
    };
    const hello = clientHello("a.example");
    const client = await TestClient.to(t, bed.port);
    client.write("CONNECT a.example:443 HTTP/1.1\r\n\r\n");
    await client.read("200");
    client.socket.write(hello);
    while (bed.counters.activeTunnels === 0 || hole.clients.size === 0)
      await new Promise((resolve) => setImmediate(resolve));
    await waitBytes([...hole.clients][0], hello.length);
    await bed.clock.advance(6000);
    while (bed.counters.replays === 0) await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(excepted, [[], ["eth0"]]);
    assert.deepEqual(
      bed.penalties.list().map(({ destination, uplink: name }) => `${name} ${destination}`),
      ["eth0 a.example:443"],
    );
    // The second swallows too; the third does not.
    bed.dial = dial;
    await bed.clock.advance(6000);
    assert.equal((await client.read(hello.toString("latin1"))).length, 19 + hello.length);
    assert.deepEqual([bed.counters.replays, bed.counters.blackholes], [2, 2]);
    assert.deepEqual(bed.evidence.lines, [
      "blackholed eth0 a.example:443",
      "blackholed eth1 a.example:443",
      "first-byte eth0 a.example:443",
    ]);
    // A byte over the uplink clears what was held against it.
    assert.deepEqual(
      bed.penalties.list().map(({ uplink: name }) => name),
      ["eth1"],
    );
  },
);

test(
  "Carrier: without another uplink a silent destination is waited for; with one, what cannot be replayed is reset",
  TIMEOUT,
  async (t) => {
    const bed = await Bed.open(t);
    const hole = await serverFor(t, (socket) => socket.resume());
    bed.dial = () => bed.connected(hole.port, "eth0");
    const open = async (): Promise<TestClient> => {
      const client = await TestClient.to(t, bed.port);
      client.write("CONNECT a.example:443 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n");
      await client.read("200");
      return client;
    };
    bed.hasAlternative = false;
    const waiting = await open();
    await waitBytes([...hole.clients][0], 18);
    await bed.clock.advance(7000);
    assert.equal(waiting.isEnded || waiting.isClosed, false);
    bed.hasAlternative = true;
    const reset = await open();
    await bed.clock.advance(7000);
    await reset.until(({ isClosed }) => isClosed);
    assert.equal(reset.error?.code, "ECONNRESET");
    assert.equal(bed.counters.replays, 0);
  },
);

test("Carrier: an answer that comes while another uplink is dialled ends the dial", TIMEOUT, async (t) => {
  const bed = await Bed.open(t);
  const late = await serverFor(t, (socket) => socket.resume());
  const aborted = new Deferred();
  bed.dial = (request) =>
    request.except === undefined
      ? bed.connected(late.port, "eth0")
      : new Promise((_resolve, reject) => {
          request.signal.addEventListener("abort", () => {
            aborted.resolve();
            reject(request.signal.reason);
          });
        });
  const client = await TestClient.to(t, bed.port);
  client.write("CONNECT a.example:443 HTTP/1.1\r\n\r\n");
  await client.read("200");
  const hello = clientHello("a.example");
  client.socket.write(hello);
  while (late.clients.size === 0) await new Promise((resolve) => setImmediate(resolve));
  await waitBytes([...late.clients][0], hello.length);
  await bed.clock.advance(6000);
  [...late.clients][0]?.write("late answer");
  await client.read("late answer");
  await aborted.promise;
  assert.equal(bed.counters.replays, 0);
});

test(
  "HttpConnection: plain requests are forwarded where that is allowed, without what is between the client and us",
  TIMEOUT,
  async (t) => {
    const origin = await serverFor(t, (socket) => {
      let text = "";
      socket.on("data", (chunk: Buffer) => {
        text += chunk.toString();
        if (text.endsWith("body")) socket.end(`HTTP/1.1 200 OK\r\nContent-Length: ${text.length}\r\n\r\n${text}`);
      });
    });
    const bed = await Bed.open(t, { plainHttp: true });
    bed.dial = () => bed.connected(origin.port, "eth0");
    const client = await TestClient.to(t, bed.port);
    client.write(
      "POST http://A.Example/path?q HTTP/1.1\r\nHost: other\r\nConnection: X-Own, keep-alive\r\nX-Own: 1\r\n" +
        "Proxy-Authorization: secret\r\nKeep-Alive: 5\r\nContent-Length: 4\r\nX-Kept: yes\r\n\r\nbody",
    );
    await client.until(({ isEnded }) => isEnded);
    const [, received] = client.text.split(/(?<=\r\n\r\n)(?=POST)/);
    assert.equal(
      received,
      "POST /path?q HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nX-Kept: yes\r\nConnection: close\r\n\r\nbody",
    );
    assert.deepEqual(bed.dials, ["a.example:80"]);
    for (const target of ["http://127.0.0.1/", "http://[::1]:80/", "http://[::ffff:127.0.0.1]/x"]) {
      const answer = await bed.ask(t, `GET ${target} HTTP/1.1\r\nHost: x\r\n\r\n`);
      assert.match(answer, /^HTTP\/1\.1 403 /, target);
    }
    for (const target of ["http://u@a.example/", "http://a b/", "http://2130706433/", "https://a.example/"]) {
      assert.match(await bed.ask(t, `GET ${target} HTTP/1.1\r\nHost: x\r\n\r\n`), /^HTTP\/1\.1 40[05] /, target);
    }
  },
);

test(
  "HttpConnection: any bytes, cut anywhere: an answer or an end, no bug, nothing dialled that policy forbids (fuzz)",
  TIMEOUT,
  async (t) => {
    const bed = await Bed.open(t, { plainHttp: true }, POD);
    bed.dial = () => Promise.reject(new SelectError("dns", "no such host"));
    const authority = fc.oneof(
      fc.constantFrom(
        "127.0.0.1:443",
        "[::1]:443",
        "169.254.169.254:443",
        "[::ffff:10.43.0.1]:443",
        "10.42.0.1:443",
        "0:443",
        "2130706433:443",
      ),
      fc.tuple(fc.ipV4(), fc.constantFrom(443, 80, 5000)).map(([address, port]) => `${address}:${port}`),
      fc.string({ maxLength: 12 }),
    );
    const head = fc
      .tuple(
        fc.constantFrom("CONNECT", "GET", "POST", "connect"),
        authority,
        fc.constantFrom("HTTP/1.1", "HTTP/1.0", "HTTP/2"),
        fc.constantFrom(AUTH, "", "Host: a\r\nHost: b\r\n", "x\r\n", "Content-Length: 3\r\n"),
      )
      .map(([method, target, version, fields]) => `${method} ${target} ${version}\r\n${fields}\r\n`);
    const input = fc.oneof(
      fc.array(head, { minLength: 1, maxLength: 3 }).map((heads) => heads.join("")),
      fc.string({ unit: "binary", maxLength: 60 }),
      fc
        .tuple(head, fc.nat(60), fc.string({ unit: "binary", maxLength: 3 }))
        .map(([text, at, odd]) => text.slice(0, at) + odd + text.slice(at)),
    );
    await fc.assert(
      fc.asyncProperty(input, fc.nat(40), async (text, cut) => {
        bed.dials.length = 0;
        const client = await TestClient.to(t, bed.port);
        client.write(text.slice(0, cut));
        await new Promise((resolve) => setImmediate(resolve));
        client.write(text.slice(cut));
        client.socket.end();
        await client.until(({ isEnded, isClosed }) => isEnded || isClosed);
        client.socket.destroy();
        for (const status of client.text.matchAll(/^HTTP\/1\.1 (\d+)/gm)) {
          assert.match(status[1] ?? "", /^(400|403|404|405|407|408|431|502|503|505)$/);
        }
        for (const dialled of bed.dials) {
          assert.doesNotMatch(dialled, /^(127\.|169\.254\.|10\.4[23]\.|0\.|22[4-9]\.|2[345]\d\.|\[::1\])/);
          assert.match(dialled, /:(443|5000|8443)$/);
        }
        assert.deepEqual(bed.bugs, []);
      }),
      { numRuns: 400 },
    );
    assert.equal(bed.room.tunnels, 0);
  },
);

/** Resolves once a socket of a server has read so much. */
async function waitBytes(socket: Socket | undefined, bytes: number): Promise<void> {
  while ((socket?.bytesRead ?? 0) < bytes) await new Promise((resolve) => setImmediate(resolve));
}
