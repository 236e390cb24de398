import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { type TestContext, test } from "node:test";
import { promisify } from "node:util";
import { openTcp } from "#kernel/socket";
import { makeCertificates } from "#test/certificates";
import { Bed, SERVER4, SERVER6 } from "#test/uplink-wan-bed";
import { TestClient } from "../testing/proxy-fixtures.ts";

const run = promisify(execFile);
const TIMEOUT = { timeout: 60_000 };
const PROXY = new URL("../../../../test/support/uplink-proxy-process.ts", import.meta.url).pathname;
const WEB4 = "https://203.0.113.80/";
const tls = makeCertificates("wan", { server: ["203.0.113.80", "registry.example"] }).pairs.server;

/** The test bed with a proxy in the node; `lines` has what it logged. */
async function setUp(t: TestContext, rest: Readonly<Record<string, unknown>> = {}) {
  const bed = await Bed.create({ pod: true });
  const folder = mkdtempSync(join(tmpdir(), "isthmus-proxy-"));
  const path = join(folder, "uplinks.json");
  const secrets = join(folder, "secrets");
  writeFileSync(
    path,
    JSON.stringify({
      version: 1,
      maxCost: 1,
      uplinks: bed.uplinkEntries,
      limits: { drainMs: 100, podConnectsPerSecond: 1000 },
      ...rest,
    }),
  );
  for (const wan of [bed.wan0, bed.wan1]) wan.serveWeb(tls);
  const [file, args] = bed.inside(process.execPath, PROXY, path, secrets);
  const proxy = spawn(file, args, { stdio: ["ignore", "pipe", "pipe"] });
  const lines: string[] = [];
  createInterface({ input: proxy.stderr }).on("line", (line) => lines.push(line));
  const exited = once(proxy, "exit");
  t.after(async () => {
    proxy.kill("SIGTERM");
    const cut = setTimeout(() => proxy.kill("SIGKILL"), 5000);
    await exited;
    clearTimeout(cut);
    await bed[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true });
    if (process.env["ISTHMUS_SHOW_LOGS"] !== undefined) process.stderr.write(`${lines.join("\n")}\n`);
  });
  await Promise.race([once(proxy.stdout, "data"), exited.then(() => assert.fail(lines.join("\n")))]);
  const inside = async (...command: readonly [string, ...string[]]): Promise<string> => {
    const [program, all] = bed.inside(...command);
    return (await run(program, [...all])).stdout;
  };
  /** What a download says, and how long it took. */
  const fetch = async (url: string, ...more: readonly string[]): Promise<readonly [answer: string, ms: number]> => {
    const from = performance.now();
    const answer = await inside("curl", "-sSgk", "-m", "20", "--proxy", "http://127.0.0.1:5443", "-p", ...more, url);
    return [answer.trim(), performance.now() - from];
  };
  const health = async (): Promise<Record<string, unknown>> =>
    JSON.parse(await inside("curl", "-sS", "http://127.0.0.1:5443/healthz")) as Record<string, unknown>;
  const connectFrom = async (netns: { readonly fd: number } | undefined, host: string): Promise<TestClient> => {
    const socket = new Socket({ fd: openTcp(4, { netns }), allowHalfOpen: true });
    t.after(() => socket.destroy());
    socket.connect({ host, port: 5443 });
    await once(socket, "connect");
    return new TestClient(socket);
  };
  /** A client in the node that is connected to the proxy. */
  const client = (): Promise<TestClient> => connectFrom(bed.netns, "127.0.0.1");
  /** A pod's client at the anchor. */
  const podClient = (): Promise<TestClient> => connectFrom(bed.pod, "169.254.100.1");
  const token = (): string => readFileSync(join(secrets, "token"), "utf8").trim();
  return { bed, lines, fetch, health, inside, client, podClient, token };
}

test(
  "uplink-proxy: a healthy cheap uplink carries everything, the other one nothing, and the log agrees",
  TIMEOUT,
  async (t) => {
    const { bed, fetch, lines, health } = await setUp(t);
    const before = bed.wan1.packets;
    for (let at = 0; at < 5; at += 1) assert.equal((await fetch(WEB4))[0], "wan0 192.0.2.10");
    assert.equal(bed.wan1.packets, before);
    const connects = lines.filter((line) => line.includes("mgmtproxy: CONNECT 203.0.113.80:443 from 127.0.0.1:"));
    assert.equal(connects.length, 5);
    assert.match(connects[0] ?? "", /via eth0 src 192\.0\.2\.10 cost 0 \(dial \d+ms, 0 fallback\(s\)\)/);
    const { successByPort, failureByPort, requests } = await health();
    assert.deepEqual([successByPort, failureByPort, requests], [{ eth0: 5 }, {}, 5]);
  },
);

