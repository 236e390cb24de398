// in turn: fourteen programs at once have to answer within seconds.
/** Programs with few descriptors under clients that say nothing (docs/spec/tunnel.md#13.2). */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { makeCertificates } from "#test/certificates";
import { EveryProgram, isOver, portsOf } from "#test/every-program";
import { ISTHMUS, type Running, start, until } from "#test/lab";
import { freePort } from "#test/ports";
import { connectThrough, ProxyBed, roundTrip } from "#test/proxies";

const IS_LONG = process.env["ISTHMUS_SOAK"] === "full";
const LIMITS = IS_LONG ? [300, 1024] : [300];
/** Longer than a program's first look at its memory, 5 s after the start; in the long form, three minutes. */
const PRESSURE_MS = IS_LONG ? 180_000 : 6000;

/** The ports of a program are those that were the same so often, one look after the other. */
const SETTLED_POLLS = 20;

function startWith(t: TestContext, limit: number, ...words: readonly string[]): Running {
  const running = start(["sh", "-c", `ulimit -n ${limit}; exec "$0" "$@"`, ISTHMUS, ...words], { timeoutMs: 300_000 });
  t.after(async () => {
    running.child.kill("SIGKILL");
    await running.ended;
  });
  return running;
}

/** Keeps connections of one address that send nothing open: when one ends, another takes its place. */
function pressOn(t: TestContext, ports: readonly number[], count: number): { readonly opened: () => number } {
  const sockets = new Set<Socket>();
  let opened = 0;
  let isOver = false;
  t.after(() => {
    isOver = true;
    for (const socket of sockets) socket.destroy();
  });
  const open = (port: number): void => {
    if (isOver) return;
    const socket = connect({ host: "127.0.0.1", port, localAddress: "127.0.0.2" });
    sockets.add(socket);
    opened += 1;
    socket.on("error", () => socket.destroy());
    socket.once("close", () => {
      sockets.delete(socket);
      // Some a second, as a client would that tries again.
      setTimeout(() => open(port), 200).unref();
    });
  };
  for (const port of ports) for (let at = 0; at < count; at += 1) open(port);
  return { opened: () => opened };
}

/** Calls `work` again and again as long as the pressure lasts. */
async function meanwhile(running: Running, work: () => Promise<void>): Promise<void> {
  const end = performance.now() + PRESSURE_MS;
  for (let round = 0; round < 3 || performance.now() < end; round += 1) {
    const begun = performance.now();
    await work();
    assert.ok(performance.now() - begun < 5000, `round ${round} took ${performance.now() - begun} ms`);
    assert.equal(running.child.exitCode ?? running.child.signalCode, null, running.said());
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

const descriptorsOf = ({ child }: Running): number => readdirSync(`/proc/${child.pid}/fd`).length;

async function echo(t: TestContext): Promise<number> {
  const server = createServer((socket) => {
    socket.on("error", () => socket.destroy());
    socket.pipe(socket);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => server.close());
  return (server.address() as AddressInfo).port;
}

/**
 * Runs in a program's network: at all ports together more clients of one address than there are descriptors, which send nothing and come again when they are ended. Then asks each port for /healthz from another
 * address, and prints how many answered.
 */
const PRESS = `
const { connect } = require("node:net");
const [ms, count, ...ports] = process.argv.slice(1).map(Number);
const press = (port) => {
  const socket = connect({ host: "127.0.0.1", port, localAddress: "127.0.0.2" });
  socket.on("error", () => socket.destroy());
  socket.once("close", () => setTimeout(press, 2000, port));
};
for (const port of ports) for (let at = 0; at < count; at += 1) press(port);
const ask = (port) => new Promise((resolve) => {
  const socket = connect({ host: "127.0.0.1", port });
  socket.setTimeout(8000, () => socket.destroy());
  socket.on("error", () => socket.destroy());
  socket.once("data", (data) => resolve(String(data).startsWith("HTTP/1.1 ")));
  socket.once("close", () => resolve(false));
  socket.write("GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n");
});
setTimeout(async () => {
  const answers = await Promise.all(ports.map(ask));
  console.log(answers.filter(Boolean).length);
  process.exit();
}, ms);
`;

for (const limit of [64, ...LIMITS]) {
  test(`programs: with ${limit} descriptors each one that serves says first for how many connections that is, goes on under silent clients at every port and answers probes of another address, or ends and says what it needs`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "isthmus-few-"));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    const programs = new EveryProgram(folder);
    const all = Object.keys(programs.flags).map((name) => ({ name, running: programs.launch(name, { limit }) }));
    t.after(async () => {
      for (const { running } of all) running.child.kill("SIGKILL");
      await Promise.all(all.map(({ running }) => running.ended));
    });
    await Promise.all(
      all.map(async ({ name, running }) => {
        const pid = running.child.pid ?? 0;
        const seen = (): string => `${name}: ${running.said()}`;
        // A program begins to listen at one port after the other.
        let before = "";
        let same = 0;
        const isSettled = (): boolean => {
          const now = String(portsOf(pid));
          same = now === before ? same + 1 : 0;
          before = now;
          return now !== "" && same >= SETTLED_POLLS;
        };
        await until(`${name} serves`, () => isOver(running) || isSettled(), { seen });
        if (name === "node" && limit === 64) {
          const text =
            "isthmus node: needs 96 open files at least, and may have 64: raise LimitNOFILE of the unit, or ulimit -n\n";
          assert.equal((await running.ended).stderr, text);
          return;
        }
        assert.equal(isOver(running), false, seen());
        // In JSON or as text.
        const [first = ""] = running.said().split("\n");
        assert.match(
          first,
          new RegExp(
            `"limit":${limit},"connections":[1-9]\\d*,"msg":"open files"|open files.*limit.{1,3}${limit}\\b.*connections`,
          ),
          seen(),
        );
        const ports = [...new Set(portsOf(pid))].map(String);
        const press = [
          "nsenter",
          `--net=/proc/${pid}/ns/net`,
          process.execPath,
          "-e",
          PRESS,
          String(PRESSURE_MS),
          String(Math.ceil((limit + 60) / ports.length)),
          ...ports,
        ];
        const { stdout, stderr } = await start(press, { timeoutMs: PRESSURE_MS + 20_000 }).ended;
        assert.equal(isOver(running), false, seen());
        assert.ok(
          Number(stdout) >= 1,
          `${name}: ${stdout} of ${ports.length} ports answered ${stderr}; ${running.said()}`,
        );
      }),
    );
  });
}

