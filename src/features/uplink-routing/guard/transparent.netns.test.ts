import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { promisify } from "node:util";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { createLogger, nullLogger } from "#base/log";
import { parseSettings } from "#features/uplink-config";
import { openNft } from "#kernel/nft";
import { listenTcp, openTcp } from "#kernel/socket";
import { SOURCE_NODE } from "#test/node";
import { Bed, SERVER4, SERVER6 } from "#test/uplink-wan-bed";
import { applyRouting, planRouting } from "../routing/index.ts";
import { readKernel } from "../state/index.ts";
import { hasTransparent, installTransparent, ownMark, removeTransparent, transparentMarks } from "./index.ts";

const run = promisify(execFile);
const PORT = 15_443;
const loopback = { 4: IpAddress.parse("127.0.0.1"), 6: IpAddress.parse("::1") } as const;

/** A node with transparent mode, and a listener of ours that says what it took. */
async function setUp(t: TestContext, rest: Readonly<Record<string, unknown>> = {}) {
  const bed = await Bed.create({ pod: true });
  t.after(() => bed[Symbol.asyncDispose]());
  bed.wan0.serveWeb();
  const nft = openNft(bed.netns);
  t.after(() => nft[Symbol.dispose]());
  const source = { version: 1, uplinks: bed.uplinkEntries, transparent: { enabled: true, ports: [80, 443], ...rest } };
  const { settings } = parseSettings(JSON.stringify(source), "test");
  const taken: string[] = [];
  for (const family of [4, 6] as const) {
    const server = createServer((socket) => {
      taken.push(`${socket.remoteAddress} -> ${socket.localAddress} ${socket.localPort}`);
      socket.on("error", (error) => assert.fail(error.message));
      socket.end("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nproxy\n");
    });
    server.listen({ fd: listenTcp(loopback[family], PORT, { netns: bed.netns, transparent: true }) });
    t.after(() => server.close());
  }
  const install = (): void => installTransparent(bed.stack, nft, settings, { log: nullLogger });
  const curl = async (...args: readonly string[]): Promise<string> => {
    const [file, all] = bed.inside("curl", "-sS", "-g", "-m", "5", ...args);
    return (await run(file, [...all])).stdout.trim();
  };
  return { bed, nft, settings, taken, install, curl };
}

for (const [family, url, own, server] of [
  [4, "http://203.0.113.80/", "192.0.2.10", SERVER4],
  [6, "http://[2001:db8:80::80]/", "2001:db8:1::10", SERVER6],
] as const) {
  test(`transparent: a connection to port 80 comes to our listener with its destination as local address (IPv${family})`, async (t) => {
    const { install, curl, taken, bed, nft, settings } = await setUp(t);
    assert.equal(await curl(url), `wan0 ${own}`);
    install();
    assert.equal(await curl(url), "proxy");
    assert.deepEqual(taken, [`${own} -> ${server} 80`]);
    assert.equal(bed.wan0.requests.length, 1, "the WAN saw the first one only");
    assert.ok(removeTransparent(bed.stack, nft, transparentMarks(settings)) > 0);
    assert.equal(await curl(url), `wan0 ${own}`);
  });

  test(`transparent: our own marked sockets go out and never come back to us, also as root (IPv${family})`, async (t) => {
    const { install, bed, settings, taken } = await setUp(t);
    install();
    const source = IpAddress.parse(own);
    const fd = openTcp(family, { netns: bed.netns, source, mark: ownMark(settings.transparent) });
    const socket = new Socket({ fd });
    socket.connect({ host: server.toString(), port: 80 });
    socket.write(`GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`);
    let answer = "";
    socket.setEncoding("utf8").on("data", (text: string) => {
      answer += text;
    });
    await once(socket, "close");
    assert.match(answer, new RegExp(`wan0 ${own}`));
    assert.deepEqual(taken, []);
  });
}

test("transparent: where IPv6 is switched off IPv4 is taken all the same", async (t) => {
  const { install, bed, nft, settings, curl } = await setUp(t);
  for (const name of ["all", "lo"]) bed.stack.sysctl.set(`net.ipv6.conf.${name}.disable_ipv6`, 1);
  install();
  assert.ok(hasTransparent(bed.stack, nft, settings));
  assert.equal(await curl("http://203.0.113.80/"), "proxy");
  assert.equal(removeTransparent(bed.stack, nft, transparentMarks(settings)), 3);
});

