// quiet: it measures time, and uses little of the processor
import assert from "node:assert/strict";
import { createServer, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { until } from "#test/lab";
import {
  connectThroughProxy,
  openUplinkBed,
  readToEnd,
  SERVER4,
  type UplinkBed,
  WEB,
  WEB4,
  WEB6,
} from "#test/uplink-bed";
import { clientHello } from "../../src/features/uplink-proxy/testing/proxy-fixtures.ts";

const TIMEOUT = { timeout: 60_000 };
/** The time that a busy machine adds to a delay, in milliseconds. */
const SLACK_MS = 1500;
const QUICK = { tunnel: { firstByteTimeoutMs: 1000 } };
const PORT = 9000;

/** Records the bytes that the WAN's server of raw TCP receives, connection by connection. */
function record(wan: UplinkBed["bed"]["wan0"], answer: string): readonly { text: string }[] {
  const seen: { text: string }[] = [];
  const server = createServer((socket: Socket) => {
    const one = { text: "" };
    seen.push(one);
    socket.on("error", () => socket.destroy());
    socket.on("data", (chunk: Buffer) => {
      one.text += chunk.toString("latin1");
      socket.write(answer);
    });
  });
  wan.listen(server, PORT, SERVER4);
  return seen;
}

for (const [family, url, source] of [
  ["IPv4", WEB4, "198.51.100.10"],
  ["IPv6", WEB6, "2001:db8:2::10"],
] as const) {
  test(
    `uplink-proxy, ${family}: curl over an uplink that accepts and then swallows finishes over the other one, unseen, and the next time at once`,
    TIMEOUT,
    async (t) => {
      const one = await openUplinkBed(t);
      const [, direct] = await one.fetch(url);
      one.bed.wan0.break("swallow");
      const [first, firstMs] = await one.fetch(url);
      assert.equal(first, `wan1 ${source}`);
      assert.ok(firstMs > 4500 && firstMs < 6000 + SLACK_MS, `${firstMs}`);
      assert.deepEqual(one.bed.wan1.requests, [`${source} GET /`]);
      const [second, secondMs] = await one.fetch(url);
      assert.equal(second, `wan1 ${source}`);
      assert.ok(secondMs < direct + SLACK_MS, `${secondMs}`);
      const { replays, blackholes, penalties } = await one.health();
      assert.deepEqual([replays, blackholes, penalties.map(({ uplink }) => uplink)], [1, 1, ["eth0"]]);
    },
  );
}

test("uplink-proxy: a blackholed ClientHello reaches the other uplink's server once and whole", TIMEOUT, async (t) => {
  const one = await openUplinkBed(t, QUICK);
  const seen = record(one.bed.wan1, "\x15\x03\x03");
  record(one.bed.wan0, "never");
  one.bed.wan0.break("swallow");
  const client = await one.client(t);
  await connectThroughProxy(client, `203.0.113.80:${PORT}`);
  const hello = clientHello("registry.example");
  client.socket.write(hello);
  await client.read("\x15\x03\x03");
  assert.deepEqual(seen, [{ text: hello.toString("latin1") }]);
});

/** The large parts of an answer are lost, the small end of it arrives. */
const LARGE = `${"\x16\x03\x03".padEnd(5000, "a")}end`;
/** As those of today's clients, with keys against quantum computers: larger than a packet. */
const LARGE_HELLO = clientHello("registry.example", { paddingBytes: 1400 });
/** Shorter than a user's, with room for the probes of a path. */
const SOON = { tunnel: { firstByteTimeoutMs: 2500 } };

test(
  "uplink-proxy: a path that loses large packets without a word gets small ones: the answer to a ClientHello comes over it, and the next one at once",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, SOON);
    record(one.bed.wan0, LARGE);
    one.bed.narrow(1400);
    const before = one.bed.wan1.packets;
    const tookMs: number[] = [];
    for (const hello of [clientHello("registry.example"), LARGE_HELLO]) {
      const from = performance.now();
      const client = await one.client(t);
      await connectThroughProxy(client, `203.0.113.80:${PORT}`);
      client.socket.write(hello);
      assert.ok((await client.read("end")).endsWith(LARGE));
      tookMs.push(performance.now() - from);
    }
    assert.ok((tookMs[0] ?? 0) < 5000 + SLACK_MS && (tookMs[1] ?? 0) < SLACK_MS, `${tookMs}`);
    const { blackholes, replays, penalties, successByPort } = await one.health();
    assert.deepEqual([blackholes, replays, penalties, successByPort], [0, 0, [], { eth0: 2 }]);
    assert.equal(one.bed.wan1.packets, before);
    assert.equal(one.log.filter((line) => line.includes("large packets are lost on the path")).length, 1);
  },
);