test(
  "uplink-proxy: a gateway that drops SYNs costs one request the tier's delay and the next ones nothing",
  TIMEOUT,
  async (t) => {
    const { bed, fetch, inside } = await setUp(t);
    const routes = await inside("ip", "route");
    bed.wan0.break("drop-syn");
    const [first, firstMs] = await fetch(WEB4);
    assert.equal(first, "wan1 198.51.100.10");
    assert.ok(firstMs < 2500 + 400, `${firstMs}`);
    const [second, secondMs] = await fetch(WEB4);
    assert.equal(second, "wan1 198.51.100.10");
    assert.ok(secondMs < 450, `${secondMs}`);
    assert.equal(await inside("ip", "route"), routes);
  },
);

test(
  "uplink-proxy: with maximum cost 0 and the cheap uplink dead not one packet takes the dear one",
  TIMEOUT,
  async (t) => {
    const { bed, client } = await setUp(t, { maxCost: 0, dialTimeoutMs: 1500 });
    bed.wan0.break("silent");
    const before = bed.wan1.packets;
    const asking = await client();
    asking.write("CONNECT 203.0.113.80:443 HTTP/1.1\r\n\r\n");
    const answer = await asking.read("timeout\n");
    assert.match(answer, /^HTTP\/1\.1 502 .*X-Uplink-Reason: timeout\r\n/s);
    assert.match(answer, /failed; eth0\/192\.0\.2\.10\(cost=0\): i\/o timeout\n$/);
    const named = await client();
    named.write("CONNECT registry.example:443 HTTP/1.1\r\n\r\n");
    assert.match(await named.read("failed; "), /X-Uplink-Reason: (dns|timeout)\r\n/);
    // What the unbound fallback to the system's resolver sends is the main table's matter, which prefers eth0.
    assert.equal(bed.wan1.packets, before);
  },
);

test(
  "uplink-proxy: a cheap uplink that is a blackhole: the download finishes over the other one, unnoticed",
  TIMEOUT,
  async (t) => {
    const { bed, fetch, health } = await setUp(t);
    bed.wan0.break("swallow");
    const [first, firstMs] = await fetch(WEB4);
    assert.equal(first, "wan1 198.51.100.10");
    assert.ok(firstMs > 4500 && firstMs < 6500, `${firstMs}`);
    assert.deepEqual(bed.wan1.requests, ["198.51.100.10 GET /"]);
    const [second, secondMs] = await fetch(WEB4);
    assert.equal(second, "wan1 198.51.100.10");
    assert.ok(secondMs < 450, `${secondMs}`);
    const { replays, blackholes, penalties } = await health();
    assert.deepEqual([replays, blackholes], [1, 1]);
    assert.deepEqual(
      (penalties as { uplink: string }[]).map(({ uplink }) => uplink),
      ["eth0"],
    );
  },
);

test(
  "uplink-proxy: bytes without TLS are not sent twice: the tunnel is reset, and the next try takes the other uplink",
  TIMEOUT,
  async (t) => {
    const { bed, client } = await setUp(t);
    bed.wan0.break("swallow");
    const first = await client();
    first.write("CONNECT 203.0.113.80:80 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n");
    await first.until(({ isClosed }) => isClosed);
    assert.equal(first.error?.code, "ECONNRESET");
    assert.deepEqual(bed.wan1.requests, []);
    const second = await client();
    second.write("CONNECT 203.0.113.80:80 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n");
    await second.read("wan1 198.51.100.10");
  },
);

test(
  "uplink-proxy: answers that stop in the middle end the tunnel, and the next try takes the other uplink",
  TIMEOUT,
  async (t) => {
    const { bed, client } = await setUp(t, { tunnel: { idleTimeoutMs: 2000 } });
    for (const wan of [bed.wan0, bed.wan1]) {
      wan.listen(
        createServer((socket) => {
          socket.on("error", () => socket.destroy());
          socket.once("data", () => socket.end(`${wan.name} ${"z".repeat(300_000)} end`));
        }),
        443 + 5000,
        SERVER4,
      );
    }
    bed.wan0.break("drop-after");
    const download = async (): Promise<TestClient> => {
      const asking = await client();
      asking.write("CONNECT 203.0.113.80:5443 HTTP/1.1\r\n\r\nx");
      await asking.until(({ isEnded, isClosed, text }) => isEnded || isClosed || text.endsWith(" end"));
      return asking;
    };
    const from = performance.now();
    const broken = await download();
    assert.ok(!broken.text.endsWith(" end") && broken.text.includes("wan0"));
    assert.ok(performance.now() - from < 5000);
    const whole = await download();
    assert.ok(whole.text.endsWith(" end") && whole.text.includes("wan1"));
  },
);

