// quiet: it measures time, and uses little of the processor
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { createServer as createTlsServer, type TLSSocket } from "node:tls";
import { until } from "#test/lab";
import { connectThroughProxy, openUplinkBed, SERVER4, type UplinkBed } from "#test/uplink-bed";

const TIMEOUT = { timeout: 60_000 };
/** The limits of a user, and servers that exceed them. Else all is shorter. */
const isFull = process.env["ISTHMUS_SOAK"] === "full";
/** The time that a busy machine adds to a delay, in milliseconds. */
const SLACK_MS = 1500;
/** Shorter than the servers think. */
const SHORT = { tunnel: { firstByteTimeoutMs: 1000, idleTimeoutMs: 3000 } };

function serve({ bed }: UplinkBed, ports: readonly number[], onData: (socket: Socket, wan: string) => void): void {
  for (const wan of [bed.wan0, bed.wan1]) {
    for (const port of ports) {
      wan.listen(
        createServer((socket) => {
          socket.on("error", () => socket.destroy());
          socket.once("data", () => onData(socket, wan.name));
        }),
        port,
        SERVER4,
      );
    }
  }
}

test(
  "uplink-proxy: servers that take their time are waited for over the cheap uplink, which is not failed by them; beside them blackholed tunnels take the other uplink",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, { ...SHORT, plainHttp: true });
    const ports = [9001, 9002, 9003, 9004];
    const answer = (wan: string): string => `HTTP/1.1 200 OK\r\nContent-Length: ${wan.length}\r\n\r\n${wan}`;
    serve(one, ports, (socket, wan) => setTimeout(() => socket.end(answer(wan)), 6000).unref());
    const answers = await Promise.all(
      ports.map(async (port) => {
        const client = await one.client(t);
        if (port % 2 === 0) client.write(`GET http://203.0.113.80:${port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
        else {
          await connectThroughProxy(client, `203.0.113.80:${port}`);
          client.write("POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody");
        }
        return await client.read("wan");
      }),
    );
    for (const text of answers) assert.match(text, /\r\n\r\nwan0$/);
    const slow = await one.health();
    assert.deepEqual([slow.replays, slow.blackholes, slow.penalties], [0, 0, []]);
    assert.equal(slow.ports.find(({ ifname }) => ifname === "eth0")?.hasError, undefined);
    // The same request into a hole: asked again over the other uplink, where it is answered as slowly.
    one.bed.wan0.break("swallow");
    const client = await one.client(t);
    client.write("GET http://203.0.113.80:9001/ HTTP/1.1\r\nHost: x\r\n\r\n");
    assert.match(await client.read("wan"), /\r\n\r\nwan1$/);
    const { replays, blackholes } = await one.health();
    assert.deepEqual([replays, blackholes], [1, 1]);
  },
);

test(
  "uplink-proxy: a ServerHello that comes after the limit is waited for, and costs no more than it takes",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, SHORT);
    for (const wan of [one.bed.wan0, one.bed.wan1]) {
      const tls = createTlsServer(one.tls, (socket) =>
        socket.once("data", () => socket.end(`HTTP/1.0 200 OK\r\n\r\n${wan.name}`)),
      );
      // The ClientHello is acknowledged by the kernel, and nobody reads it yet.
      const slow = createServer({ pauseOnConnect: true }, (socket) => {
        socket.on("error", () => socket.destroy());
        setTimeout(() => tls.emit("connection", socket), 4000).unref();
      });
      wan.listen(slow, 9443, SERVER4);
    }
    const [answer, tookMs] = await one.fetch("https://203.0.113.80:9443/");
    assert.equal(answer, "wan0");
    assert.ok(tookMs >= 4000 && tookMs < 4000 + SLACK_MS, `${tookMs}`);
    const { replays, blackholes, penalties } = await one.health();
    assert.deepEqual([replays, blackholes, penalties], [0, 0, []]);
  },
);

/** The time for which servers of TLS think, and the time between two events, in milliseconds; longer than the idle limit. */
const THINK_MS = isFull ? 40_000 : 3500;

/** A server of TLS 1.3 that sends no session tickets, which Node.js's servers always do. Resolves when it listens. */
async function serveWithoutTickets(t: TestContext, { bed, dir, tls }: UplinkBed, port: number): Promise<void> {
  writeFileSync(join(dir, "server.pem"), tls.cert + tls.key);
  const flags = ["-tls1_3", "-num_tickets", "0", "-accept", `${port}`, "-cert", join(dir, "server.pem")];
  const server = spawn("nsenter", [`--net=${bed.wan0.netns.path}`, "--", "openssl", "s_server", ...flags]);
  t.after(() => server.kill("SIGKILL"));
  const answer = "HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nwan0";
  let printed = "";
  let isAsked = false;
  server.stdout.setEncoding("utf8").on("data", (text: string) => {
    printed += text;
    if (isAsked || !printed.includes("GET /")) return;
    isAsked = true;
    setTimeout(() => server.stdin.write(answer), THINK_MS).unref();
  });
  await until("openssl s_server listens", () => printed.includes("ACCEPT"), { seen: () => printed });
}

test("uplink-proxy: a server of TLS 1.2 or 1.3 that thinks longer than the idle limit, with session tickets or without, and one that sends an event now and then, are waited for", {
  timeout: isFull ? 150_000 : 60_000,
}, async (t) => {
  const one = await openUplinkBed(t, isFull ? {} : { tunnel: { idleTimeoutMs: 2000 } });
  const { wan0 } = one.bed;
  const serveTls = (port: number, version: "TLSv1.2" | "TLSv1.3", answer: (socket: TLSSocket) => void): void => {
    const tls = createTlsServer({ ...one.tls, minVersion: version, maxVersion: version }, (socket) => {
      socket.on("error", () => socket.destroy());
      socket.once("data", () => answer(socket));
    });
    const server = createServer((socket) => tls.emit("connection", socket));
    wan0.listen(server, port, SERVER4);
  };
  const head = "HTTP/1.0 200 OK\r\n\r\n";
  const think = (socket: TLSSocket): void => {
    setTimeout(() => socket.end(`${head}${wan0.name}`), THINK_MS).unref();
  };
  serveTls(9001, "TLSv1.2", think);
  serveTls(9002, "TLSv1.3", think);
  serveTls(9003, "TLSv1.3", (socket) => {
    socket.write(`${head}one `);
    setTimeout(() => socket.write("two "), THINK_MS).unref();
    setTimeout(() => socket.end("three"), 2 * THINK_MS).unref();
  });
  await serveWithoutTickets(t, one, 9004);
  if (isFull) one.commandMs = 110_000;
  const limit = isFull ? "100" : "30";
  const answers = await Promise.all(
    [9001, 9002, 9003, 9004].map((port) => one.curl(`https://203.0.113.80:${port}/`, "-m", limit)),
  );
  assert.deepEqual(
    answers.map(({ stdout, stderr }) => stdout + stderr),
    ["wan0", "wan0", "one two three", "wan0"],
  );
  const { tunnelIdleClosed, replays, penalties } = await one.health();
  assert.deepEqual([tunnelIdleClosed, replays, penalties], [0, 0, []]);
});

test(
  "uplink-proxy: a download whose path goes silent in the middle is no whole file for the client",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, { ...SHORT, maxCost: 0 });
    // HTTP/1.0 without a length: only the end of the connection says where the body ends.
    serve(one, [9001], (socket) => {
      socket.write("HTTP/1.0 200 OK\r\n\r\nhalf of it");
      setTimeout(() => one.bed.wan0.break("silent"), 300);
    });
    const { code, stdout, stderr } = await one.curl("http://203.0.113.80:9001/");
    assert.deepEqual([stdout, code], ["half of it", 56], stderr);
    assert.equal((await one.health()).tunnelIdleClosed, 1);
  },
);

