import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { type TestContext, test } from "node:test";
import { promisify } from "node:util";
import { openTcp } from "#kernel/socket";
import { makeCertificates } from "#test/certificates";
import { SOURCE_NODE } from "#test/node";
import { Bed } from "#test/uplink-wan-bed";
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
  const [file, args] = bed.inside(...SOURCE_NODE, PROXY, path, secrets);
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
  /** Returns the answer of a download, and its time in milliseconds. */
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
  "uplink-proxy: each uplink's own DNS answers for it; a dead server of the cheap one costs less than 3.5 s, once",
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
    assert.ok(ms < 3900, `${ms}`);
    const [next, nextMs] = await fetch("https://another.example/");
    assert.match(next, /^wan0 /);
    assert.ok(nextMs < 600, `${nextMs}`);
    // What is known of v4.example needs nobody to be asked.
    assert.ok((await fetch("https://v4.example/"))[1] < 600);
    assert.ok(!lines.some((line) => line.includes("FAILED")));
  },
);

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