test("transparent: strict rp_filter drops neither redirected connections nor those bound to an uplink", async (t) => {
  const { install, bed, settings, curl, taken } = await setUp(t);
  bed.wan1.serveWeb();
  for (const name of ["all", "eth0", "eth1", "lo"]) bed.stack.sysctl.set(`net.ipv4.conf.${name}.rp_filter`, 1);
  applyRouting(bed.stack, planRouting(settings, readKernel(bed.stack)).changes);
  assert.equal(await curl("--interface", "198.51.100.10", "http://203.0.113.80/"), "wan1 198.51.100.10");
  assert.equal(await curl("-6", "--interface", "2001:db8:2::10", "http://[2001:db8:80::80]/"), "wan1 2001:db8:2::10");
  install();
  assert.equal(await curl("http://203.0.113.80/"), "proxy");
  assert.equal(await curl("http://[2001:db8:80::80]/"), "proxy");
  assert.equal(taken.length, 2);
});

test("transparent: connections that were open before go on, whatever they send afterwards", async (t) => {
  const { install, bed, taken } = await setUp(t);
  const socket = new Socket({ fd: openTcp(4, { netns: bed.netns, source: IpAddress.parse("192.0.2.10") }) });
  t.after(() => socket.destroy());
  socket.connect({ host: SERVER4.toString(), port: 80 });
  await once(socket, "connect");
  install();
  socket.write("GET /late HTTP/1.1\r\nhost: x\r\n\r\n");
  const [answer] = (await once(socket, "data")) as [Buffer];
  assert.match(answer.toString(), /wan0 192\.0\.2\.10/);
  assert.deepEqual(taken, []);
});

test("transparent: other ports, this host, the bypass set, pods and skipped users are left alone", async (t) => {
  const { install, bed, taken, curl } = await setUp(t, { skipUids: [4242] });
  install();
  const other = createServer((socket) => void socket.end("other\n"));
  bed.wan0.listen(other, 8080);
  assert.equal(
    (
      await run("timeout", [
        "5",
        "nsenter",
        ...bed.inside("bash", "-c", "exec 3<>/dev/tcp/203.0.113.80/8080; cat <&3")[1],
      ])
    ).stdout,
    "other\n",
  );
  const local = createServer((socket) => void socket.end("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nlocal"));
  local.listen({ fd: listenTcp(IpAddress.parse("192.0.2.10"), 80, { netns: bed.netns }) });
  t.after(() => local.close());
  assert.equal(await curl("http://192.0.2.10/"), "local");
  const pod = createServer((socket) => void socket.end("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\npod"));
  assert.ok(bed.pod !== undefined);
  pod.listen({ fd: listenTcp(IpAddress.parse("10.42.0.2"), 80, { netns: bed.pod }) });
  t.after(() => pod.close());
  assert.equal(await curl("http://10.42.0.2/"), "pod");
  const [file, args] = bed.inside(
    "setpriv",
    "--reuid=4242",
    "--clear-groups",
    "curl",
    "-sS",
    "-m",
    "5",
    "http://203.0.113.80/",
  );
  assert.equal((await run(file, [...args])).stdout.trim(), "wan0 192.0.2.10");
  assert.deepEqual(taken, []);
});

test("transparent: a cgroup that cannot be matched is logged and does not stop the rest", async (t) => {
  const { bed, nft, settings, curl } = await setUp(t, { skipCgroups: ["isthmus/no-such.scope"] });
  const lines: string[] = [];
  const log = createLogger({ name: "test", write: (line) => void lines.push(JSON.parse(line).cgroup) });
  installTransparent(bed.stack, nft, settings, { log });
  assert.deepEqual(lines, ["isthmus/no-such.scope"]);
  assert.equal(await curl("http://203.0.113.80/"), "proxy");
});