test(
  "uplink-proxy: each uplink's own DNS answers for it; a dead server of the cheap one costs less than 2.5 s, once",
  TIMEOUT,
  async (t) => {
    const { bed, fetch, lines } = await setUp(t);
    assert.match((await fetch("https://v4.example/"))[0], /^wan0 192\.0\.2\.10/);
    assert.match((await fetch("https://registry.example/"))[0], /^wan0 2001:db8:1::10/);
    assert.deepEqual(bed.wan1.dns.questions, []);
    bed.wan0.dns.zone = { ...bed.wan0.dns.zone, "other.example": ["203.0.113.80"] };
    bed.wan1.dns.zone = { ...bed.wan0.dns.zone, "another.example": ["203.0.113.80"] };
    bed.wan0.dns.mute = true;
    const [answer, ms] = await fetch("https://other.example/");
    assert.match(answer, /^wan0 /);
    assert.ok(ms < 2900, `${ms}`);
    const [next, nextMs] = await fetch("https://another.example/");
    assert.match(next, /^wan0 /);
    assert.ok(nextMs < 600, `${nextMs}`);
    // What is known of v4.example needs nobody to be asked.
    assert.ok((await fetch("https://v4.example/"))[1] < 600);
    assert.ok(!lines.some((line) => line.includes("FAILED")));
  },
);

test("uplink-proxy: IPv6 destinations, and a broken IPv6 path beside a good IPv4 one", TIMEOUT, async (t) => {
  const { bed, fetch } = await setUp(t);
  assert.equal((await fetch(`https://[${SERVER6}]/`))[0], "wan0 2001:db8:1::10");
  bed.wan0.break("drop-syn");
  assert.equal((await fetch(`https://[${SERVER6}]/`))[0], "wan1 2001:db8:2::10");
});

test(
  "uplink-proxy: when the address of an uplink is gone its tunnels end at once, and new ones take the other",
  TIMEOUT,
  async (t) => {
    const { client, fetch, inside } = await setUp(t);
    const held = await client();
    held.write("CONNECT 203.0.113.80:80 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n");
    await held.read("wan0 192.0.2.10");
    const from = performance.now();
    await inside("ip", "address", "del", "192.0.2.10/24", "dev", "eth0");
    await held.until(({ isClosed }) => isClosed);
    assert.ok(performance.now() - from < 1500);
    assert.equal((await fetch(WEB4))[0], "wan1 198.51.100.10");
  },
);

test(
  "uplink-proxy: transparent mode: a plain download fails over, and our own sockets do not loop",
  TIMEOUT,
  async (t) => {
    const { bed, inside, lines } = await setUp(t, { transparent: { enabled: true, ports: [80, 443] } });
    const plain = (): Promise<string> => inside("curl", "-sSk", "-m", "20", WEB4);
    assert.equal((await plain()).trim(), "wan0 192.0.2.10");
    bed.wan0.break("drop-syn");
    assert.equal((await plain()).trim(), "wan1 198.51.100.10");
    bed.wan0.break("swallow");
    assert.ok(lines.some((line) => line.includes("via eth1")));
  },
);

