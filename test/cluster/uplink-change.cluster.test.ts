import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";
import { start, until } from "#test/lab";
import { connectThroughProxy, openUplinkBed, SERVER4, WEB4 } from "#test/uplink-bed";

const TIMEOUT = { timeout: 60_000 };
const HTTP = "203.0.113.80:80";
/** Kills in a row. */
const KILLS = 8;

test(
  "uplink-proxy: an address that goes takes its rule and its tunnels with it; a new one has both at once",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, {}, { start: false });
    // The kernel is the truth here: what is assigned counts.
    one.configure({ uplinks: one.bed.uplinkEntries.map((entry) => ({ ...entry, mode: "observe" })) });
    await one.start();
    const rules = async (): Promise<string> => (await one.run("ip", "rule")).stdout;
    await until("the address has its rule", async () => (await rules()).includes("from 192.0.2.10 lookup"));
    const held = await one.client(t);
    await connectThroughProxy(held, HTTP);
    held.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    await held.read("wan0 192.0.2.10");
    await one.run("ip", "address", "del", "192.0.2.10/24", "dev", "eth0");
    await one.run("ip", "address", "add", "192.0.2.11/24", "dev", "eth0");
    // The default route went with its source; a DHCP client would set it again.
    await one.run("ip", "route", "replace", "default", "via", "192.0.2.1", "metric", "5000");
    const from = performance.now();
    await held.until(({ isClosed }) => isClosed);
    await until("rules follow", async () => {
      const text = await rules();
      return !text.includes("from 192.0.2.10 ") && text.includes("from 192.0.2.11 lookup");
    });
    assert.ok(performance.now() - from < 2500, `${performance.now() - from} ms`);
    await until("downloads come from the new address", async () => (await one.fetch(WEB4))[0] === "wan0 192.0.2.11");
  },
);

test(
  "uplink-proxy: a link that goes down and up, and one that is made anew, have their tables back within a second or so",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t);
    const routes = async (table: number): Promise<string> =>
      (await one.run("ip", "route", "show", "table", `${table}`, "proto", "157")).stdout;
    const tableOf = async (name: string): Promise<number> =>
      (await one.health()).uplinks.find((uplink) => uplink.name === name)?.table ?? 0;
    const table = await tableOf("eth1");
    const before = await routes(table);
    assert.match(before, /default via 198\.51\.100\.1 /);
    await one.run("ip", "link", "set", "eth1", "down");
    await until("the kernel has emptied the table", async () => !(await routes(table)).includes("default via"));
    await one.run("ip", "link", "set", "eth1", "up");
    const from = performance.now();
    await until("the table is as before", async () => (await routes(table)) === before, { everyMs: 20 });
    assert.ok(performance.now() - from < 2500, `${performance.now() - from} ms`);
    // Another modem at the same port: a new index, and so another table.
    const { address4 } = one.bed.uplinks[1];
    await one.run("ip", "link", "del", "eth1");
    await one.run("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "up2");
    await one.run("ip", "address", "add", `${address4}/24`, "dev", "eth1");
    for (const name of ["up2", "eth1"]) await one.run("ip", "link", "set", name, "up");
    await until("it has a table of its own", async () => {
      const now = await tableOf("eth1");
      return now !== 0 && now !== table && (await routes(now)) === before;
    });
    assert.equal(await routes(table), "");
  },
);

test(
  "uplink-proxy: a port that is in use at the start is bound when it is free, without a restart, and the log says both",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, {}, { start: false });
    const [file, args] = one.bed.inside(
      process.execPath,
      "-e",
      'require("net").createServer().listen(5443, "127.0.0.1", () => console.log("taken"))',
    );
    const other = spawn(file, args, { stdio: ["ignore", "pipe", "inherit"] });
    t.after(() => other.kill("SIGKILL"));
    await once(other.stdout, "data");
    one.launch();
    const says = (text: string): boolean => one.log.some((line) => line.includes(text));
    await until("it says so", () => says("mgmtproxy: listen 127.0.0.1:5443 failed (will retry): "));
    other.kill("SIGKILL");
    await until("it listens", () => says("mgmtproxy: listening on 127.0.0.1:5443"), { deadlineMs: 10_000 });
    assert.equal((await one.fetch(WEB4))[0], "wan0 192.0.2.10");
  },
);