test("uplink-proxy: an upload over 256 kbit/s arrives whole, as fast as the line", TIMEOUT, async (t) => {
  const one = await openUplinkBed(t, SHORT);
  const size = 200_000;
  for (const wan of [one.bed.wan0, one.bed.wan1]) {
    const server = createServer((socket) => {
      let got = 0;
      socket.on("error", () => socket.destroy());
      socket.on("data", (chunk: Buffer) => {
        got += chunk.length;
        // Not a byte before all is there.
        if (got >= size) socket.end(`HTTP/1.0 200 OK\r\n\r\n${wan.name}`);
      });
    });
    wan.listen(server, 9001, SERVER4);
  }
  one.bed.run(
    "tc",
    "qdisc",
    "add",
    "dev",
    "eth0",
    "root",
    "tbf",
    "rate",
    "256kbit",
    "burst",
    "16kb",
    "latency",
    "400ms",
  );
  const file = join(one.dir, "upload");
  writeFileSync(file, Buffer.alloc(size, "u"));
  const [answer, tookMs] = await one.fetch("http://203.0.113.80:9001/", "--data-binary", `@${file}`);
  assert.equal(answer, "wan0");
  assert.ok(tookMs > 5000, `${tookMs}`);
  const { replays, blackholes, tunnelIdleClosed, penalties } = await one.health();
  assert.deepEqual([replays, blackholes, tunnelIdleClosed, penalties], [0, 0, 0, []]);
});