for (const limit of LIMITS) {
  test(`proxy-server: with ${limit} descriptors and twice as many silent clients of one address at each port, agents connect and dials are served`, async (t) => {
    await using bed = await ProxyBed.open();
    const [agentPort, serverPort, healthPort, adminPort] = [
      await freePort(),
      await freePort(),
      await freePort(),
      await freePort(),
    ];
    const running = startWith(
      t,
      limit,
      "proxy-server",
      ...["--mode=http-connect", `--server-port=${serverPort}`, "--server-bind-address=127.0.0.1"],
      ...[`--server-cert=${bed.path("server.crt")}`, `--server-key=${bed.path("server.key")}`],
      ...[`--server-ca-cert=${bed.path("ca.crt")}`, `--agent-port=${agentPort}`, "--agent-bind-address=127.0.0.1"],
      ...[`--health-port=${healthPort}`, `--admin-port=${adminPort}`, "--health-bind-address=127.0.0.1"],
      ...[`--cluster-cert=${bed.path("server.crt")}`, `--cluster-key=${bed.path("server.key")}`],
      `--cluster-ca-cert=${bed.path("ca.crt")}`,
    );
    await until("it listens", () => running.said().includes('"started"'), { seen: running.said });
    assert.match(running.said(), new RegExp(`"limit":${limit},"connections":\\d+,"msg":"open files"`));
    const silent = pressOn(t, [agentPort, serverPort, healthPort], 2 * limit);
    await until("the pressure is there", () => silent.opened() > 6 * limit, { seen: running.said });
    // It comes under the pressure.
    await bed.agent([{ agentPort }]);
    const target = await echo(t);
    await until("an agent is connected", () => running.said().includes('"agent connected"'), { seen: running.said });
    await meanwhile(running, async () => {
      const [ca, cert, key] = ["ca.crt", "frontend.crt", "frontend.key"].map((name) => readFileSync(bed.path(name)));
      const client = connectTls({ host: "127.0.0.1", port: serverPort, ca, cert, key });
      await once(client, "secureConnect");
      assert.match(await connectThrough(client, `127.0.0.1:${target}`), /^HTTP\/1\.1 200 /);
      assert.equal(await roundTrip(client, "hello"), "hello");
      client.destroy();
    });
    assert.ok(descriptorsOf(running) < limit * 0.9, `${descriptorsOf(running)}`);
  });

  test(`sni-router: with ${limit} descriptors and twice as many silent clients of one address, another address is routed`, async (t) => {
    const { ca, pairs } = makeCertificates("a", { server: ["a.example"] });
    const backend = createTlsServer(pairs.server, (socket) => {
      socket.on("error", () => socket.destroy());
      socket.end("hello");
    });
    await once(backend.listen(0, "127.0.0.1"), "listening");
    t.after(() => backend.close());
    const [port, metrics, health] = [await freePort(), await freePort(), await freePort()];
    const running = startWith(
      t,
      limit,
      ...["sni-router", `--listen=127.0.0.1:${port}`, `--metrics-addr=127.0.0.1:${metrics}`],
      ...[
        `--health-addr=127.0.0.1:${health}`,
        `--route=a.example=127.0.0.1:${(backend.address() as AddressInfo).port}`,
      ],
    );
    await until("it routes", () => running.said().includes('"routing"'), { seen: running.said });
    assert.match(running.said(), new RegExp(`"limit":${limit},"connections":\\d+,"msg":"open files"`));
    const silent = pressOn(t, [port, metrics, health], 2 * limit);
    await until("the pressure is there", () => silent.opened() > 6 * limit, { seen: running.said });
    await meanwhile(running, async () => {
      const client = connectTls({ host: "127.0.0.1", port, servername: "a.example", ca });
      const [data] = await once(client, "data");
      assert.equal(String(data), "hello");
      client.destroy();
    });
    assert.ok(descriptorsOf(running) < limit * 0.9, `${descriptorsOf(running)}`);
  });
}