test(
  "uplink-proxy: a wrong file changes nothing and is reported; a right one is applied without a restart",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t);
    const { pid } = one;
    one.writeSettings('{"version":1,"maxCost":"free","nonsense":true}');
    await until("healthz tells of it", async () => (await one.health()).configError !== undefined);
    const { configError } = await one.health();
    assert.match(configError ?? "", /maxCost/);
    assert.match(configError ?? "", /nonsense/);
    assert.equal((await one.fetch(WEB4))[0], "wan0 192.0.2.10");
    // Costs the other way round: what is cheap now carries the next download.
    const [first, second] = one.bed.uplinkEntries;
    one.configure({
      uplinks: [
        { ...first, cost: 1 },
        { ...second, cost: 0 },
      ],
    });
    one.signal("SIGHUP");
    const costs = async (): Promise<unknown[]> => (await one.health()).ports.map(({ cost }) => cost);
    await until("the new costs are in force", async () => (await costs()).join() === "1,0");
    assert.equal((await one.health()).configError, undefined);
    assert.equal((await one.fetch(WEB4))[0], "wan1 198.51.100.10");
    assert.equal(one.pid, pid);
  },
);

test(
  "uplink-proxy: killed again and again at any moment, it leaves rules, tables and firewall as they were, and foreign objects alone",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, {}, { pod: true });
    const foreign = [
      ["ip", "rule", "add", "from", "10.9.9.9", "lookup", "900", "priority", "15000"],
      ["ip", "route", "add", "192.0.2.77/32", "dev", "eth0", "table", "900"],
      ["ip", "-6", "rule", "add", "from", "2001:db8:9::9", "lookup", "900", "priority", "15000"],
      ["nft", "add", "table", "inet", "somebody"],
    ] as const;
    for (const [command, ...words] of foreign)
      assert.equal((await one.run(command, ...words)).code, 0, words.join(" "));
    await until("it has settled", async () => {
      const first = await one.kernelState();
      return first.includes("lookup 50") && first === (await one.kernelState());
    });
    const before = await one.kernelState();
    assert.match(before, /10\.9\.9\.9 lookup 900/);
    for (let at = 0; at < KILLS; at += 1) {
      // Some while it works, some while it starts.
      if (at % 2 === 0) await one.fetch(WEB4);
      else await until("it has begun", () => one.log.some((line) => line !== ""));
      await one.stop("SIGKILL");
      one.launch();
    }
    await one.stop("SIGKILL");
    assert.equal(await one.kernelState(), before, "what a kill leaves");
    await one.start();
    assert.equal(await one.kernelState(), before, "what the next start finds and keeps");
    assert.equal((await one.fetch(WEB4))[0], "wan0 192.0.2.10");
    await one.stop();
    // A flush takes what is ours and nothing else.
    const [file, args] = one.bed.inside(one.program, "uplink-proxy", "--flush", `--config=${one.settings}`);
    const flushed = await start([file, ...args]).ended;
    assert.equal(flushed.code, 0, flushed.stderr);
    const after = await one.kernelState();
    assert.doesNotMatch(after, /lookup 50\d|proto 1(57|86)|5443/);
    for (const kept of ["10.9.9.9 lookup 900", "2001:db8:9::9 lookup 900", "table inet somebody"])
      assert.ok(after.includes(kept), `${kept} is still there:\n${after}`);
    assert.match((await one.run("ip", "route", "show", "table", "900")).stdout, /192\.0\.2\.77/);
  },
);

test(
  "uplink-proxy: an uplink that a reload takes away takes its tunnels with it at once, and none of its packets leaves by another; so does a link that goes down",
  TIMEOUT,
  async (t) => {
    const tunnel = { linkGraceMs: 300 };
    const one = await openUplinkBed(t, {}, { start: false });
    // The main table leads over eth0, the cheap uplink is eth1: what loses its rule would leave by eth0.
    const [first, second] = one.bed.uplinkEntries;
    const dear = { ...first, cost: 1 };
    one.configure({ tunnel, uplinks: [dear, second && { ...second, cost: 0 }] });
    await one.start();
    const count = "add table inet seen; add chain inet seen out { type filter hook postrouting priority 0; }; ";
    const rule = "add rule inet seen out oifname eth0 ip saddr 198.51.100.10 counter";
    assert.equal((await one.run("nft", count + rule)).code, 0);
    const busy = async () => {
      const client = await one.client(t);
      await connectThroughProxy(client, "203.0.113.80:9001");
      client.write("x");
      await client.read("more");
      return client;
    };
    for (const wan of [one.bed.wan0, one.bed.wan1]) {
      const server = createServer((socket) => {
        const timer = setInterval(() => socket.write("more"), 5);
        socket.on("error", () => socket.destroy());
        socket.on("close", () => clearInterval(timer));
        socket.resume();
      });
      wan.listen(server, 9001, SERVER4);
    }
    const held = await Promise.all([busy(), busy(), busy()]);
    one.configure({ tunnel, uplinks: [dear] });
    one.signal("SIGHUP");
    const from = performance.now();
    await Promise.all(held.map((client) => client.until(({ isClosed }) => isClosed)));
    assert.ok(performance.now() - from < 1500, `${performance.now() - from} ms`);
    await until("its rule is gone", async () => !(await one.run("ip", "rule")).stdout.includes("198.51.100.10"));
    assert.match((await one.fetch(WEB4))[0], /^wan0 /);
    assert.match((await one.run("nft", "list", "table", "inet", "seen")).stdout, /counter packets 0 /);
    // And a link that goes down, whose address stays where it is.
    const last = await busy();
    await one.run("ip", "link", "set", "eth0", "down");
    const downAt = performance.now();
    await last.until(({ isClosed }) => isClosed);
    assert.ok(performance.now() - downAt < 1500, `${performance.now() - downAt} ms`);
  },
);