test(
  "uplink-proxy: a ClientHello that is larger than the path's packets is sent again in small ones",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, SOON);
    const seen = record(one.bed.wan0, "\x15\x03\x03");
    one.bed.narrow(1400);
    const client = await one.client(t);
    await connectThroughProxy(client, `203.0.113.80:${PORT}`);
    client.socket.write(LARGE_HELLO);
    await client.read("\x15\x03\x03");
    assert.deepEqual(seen.filter(({ text }) => text !== "").length, 1);
    assert.deepEqual((await one.health()).successByPort, { eth0: 1 });
  },
);

test(
  "uplink-proxy: a download on whose path large packets are lost is reset and not left hanging, and the next try has small ones; a path that loses those too is left",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, SOON);
    // The head is small enough, as is a resumed handshake, and the body is not.
    for (const wan of [one.bed.wan0, one.bed.wan1])
      wan.listen(
        createServer((socket) => {
          socket.on("error", () => socket.destroy());
          socket.once("data", () => {
            socket.write("HTTP/1.0 200 OK\r\n\r\n");
            setTimeout(() => socket.end(`${"a".repeat(5000)}${wan.name}`), 200);
          });
        }),
        PORT,
        SERVER4,
      );
    one.bed.narrow(1400);
    const url = `http://203.0.113.80:${PORT}/`;
    const cut = await one.curl(url, "-o", "/dev/null");
    assert.equal(cut.code, 56, cut.stderr);
    assert.match((await one.fetch(url))[0], /^a+wan0$/);
    one.bed.narrow(900);
    assert.equal((await one.curl(url, "-o", "/dev/null")).code, 56);
    assert.match((await one.fetch(url))[0], /^a+wan1$/);
  },
);

for (const [what, bytes] of [
  ["what is not TLS", Buffer.from("GET / HTTP/1.1\r\n\r\n")],
  ["a ClientHello with early data", clientHello("registry.example", { hasEarlyData: true })],
  ["half a ClientHello", clientHello("registry.example").subarray(0, 40)],
] as const) {
  test(
    `uplink-proxy: ${what} is never sent twice: the client is reset, and its next try takes the other uplink`,
    TIMEOUT,
    async (t) => {
      const one = await openUplinkBed(t, QUICK);
      const seen = record(one.bed.wan1, "here");
      record(one.bed.wan0, "never");
      one.bed.wan0.break("swallow");
      const ask = async (context: TestContext) => {
        const client = await one.client(context);
        await connectThroughProxy(client, `203.0.113.80:${PORT}`);
        client.socket.write(bytes);
        return client;
      };
      const first = await ask(t);
      await first.until(({ isClosed }) => isClosed);
      assert.equal(first.error?.code, "ECONNRESET");
      assert.deepEqual(seen, []);
      await (await ask(t)).read("here");
      assert.equal(seen.length, 1);
    },
  );
}

