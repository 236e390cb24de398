import assert from "node:assert/strict";
import { cpSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { ISTHMUS, type Running, start, until } from "#test/lab";
import { openUplinkBed, type TestClient, type UplinkBed, WEB4 } from "#test/uplink-bed";

const TIMEOUT = { timeout: 60_000 };
const DIST = dirname(ISTHMUS);
const HOST = { name: "host", role: "host", address: "127.0.0.1", port: 5443 };
const PODS = {
  name: "pods",
  role: "pod",
  address: "169.254.100.1",
  port: 5443,
  interface: "cni0",
  assignAddress: true,
};

/** Starts a command in the node with the flags of `uplink-proxy` behind it; killed with the test. */
function launch(
  t: TestContext,
  { bed, dir, settings }: UplinkBed,
  command: readonly string[],
  more: readonly string[] = [],
): Running {
  const at = (name: string): string => join(dir, name);
  const [file, args] = bed.inside(
    command[0] ?? "",
    ...command.slice(1),
    `--config=${settings}`,
    `--control-socket=${at("control.sock")}`,
    `--run-dir=${at("run")}`,
    `--secrets-dir=${at("secrets")}`,
    `--off-switch=${at("off")}`,
    `--sentinel=${at("sentinel")}`,
    ...more,
  );
  const running = start([file, ...args]);
  t.after(async () => {
    running.child.kill("SIGKILL");
    await running.ended;
  });
  return running;
}

const serves = (uplinks: UplinkBed, running: Running): Promise<unknown> =>
  until("uplink-proxy serves", async () => (await uplinks.tryHealth())?.ready, {
    deadlineMs: 20_000,
    seen: running.said,
  });

/** Resolves with true if connections of the node are taken. */
const isTaken = async ({ run }: UplinkBed): Promise<boolean> =>
  (await run("nft", "list", "tables")).stdout.includes("uplink_proxy");

test(
  "uplink-proxy under its own name: its watchdog takes the redirection away when it hangs or is killed",
  TIMEOUT,
  async (t) => {
    const uplinks = await openUplinkBed(t, { transparent: { enabled: true } }, { start: false });
    const running = launch(t, uplinks, [join(DIST, "uplink-proxy")]);
    const taken = (wanted: boolean): Promise<unknown> =>
      until(`taken: ${wanted}`, async () => (await isTaken(uplinks)) === wanted || undefined, {
        deadlineMs: 5000,
        seen: running.said,
      });
    await taken(true);
    running.child.kill("SIGSTOP");
    await taken(false);
    running.child.kill("SIGCONT");
    await taken(true);
    running.child.kill("SIGKILL");
    await taken(false);
    const { stdout } = await uplinks.run("curl", "-sS", "-m", "10", "--cacert", uplinks.ca, WEB4);
    assert.equal(stdout, "wan0 192.0.2.10\n");
  },
);

test(
  "uplink-proxy: when proxy and watchdog are killed at once, hosts are reachable again within three seconds",
  TIMEOUT,
  async (t) => {
    const uplinks = await openUplinkBed(t, { transparent: { enabled: true } }, { start: false });
    const running = launch(t, uplinks, [join(DIST, "uplink-proxy")]);
    await until("connections are redirected", async () => (await isTaken(uplinks)) || undefined, {
      deadlineMs: 10_000,
      seen: running.said,
    });
    // Longer than the lease: it is renewed.
    const taken = async (): Promise<string> =>
      (await uplinks.run("curl", "-sS", "-m", "3", "--cacert", uplinks.ca, WEB4)).stdout;
    const until4s = performance.now() + 4000;
    while (performance.now() < until4s) assert.equal(await taken(), "wan0 192.0.2.10\n");
    assert.ok((await uplinks.health()).requests >= 0);
    const { stdout } = await start(["pgrep", "-P", String(running.child.pid), "-f", "uplink-watchdog"]).ended;
    const watchdog = Number(stdout.trim());
    assert.ok(watchdog > 0, stdout);
    process.kill(watchdog, "SIGKILL");
    running.child.kill("SIGKILL");
    await running.ended;
    const from = performance.now();
    await until("hosts are reachable", async () => (await taken()).startsWith("wan0") || undefined, {
      deadlineMs: 10_000,
    });
    assert.ok(performance.now() - from < 3500, `${performance.now() - from} ms`);
    assert.ok(await isTaken(uplinks), "nobody has taken the rules away");
    uplinks.bed.run("nft", "delete", "table", "inet", "uplink_proxy");
  },
);

test(
  "uplink-proxy: started as root it keeps only the capabilities that it needs, as do its threads and its watchdog",
  TIMEOUT,
  async (t) => {
    const uplinks = await openUplinkBed(t, { transparent: { enabled: true }, workers: 2 }, { start: false });
    const running = launch(t, uplinks, [join(DIST, "uplink-proxy")]);
    await until("connections are redirected", async () => (await isTaken(uplinks)) || undefined, {
      deadlineMs: 10_000,
      seen: running.said,
    });
    const netAdmin = (1n << 12n).toString(16).padStart(16, "0");
    const capabilities = (path: string): string[] =>
      [...readFileSync(path, "utf8").matchAll(/^Cap(?:Prm|Eff|Bnd):\s*(\w+)/gm)].map(([, bits = ""]) => bits);
    const pid = running.child.pid ?? 0;
    assert.deepEqual(capabilities(`/proc/${pid}/status`), [netAdmin, netAdmin, netAdmin]);
    const { stdout } = await start(["pgrep", "-P", String(pid), "-f", "uplink-watchdog"]).ended;
    assert.deepEqual(capabilities(`/proc/${Number(stdout)}/status`), [netAdmin, netAdmin, netAdmin]);
    assert.match((await uplinks.curl(WEB4)).stdout, /^wan0 /);
  },
);

test("uplink-proxy: a part that fails ends the program with code 1 and its reason", TIMEOUT, async (t) => {
  const uplinks = await openUplinkBed(t, { workers: 2 }, { start: false });
  // Without the file of its further threads.
  const dist = join(uplinks.dir, "dist");
  mkdirSync(dist);
  const isThere = (name: string): boolean => /\.[cm]js$/.test(name) && name !== "uplink-worker.mjs";
  for (const name of readdirSync(DIST).filter(isThere)) cpSync(join(DIST, name), join(dist, name));
  symlinkSync(join(DIST, "../node_modules"), join(uplinks.dir, "node_modules"));
  const { code, stderr } = await launch(t, uplinks, [process.execPath, join(dist, "isthmus.mjs"), "uplink-proxy"])
    .ended;
  assert.equal(code, 1, stderr);
  assert.match(stderr, /uplink-worker\.mjs/);
});

test(
  "uplink-proxy: with every descriptor in use it refuses, and serves again when there are some",
  TIMEOUT,
  async (t) => {
    const uplinks = await openUplinkBed(t, {}, { start: false });
    const running = launch(t, uplinks, ["sh", "-c", 'ulimit -n 100; exec "$@"', "sh", ISTHMUS, "uplink-proxy"]);
    await serves(uplinks, running);
    const open = async (text: string): Promise<TestClient> => {
      const client = await uplinks.client(t);
      client.write(text);
      return client;
    };
    const connect = "CONNECT 203.0.113.80:443 HTTP/1.1\r\n\r\n";
    const kept = await open("GET /healthz HTTP/1.1\r\n\r\n");
    await kept.read('"ready":true');
    const clients: TestClient[] = [];
    for (let answer = ""; !answer.includes(" 503 "); ) {
      const client = await open(connect);
      answer = await client.read("\r\n\r\n");
      clients.push(client);
    }
    // All that is left.
    for (let at = 0; at < 40; at += 1) clients.push(await open("GET /"));
    // The first of those that ask for nothing made room for the last.
    await clients.at(-40)?.until(({ isEnded, isClosed }) => isEnded || isClosed);
    let refused = "";
    const isRefused = async (): Promise<boolean> => {
      const client = await open(connect);
      clients.push(client);
      refused = await client.read("\r\n\r\n");
      return refused.includes(" 503 ");
    };
    await until("tunnels are refused", isRefused, { deadlineMs: 10_000, seen: running.said });
    assert.match(refused, / 503 .*X-Uplink-Reason: overload/s);
    assert.equal((await uplinks.health()).ready, true);
    for (const client of clients) client.socket.resetAndDestroy();
    await until("tunnels are made again", async () => (await uplinks.curl(WEB4)).code === 0 || undefined, {
      deadlineMs: 10_000,
      seen: running.said,
    });
    assert.equal(running.child.exitCode, null);
  },
);

for (const limit of [80, 256, 1024]) {
  test(
    `uplink-proxy: with at most ${limit} descriptors the answer is 503 from nine tenths on, whatever holds them, and /healthz goes on`,
    TIMEOUT,
    async (t) => {
      const uplinks = await openUplinkBed(t, {}, { start: false });
      const shell = `ulimit -n ${limit}; exec "$@"`;
      const running = launch(t, uplinks, ["sh", "-c", shell, "sh", ISTHMUS, "uplink-proxy"]);
      await serves(uplinks, running);
      const open = async (text: string): Promise<TestClient> => {
        const client = await uplinks.client(t);
        client.write(text);
        return client;
      };
      let tunnels = 0;
      let answer = "";
      for (; tunnels < limit && answer !== "503"; tunnels += 1) {
        // Two silent clients for each tunnel.
        await open("");
        await open("GET /");
        const client = await open("CONNECT 203.0.113.80:443 HTTP/1.1\r\n\r\n");
        answer = (await client.read("\r\n\r\n")).slice(9, 12);
        assert.match(answer, /^(200|503)$/);
      }
      assert.equal(answer, "503");
      for (let round = 0; round < 20; round += 1) {
        for (let at = 0; at < 10; at += 1) await open("");
        assert.equal((await uplinks.health()).ready, true);
        const client = await open("CONNECT 203.0.113.80:443 HTTP/1.1\r\n\r\nearly");
        // Where a silent client has just made room there may be one more.
        assert.match(await client.read("\r\n\r\n"), / 503 .*X-Uplink-Reason: overload| 200 OK/s);
      }
      const { stdout } = await start(["sh", "-c", `ls /proc/${running.child.pid}/fd | wc -l`]).ended;
      assert.ok(Number(stdout) >= limit * 0.8 && Number(stdout) <= limit, `${stdout} of ${limit}, ${tunnels} tunnels`);
      assert.equal(running.child.exitCode, null);
    },
  );
}

test(
  "uplink-proxy: a listener for pods that comes with a reload has its token, without an API server too",
  TIMEOUT,
  async (t) => {
    const uplinks = await openUplinkBed(t, {}, { start: false, pod: true });
    const running = launch(t, uplinks, [ISTHMUS, "uplink-proxy"], ["--cdi", "--kubeconfig=/nonexistent"]);
    await serves(uplinks, running);
    assert.match(running.said(), /cannot read a kubeconfig for the API server yet; trying again/);
    uplinks.configure({ listeners: [HOST, { ...PODS, auth: "token", tls: "optional" }] });
    const token = join(uplinks.dir, "secrets", "token");
    await until("there is a token", async () => statSync(token, { throwIfNoEntry: false }), {
      deadlineMs: 10_000,
      seen: running.said,
    });
    await until(
      "pods are asked who they are",
      async () => {
        const [file, args] = uplinks.bed.inside(
          "curl",
          "-sS",
          "-m",
          "2",
          "-p",
          "--proxy",
          "http://169.254.100.1:5443",
          "https://203.0.113.80/",
        );
        return (await start([file, ...args]).ended).stderr.includes("407") || undefined;
      },
      { deadlineMs: 10_000, seen: running.said },
    );
  },
);

test(
  "uplink-proxy: the tunnel of an interface that is renamed sends nothing over an uplink that costs too much",
  TIMEOUT,
  async (t) => {
    const uplinks = await openUplinkBed(t, { maxCost: 0 });
    const { bed } = uplinks;
    const client = await uplinks.client(t);
    client.write("CONNECT 203.0.113.80:80 HTTP/1.1\r\n\r\n");
    await client.read("200 OK");
    const index = bed.stack.links.get({ name: "eth0" })?.index ?? 0;
    const before = bed.wan1.packets;
    bed.run("ip", "route", "del", "default", "via", "192.0.2.1");
    bed.stack.links.set(index, { up: false });
    bed.stack.links.set(index, { name: "renamed" });
    bed.stack.links.set(index, { up: true });
    await until(
      "the uplink has no address",
      async () =>
        (await uplinks.health()).uplinks.every(({ name, table }) => name !== "eth0" || table === undefined) ||
        undefined,
      { deadlineMs: 5000, seen: () => uplinks.log.join("\n") },
    );
    for (let at = 0; at < 20; at += 1) client.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    client.socket.end();
    await uplinks.curl(WEB4, "-m", "2");
    assert.equal(bed.wan1.packets - before, 0);
  },
);