test(
  "uplink-proxy: downloads survive a loss of the carrier that is shorter than the grace, as plain connections do; new ones take the other uplink meanwhile, and a longer loss ends them",
  TIMEOUT,
  async (t) => {
    const one = await openUplinkBed(t, { tunnel: { linkGraceMs: 3000 } });
    const { wan0 } = one.bed;
    const server = createServer((socket) => {
      let sent = 0;
      const timer = setInterval(() => {
        sent += 1;
        socket.write(`${sent} `);
      }, 20);
      socket.on("error", () => socket.destroy());
      socket.on("close", () => clearInterval(timer));
      socket.resume();
    });
    wan0.listen(server, 9001, SERVER4);
    const client = await one.client(t);
    await connectThroughProxy(client, "203.0.113.80:9001");
    client.write("x");
    await client.read("10 ");
    const carrier = (up: boolean): void =>
      wan0.stack.links.set(wan0.stack.links.get({ name: "up" })?.index ?? 0, { up });
    carrier(false);
    const downAt = performance.now();
    await until("the uplink is down", async () => (await one.health()).ports[0]?.hasError === true, { everyMs: 20 });
    assert.match((await one.fetch(WEB4))[0], /^wan1 /);
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, 1000 - (performance.now() - downAt))));
    carrier(true);
    const seen = client.text.length;
    await client.until(({ text, isClosed }) => text.length > seen + 500 || isClosed);
    assert.deepEqual([client.isClosed, client.isEnded], [false, false]);
    // Nothing is missing.
    const numbers = client.text
      .slice(client.text.indexOf("\r\n\r\n") + 4)
      .trim()
      .split(" ")
      .map(Number);
    assert.deepEqual(
      numbers.slice(0, -1),
      numbers.slice(0, -1).map((_, at) => at + 1),
    );
    carrier(false);
    const lostAt = performance.now();
    await client.until(({ isClosed }) => isClosed);
    const tookMs = performance.now() - lostAt;
    assert.equal(client.error?.code, "ECONNRESET");
    assert.ok(tookMs >= 2900 && tookMs < 3000 + 1500, `${tookMs}`);
  },
);

test("uplink-proxy: /readyz shows each part as it is, and 503 while one is degraded", TIMEOUT, async (t) => {
  const one = await openUplinkBed(t, {}, { start: false });
  const entries = one.bed.uplinkEntries;
  one.configure({ maxCost: 0, uplinks: entries });
  await one.start();
  const ready = async (): Promise<string> =>
    (await one.run("curl", "-s", "-o", "-", "-w", "%{http_code}", "http://127.0.0.1:5443/readyz?verbose")).stdout;
  const says = (what: string, wanted: RegExp): Promise<unknown> =>
    until(what, async () => wanted.test(await ready()), { deadlineMs: 10_000, seen: () => one.log.join("\n") });
  await says(
    "all is well",
    /\[\+\]uplinks ok[\s\S]*\[\+\]configuration ok[\s\S]*\[\+\]listeners ok[\s\S]*\[\+\]ways ok eth0[\s\S]*200$/,
  );
  one.writeSettings('{"version":1,"nonsense":true}');
  await says("the settings are wrong", /\[-\]configuration degraded .*nonsense[\s\S]*503$/);
  one.configure({ maxCost: 0, uplinks: entries });
  await says("they are right again", /200$/);
  await one.run("ip", "link", "set", "eth0", "down");
  await says("there is no way out", /\[-\]ways degraded .*link down[\s\S]*503$/);
  await one.run("ip", "link", "set", "eth0", "up");
  await says("there is again", /200$/);
  // A port that another program has.
  const [file, args] = one.bed.inside(
    process.execPath,
    "-e",
    'require("net").createServer().listen(5444, "127.0.0.1", () => console.log("taken"))',
  );
  const other = spawn(file, args, { stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => other.kill("SIGKILL"));
  await once(other.stdout, "data");
  const listener = { role: "host", address: "127.0.0.1" };
  const listeners = [
    { ...listener, name: "host", port: 5443 },
    { ...listener, name: "more", port: 5444 },
  ];
  one.configure({ maxCost: 0, uplinks: entries, listeners });
  await says("a port is taken", /\[-\]listeners degraded these listeners are not bound: more[\s\S]*503$/);
});
