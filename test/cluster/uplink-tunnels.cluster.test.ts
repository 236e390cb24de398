import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { createServer } from "node:net";
import { test } from "node:test";
import { resetSocket } from "#base/socket-reset";
import { connectInside } from "#lab/inside";
import { until } from "#test/lab";
import { connectThroughProxy, openUplinkBed, PROXY, readToEnd } from "#test/uplink-bed";
import { ChurnServer, churnOnce, ENDINGS } from "#test/uplink-churn";

const TIMEOUT = { timeout: 60_000 };
const PORT = 9000;
const TARGET = `203.0.113.80:${PORT}`;
const FULL = process.env["ISTHMUS_SOAK"] === "full";
const TUNNELS = FULL ? 21_000 : 1500;
/** At once. */
const CLIENTS = 24;
/** "At once" for one end that follows another, with what a busy machine adds, in milliseconds. */
const SOON_MS = 1000;

function descriptorsOf(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}

test(`uplink-proxy: ${TUNNELS} tunnels that end by a client's FIN, an upstream's FIN with data in flight, or RST: every byte comes, no descriptor stays`, {
  timeout: FULL ? 600_000 : 60_000,
}, async (t) => {
  const one = await openUplinkBed(t);
  const churn = new ChurnServer();
  one.bed.wan0.listen(churn.server, PORT);
  const open = () => connectInside({ name: one.bed.nodeName }, PROXY, { timeoutMs: 10_000 });
  for (const ending of ENDINGS) await churnOnce(await open(), TARGET, ending);
  await until("the first ones are over", async () => (await one.health()).activeTunnels === 0 && churn.open === 0);
  const before = descriptorsOf(one.pid);
  let next = 0;
  const work = async (): Promise<void> => {
    for (let at = next++; at < TUNNELS; at = next++) {
      const ending = ENDINGS[at % ENDINGS.length];
      if (ending !== undefined) await churnOnce(await open(), TARGET, ending);
    }
  };
  const from = performance.now();
  await Promise.all(Array.from({ length: CLIENTS }, work));
  t.diagnostic(`${Math.round(TUNNELS / ((performance.now() - from) / 1000))} tunnels a second`);
  await until("the server's connections have ended", () => churn.open === 0, { deadlineMs: 2000 + SOON_MS });
  await until("descriptors are back", () => descriptorsOf(one.pid) <= before, {
    deadlineMs: 2000 + SOON_MS,
    seen: () => `${descriptorsOf(one.pid)}, ${before} before`,
  });
  assert.equal(churn.resets, TUNNELS / 3 + 1, "a client's RST reaches the upstream as one");
  const { activeTunnels, successByPort, failureByPort } = await one.health();
  assert.deepEqual([activeTunnels, successByPort, failureByPort], [0, { eth0: TUNNELS + 3 }, {}]);
});

test("uplink-proxy: an upstream's FIN reaches the client at once, behind all bytes", TIMEOUT, async (t) => {
  const one = await openUplinkBed(t);
  let endedAt = 0;
  one.bed.wan0.listen(
    createServer({ allowHalfOpen: true }, (socket) => {
      socket.on("error", () => socket.destroy());
      socket.once("data", () => {
        socket.end("z".repeat(300_000));
        endedAt = performance.now();
      });
    }),
    PORT,
  );
  const client = await one.client(t);
  assert.equal(await connectThroughProxy(client, TARGET), "HTTP/1.1 200 OK");
  client.write("x");
  await client.until(({ isEnded }) => isEnded);
  assert.ok(performance.now() - endedAt < SOON_MS, `${performance.now() - endedAt} ms`);
  assert.equal(client.text.length, "HTTP/1.1 200 OK\r\n\r\n".length + 300_000);
  // The way up is open still: that was half of the tunnel.
  assert.equal((await one.health()).activeTunnels, 1);
  client.socket.end();
  await until("the tunnel is over", async () => (await one.health()).activeTunnels === 0);
});