test(
  "uplink-proxy: a pod gets out with its token, to nowhere that it must not reach, however it is written",
  TIMEOUT,
  async (t) => {
    const pods = { name: "pods", role: "pod", address: "169.254.100.1", port: 5443, interface: "cni0", auth: "token" };
    const host = { name: "host", role: "host", address: "127.0.0.1", port: 5443 };
    const { bed, podClient, token, health } = await setUp(t, {
      listeners: [host, { ...pods, assignAddress: true, tls: "optional" }],
    });
    // Names that lead inside; one of them only with its second address.
    const inward = { "rebind.example": ["203.0.113.80", "127.0.0.1"], "inside.example": ["10.43.0.1"] };
    for (const wan of [bed.wan0, bed.wan1]) wan.dns.zone = { ...wan.dns.zone, ...inward };
    const ask = async (target: string, fields = ""): Promise<string> => {
      const asking = await podClient();
      asking.write(`CONNECT ${target} HTTP/1.1\r\n${fields}\r\n`);
      await asking.read("\r\n\r\n");
      asking.socket.destroy();
      return asking.text;
    };
    const auth = `Proxy-Authorization: Basic ${Buffer.from(`cdi:${token()}`).toString("base64")}\r\n`;
    assert.match(await ask("203.0.113.80:443"), /^HTTP\/1\.1 407 /);
    for (const target of ["203.0.113.80:443", "registry.example:443"])
      assert.match(await ask(target, auth), /^HTTP\/1\.1 200 /);
    const forbidden = [
      ...[
        "127.0.0.1",
        "0.0.0.0",
        "169.254.169.254",
        "169.254.100.1",
        "192.0.2.10",
        "198.51.100.10",
        "10.42.0.1",
        "10.42.0.2",
        "10.43.0.1",
      ],
      ...[
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:10.43.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[2001:db8:1::10]",
      ],
    ];
    for (const address of forbidden) assert.match(await ask(`${address}:443`, auth), /^HTTP\/1\.1 403 /, address);
    assert.match(await ask("203.0.113.80:5443", auth), /^HTTP\/1\.1 403 /);
    for (const number of ["2130706433:443", "0x7f.1:443", "0177.0.0.1:443", "127.1:443"]) {
      assert.match(await ask(number, auth), /^HTTP\/1\.1 400 /, number);
    }
    for (const name of ["localhost", "rebind.example", "inside.example"]) {
      const answer = await ask(`${name}:443`, auth);
      assert.match(answer, /^HTTP\/1\.1 403 /, name);
      assert.ok(!answer.includes("127.0.0.1") && !answer.includes("10.43"));
    }
    const asking = await podClient();
    asking.write("GET /healthz HTTP/1.1\r\n\r\n");
    assert.match(await asking.read("\r\n\r\n"), /^HTTP\/1\.1 404 /);
    const { cni0Listening, successByPort, failureByPort } = await health();
    // Beside the two that were allowed nothing was dialled.
    assert.deepEqual([cni0Listening, successByPort, failureByPort], [true, { eth0: 2 }, {}]);
  },
);

test(
  "uplink-proxy: of two threads one learns that an uplink is dead, and neither waits for it again",
  TIMEOUT,
  async (t) => {
    const { bed, fetch, health } = await setUp(t, { workers: 2 });
    bed.wan0.break("drop-syn");
    assert.equal((await fetch(WEB4))[0], "wan1 198.51.100.10");
    for (let at = 0; at < 12; at += 1) {
      const [answer, ms] = await fetch(WEB4);
      assert.equal(answer, "wan1 198.51.100.10");
      assert.ok(ms < 700, `${ms}`);
    }
    // The other thread tells what it has counted in batches.
    let counted = await health();
    while (counted["requests"] !== 13) counted = await health();
    assert.deepEqual(counted["successByPort"], { eth1: 13 });
  },
);

test("uplink-proxy: a half-close and a reset pass through unchanged", TIMEOUT, async (t) => {
  const { bed, client, health } = await setUp(t, {});
  const ends: string[] = [];
  bed.wan0.listen(
    createServer({ allowHalfOpen: true }, (socket) => {
      socket.on("error", (error: NodeJS.ErrnoException) => ends.push(error.code ?? ""));
      socket.on("data", (chunk) => ends.push(chunk.toString()));
      socket.on("end", () => {
        ends.push("end");
        socket.end("after the end");
      });
    }),
    7000,
  );
  const half = await client();
  half.write("CONNECT 203.0.113.80:7000 HTTP/1.1\r\n\r\nhalf");
  await half.read("200");
  half.socket.end();
  await half.until(({ isEnded }) => isEnded);
  assert.match(half.text, /after the end$/);
  const reset = await client();
  reset.write("CONNECT 203.0.113.80:7000 HTTP/1.1\r\n\r\nreset");
  await reset.read("200");
  while (!ends.includes("reset")) await new Promise((resolve) => setImmediate(resolve));
  const from = performance.now();
  reset.socket.resetAndDestroy();
  while (!ends.includes("ECONNRESET")) await new Promise((resolve) => setImmediate(resolve));
  assert.ok(performance.now() - from < 300);
  assert.deepEqual(ends, ["half", "end", "reset", "ECONNRESET"]);
  assert.equal((await health())["activeTunnels"], 0);
});