test("transparent: installing twice leaves one of everything; removing without it being there is no error", async (t) => {
  const { install, bed, nft, settings } = await setUp(t);
  const everything = (): string =>
    ["rule", "-6 rule", "route show table all", "-6 route show table all"]
      .map((args) => bed.run("ip", ...args.split(" ")))
      .join() + (nft.print({ family: "inet", name: "uplink_proxy" }) ?? "");
  const marks = transparentMarks(settings);
  const before = everything();
  install();
  const after = everything();
  install();
  assert.equal(everything(), after);
  assert.ok(hasTransparent(bed.stack, nft, settings));
  assert.equal(removeTransparent(bed.stack, nft, marks), 5);
  assert.equal(removeTransparent(bed.stack, nft, marks), 0);
  assert.ok(!hasTransparent(bed.stack, nft, settings));
  assert.equal(everything(), before);
});

test("transparent: a watchdog in a process of its own takes the redirection away when the proxy is killed, and when it hangs", async (t) => {
  const { install, bed, nft, settings, curl } = await setUp(t);
  const marks = transparentMarks(settings);
  const script = `
    import { openKernel } from "#kernel/net"; import { nullLogger } from "#base/log";
import { openNft } from "#kernel/nft"; import { systemClock } from "#base/clock";
    import { removeTransparent, runTransparentWatchdog } from ${JSON.stringify(new URL("./index.ts", import.meta.url).href)};
    const kernel = openKernel(); const netns = kernel.openNetNs("own"); const stack = kernel.openStack(netns); const nft = openNft(netns);
    process.stdout.write("ready");
    await runTransparentWatchdog({ input: process.stdin, clock: systemClock, log: nullLogger,
      remove: () => removeTransparent(stack, nft, ${JSON.stringify(marks)}) });
    process.exit(0);`;
  const start = async () => {
    const [file, args] = bed.inside(...SOURCE_NODE, "--input-type=module", "-e", script);
    const child = spawn(file, args, {
      stdio: ["pipe", "pipe", "inherit"],
      cwd: new URL("../../../..", import.meta.url).pathname,
    });
    t.after(() => child.kill("SIGKILL"));
    await once(child.stdout, "data");
    return child;
  };
  const restored = async (): Promise<number> => {
    const since = systemClock.monotonic();
    await poll(() => hasTransparent(bed.stack, nft, settings), {
      until: (there) => !there,
      everyMs: 10,
      deadlineMs: 5000,
      clock: systemClock,
    });
    return systemClock.monotonic() - since;
  };
  // The pipe ends with the process that holds its other end, however it ends.
  const first = await start();
  install();
  first.stdin.end();
  assert.ok((await restored()) < 2000);
  await once(first, "exit");
  assert.equal(await curl("http://203.0.113.80/"), "wan0 192.0.2.10");
  // The pipe is open and nothing comes.
  const second = await start();
  install();
  second.stdin.write("b");
  assert.ok((await restored()) < 2000);
  // It takes it away again after it was put back, and not after the proxy has disarmed it.
  install();
  assert.ok((await restored()) < 2000);
  // The proxy runs again, so the watchdog does not remove what is installed before it reads that it is disarmed.
  const beats = setInterval(() => second.stdin.write("b"), 50);
  t.after(() => clearInterval(beats));
  await setTimeout(500);
  install();
  clearInterval(beats);
  second.stdin.write("q");
  await once(second, "exit");
  assert.ok(hasTransparent(bed.stack, nft, settings));
});

test("transparent: rule and route of a release with protocol 186 are adopted, and a removal leaves none", async (t) => {
  const { bed, nft, settings, install } = await setUp(t);
  const old = { ...settings, routing: { ...settings.routing, routeProtocol: 186 } };
  const left = (): string =>
    ["-4", "-6"]
      .map((family) => bed.run("ip", family, "rule") + bed.run("ip", family, "route", "show", "table", "all"))
      .join("");
  const before = left();
  const options = { log: nullLogger };
  installTransparent(bed.stack, nft, old, options);
  assert.equal(hasTransparent(bed.stack, nft, settings), false);
  install();
  assert.equal(hasTransparent(bed.stack, nft, settings), true);
  assert.doesNotMatch(left(), /lookup 499 proto bgp|table 499 proto bgp/);
  removeTransparent(bed.stack, nft, transparentMarks(settings));
  assert.equal(left(), before);
  installTransparent(bed.stack, nft, old, options);
  removeTransparent(bed.stack, nft, transparentMarks(settings));
  assert.equal(left(), before);
});