test(
  "uplink-proxy, transparent: a plain request that thinks is waited for, one that was swallowed is asked again over the other uplink",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, { ...SHORT, transparent: { enabled: true, ports: [443, 9001] } });
    const answer = (wan: string): string =>
      `HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: ${wan.length}\r\n\r\n${wan}`;
    serve(one, [9001], (socket, wan) => setTimeout(() => socket.end(answer(wan)), 2500).unref());
    const curl = async (...more: readonly string[]): Promise<string> => {
      const { stdout, stderr } = await one.run("curl", "-sS", "-m", "20", ...more, "http://203.0.113.80:9001/");
      return `${stdout}${stderr}`;
    };
    assert.deepEqual(await Promise.all([curl(), curl("-d", "body")]), ["wan0", "wan0"]);
    const slow = await one.health();
    assert.deepEqual([slow.replays, slow.blackholes], [0, 0]);
    one.bed.wan0.break("swallow");
    assert.equal(await curl(), "wan1");
    const { replays, blackholes } = await one.health();
    assert.deepEqual([replays, blackholes], [1, 1]);
  },
);

test("uplink-proxy: a client that slowly reads queued bytes keeps its download", TIMEOUT, async (t) => {
  const one = await openUplinkBed(t, { tunnel: { idleTimeoutMs: 2000 } });
  const size = 1_500_000;
  serve(one, [9001], (socket) => socket.end(Buffer.alloc(size, "z")));
  const client = await one.client(t);
  await connectThroughProxy(client, "203.0.113.80:9001");
  client.write("x");
  await client.read("zzz");
  // Less than what the kernel has in its queues, a little at a time: nothing passes through the proxy meanwhile.
  client.socket.pause();
  const from = performance.now();
  let read = client.text.length;
  while (performance.now() - from < 8000 && !client.isClosed) {
    read += client.socket.read()?.length ?? 0;
    await new Promise((resolve) => setTimeout(resolve, 400));
  }
  client.socket.resume();
  await client.until(({ isEnded, isClosed }) => isEnded || isClosed);
  assert.equal(client.error, undefined);
  assert.ok(read > 0);
  assert.ok(client.isEnded);
  assert.equal((await one.health()).tunnelIdleClosed, 0);
});

test(
  "uplink-proxy: a dead gateway costs three destinations the tier's delay and the next ones nothing; it is counted, logged and shown",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t);
    const ports = Array.from({ length: 8 }, (_, at) => 9001 + at);
    serve(one, ports, (socket, wan) => socket.end(wan));
    one.bed.wan0.break("drop-syn");
    const tookMs: number[] = [];
    for (const port of ports) {
      const client = await one.client(t);
      const from = performance.now();
      assert.match(await connectThroughProxy(client, `203.0.113.80:${port}`), / 200 /);
      tookMs.push(performance.now() - from);
      client.socket.destroy();
    }
    for (const ms of tookMs.slice(0, 3)) assert.ok(ms >= 2900 && ms < 3000 + SLACK_MS, `${tookMs}`);
    for (const ms of tookMs.slice(3)) assert.ok(ms < 1000, `${tookMs}`);
    const health = await one.health();
    assert.deepEqual([health.failureByPort["eth0"], health.fallbackByPort["eth1"]], [3, 3]);
    assert.equal(health.ports.find(({ ifname }) => ifname === "eth0")?.hasError, true);
    assert.equal(one.log.filter((line) => /via eth1 .* 1 fallback/.test(line)).length, 3);
    assert.equal(one.log.filter((line) => line.includes("uplink failed")).length, 1);
  },
);