test("uplink-proxy: a tunnel that lasts asks both its ends every 15 s whether they are there", TIMEOUT, async (t) => {
  const one = await openUplinkBed(t);
  one.bed.wan0.listen(
    createServer((socket) => {
      socket.on("error", () => socket.destroy());
      socket.write("ready");
    }),
    PORT,
  );
  const client = await one.client(t);
  await connectThroughProxy(client, TARGET);
  await client.read("ready");
  const timers = async (filter: string): Promise<string> => (await one.run("ss", "-Htno", filter)).stdout;
  for (const filter of ["sport = :5443", `dport = :${PORT}`])
    await until(
      `keepalive of ${filter}`,
      async () => /timer:\(keepalive,(1[0-5]|[0-9]\.?)/.test(await timers(filter)),
      {
        deadlineMs: 3000,
      },
    );
});

for (const streams of ["epoll", "node"] as const) {
  test(
    `uplink-proxy --streams=${streams}: a client that half closes gets the reply that comes after its FIN`,
    TIMEOUT,
    async (t) => {
      const one = await openUplinkBed(t, {}, { flags: [`--streams=${streams}`] });
      one.bed.wan0.listen(
        createServer({ allowHalfOpen: true }, (socket) => {
          let text = "";
          socket.on("error", () => socket.destroy());
          socket.on("data", (chunk: Buffer) => {
            text += chunk.toString();
          });
          socket.once("end", () => socket.end(`heard ${text}`));
        }),
        PORT,
      );
      const client = await one.client(t);
      await connectThroughProxy(client, TARGET);
      client.socket.end("the question");
      assert.match(await readToEnd(client), /\r\n\r\nheard the question$/);
      assert.equal(client.error, undefined);
    },
  );
}

for (const streams of ["epoll", "node"] as const) {
  test(`uplink-proxy --streams=${streams}: RST goes through either way, at once`, TIMEOUT, async (t) => {
    const one = await openUplinkBed(t, {}, { flags: [`--streams=${streams}`] });
    let gotReset = Number.NaN;
    one.bed.wan0.listen(
      createServer((socket) => {
        socket.on("error", (error: NodeJS.ErrnoException) => {
          if (error.code === "ECONNRESET") gotReset = performance.now();
        });
        socket.on("data", (chunk: Buffer) => {
          if (chunk.toString() === "reset me") resetSocket(socket);
          else socket.write("ready");
        });
      }),
      PORT,
    );
    const leaving = await one.client(t);
    await connectThroughProxy(leaving, TARGET);
    leaving.write("hello");
    await leaving.read("ready");
    const from = performance.now();
    resetSocket(leaving.socket);
    await until("the upstream is reset", () => !Number.isNaN(gotReset), { everyMs: 5, deadlineMs: 5000 });
    assert.ok(gotReset - from < SOON_MS, `${gotReset - from} ms`);
    const staying = await one.client(t);
    await connectThroughProxy(staying, TARGET);
    staying.write("reset me");
    await staying.until(({ isClosed }) => isClosed);
    assert.equal(staying.error?.code, "ECONNRESET");
  });
}

test("uplink-proxy: a client that leaves during a dial causes no failure, and leaves no socket", TIMEOUT, async (t) => {
  const one = await openUplinkBed(t, { maxCost: 0 });
  one.bed.wan0.break("drop-syn");
  const dialling = async (): Promise<number> =>
    (await one.run("ss", "-Htn", "state", "syn-sent")).stdout.split("\n").filter(Boolean).length;
  const client = await one.client(t);
  client.write("CONNECT 203.0.113.80:443 HTTP/1.1\r\nHost: x\r\n\r\n");
  await until("the connection is dialled", async () => (await dialling()) > 0);
  client.socket.destroy();
  await until("nothing is dialled any more", async () => (await dialling()) === 0);
  const { failureByPort, dialFailures, activeTunnels, ports } = await one.health();
  assert.deepEqual([failureByPort, dialFailures, activeTunnels], [{}, 0, 0]);
  assert.equal(ports[0]?.hasError, undefined);
});