test(
  "uplink-proxy: a download that stops in the middle ends after the idle limit with an error, and the next one takes the other uplink",
  TIMEOUT,
  async (t) => {
    const idleTimeoutMs = 3000;
    const one = await openUplinkBed(t, { tunnel: { idleTimeoutMs } });
    const body = "z".repeat(300_000);
    for (const wan of [one.bed.wan0, one.bed.wan1]) {
      wan.listen(
        createServer((socket) => {
          socket.on("error", () => socket.destroy());
          socket.once("data", () => socket.end(`${wan.name}${body}`));
        }),
        PORT,
      );
    }
    one.bed.wan0.break("drop-after");
    const download = async () => {
      const client = await one.client(t);
      await connectThroughProxy(client, `203.0.113.80:${PORT}`);
      client.write("x");
      await client.read("wan");
      const from = performance.now();
      return { text: await readToEnd(client), tookMs: performance.now() - from };
    };
    const broken = await download();
    assert.ok(broken.text.includes("wan0") && broken.text.length < body.length);
    assert.ok(
      broken.tookMs > idleTimeoutMs - 500 && broken.tookMs < idleTimeoutMs + 1000 + SLACK_MS,
      `${broken.tookMs}`,
    );
    const { tunnelIdleClosed, penalties } = await one.health();
    assert.deepEqual([tunnelIdleClosed, penalties.map(({ uplink }) => uplink)], [1, ["eth0"]]);
    const whole = await download();
    assert.ok(whole.text.endsWith(`wan1${body}`), `${whole.text.length} bytes`);
  },
);

test(
  "uplink-proxy: each uplink's own DNS server answers for it; when that of the cheap one is dead, a name costs less than 2.5 s",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, { dns: { timeoutMs: 1000, minTtlMs: 100, maxTtlMs: 100, staleMs: 0 } });
    const { wan0, wan1 } = one.bed;
    // The same name is another server in each WAN: its gateway.
    assert.match((await one.fetch("https://v4.example/"))[0], /^wan0 192\.0\.2\.10$/);
    assert.ok(wan0.dns.questions.length > 0);
    assert.deepEqual(wan1.dns.questions, []);
    wan0.dns.mute = true;
    const [answer, ms] = await one.fetch(WEB);
    assert.match(answer, /^wan0 /);
    assert.ok(ms < 2500 + SLACK_MS, `${ms}`);
    assert.ok(wan1.dns.questions.length > 0, "the dear uplink's server was asked in its stead");
  },
);

test(
  "uplink-proxy: a name that does not exist is 502 with reason dns; an answer is asked for again when its time is over",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, { dns: { minTtlMs: 300, maxTtlMs: 300 } });
    const { stdout } = await one.curl("https://nowhere.example/", "-D", "-");
    assert.match(stdout, /^HTTP\/1\.1 502 .*\r\nX-Uplink-Reason: dns\r\n/s);
    const { dns } = one.bed.wan0;
    const asked = (): number => dns.questions.filter((question) => question === "A v4.example").length;
    await one.fetch("https://v4.example/");
    const once = asked();
    assert.ok(once > 0);
    await until("it is asked again", async () => {
      await one.fetch("https://v4.example/");
      return asked() > once;
    });
  },
);

test("uplink-proxy: with all DNS dead, answers of an hour ago are still used", TIMEOUT, async (t) => {
  const one = await openUplinkBed(t, { dns: { minTtlMs: 100, maxTtlMs: 100, timeoutMs: 500 } });
  assert.match((await one.fetch(WEB))[0], /^wan0 /);
  for (const wan of [one.bed.wan0, one.bed.wan1]) wan.dns.mute = true;
  await until("a stale answer serves", async () => {
    assert.match((await one.fetch(WEB))[0], /^wan0 /);
    return (await one.health()).staleDnsAnswers > 0;
  });
});

test(
  "uplink-proxy: a destination of IPv6 alone, one with a broken IPv6 path, and an uplink of IPv6 alone",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, {}, { start: false });
    const [cheap, dear] = one.bed.uplinkEntries;
    const { address6, wan } = one.bed.uplinks[0];
    const only6 = { ...cheap, addresses: [`${address6}/64`], gateway4: null, dnsServers: [`${wan.addresses.dns6}`] };
    one.configure({ uplinks: [only6, dear] });
    await one.start();
    assert.equal((await one.fetch("https://v6.example/"))[0], "wan0 2001:db8:1::10");
    assert.equal((await one.fetch(WEB6))[0], "wan0 2001:db8:1::10");
    // It has no address of that family: not tried, and not to blame.
    assert.equal((await one.fetch(WEB4))[0], "wan1 198.51.100.10");
    assert.deepEqual((await one.health()).failureByPort, {});
    // Its IPv6 path dies: a name with both families comes over the other uplink's IPv4 or IPv6.
    one.bed.wan0.break("drop-syn");
    assert.match((await one.fetch(WEB))[0], /^wan1 /);
  },
);
