/** docs/spec/tunnel.md#13.2 and #9.7: sni-router as the balancer before a proxy-server, with the flags of the guide. */
import assert from "node:assert/strict";
import { connect } from "node:net";
import { Duplex } from "node:stream";
import { type TestContext, test } from "node:test";
import { connect as connectTls } from "node:tls";
import { commandsOf } from "#test/guide";
import { ISTHMUS, type Running, start, until } from "#test/lab";
import { freePort } from "#test/ports";
import { ProxyBed } from "#test/proxies";

/** The limit of open files. An eighth of 300 is for clients that have proved nothing: 37, and 18 for one address. */
const LIMIT = 300;
const CLIENTS = ["127.0.0.2", "127.0.0.3", "127.0.0.4"].flatMap((address) => Array.from({ length: 10 }, () => address));

/** The flags that the guide gives to a program for a balancer with PROXY headers. */
function flagsOnPage(program: string): string[] {
  const [, commands = ""] = commandsOf("tunnel.md", "Behind a balancer");
  const line = commands.split("\n").find((one) => one.startsWith(program)) ?? assert.fail(`no ${program}: ${commands}`);
  return (line.match(/--\S+/g) ?? []).map((flag) => flag.replace("10.1.2.0/28", "127.0.0.1/32"));
}

function launch(t: TestContext, ...words: readonly string[]): Running {
  const running = start(["sh", "-c", `ulimit -n ${LIMIT}; exec "$0" "$@"`, ISTHMUS, ...words]);
  t.after(async () => {
    running.child.kill("SIGKILL");
    await running.ended;
  });
  return running;
}

/** The first message of a client of TLS. */
function clientHello(): Promise<Buffer> {
  return new Promise((resolve) => {
    const socket = new Duplex({ read: () => undefined, write: (hello: Buffer) => resolve(hello) });
    connectTls({ socket, servername: "a.example", ALPNProtocols: ["h2"] });
  });
}

/** Clients that end their handshake after the first message; counts those that were answered, and those that were ended. */
async function comeSilently(t: TestContext, port: number) {
  const hello = await clientHello();
  const seen = { answered: 0, ended: 0 };
  for (const localAddress of CLIENTS) {
    const socket = connect({ host: "127.0.0.1", port, localAddress });
    socket.on("error", () => socket.destroy());
    socket.once("data", () => {
      seen.answered += 1;
    });
    socket.once("close", () => {
      seen.ended += 1;
    });
    socket.write(hello);
    t.after(() => socket.destroy());
  }
  return seen;
}

test("proxy-server: clients behind sni-router have places by their own addresses with PROXY headers, and are not bounded as one", async (t) => {
  const bed = await ProxyBed.open({ hosts: ["a.example"] });
  t.after(() => bed[Symbol.asyncDispose]());
  const ports = await Promise.all(Array.from({ length: 6 }, () => freePort()));
  const [agentPort, serverHealth, admin, port, metrics, health] = ports;
  const server = launch(
    t,
    ...["proxy-server", `--uds-name=${bed.path("frontend.sock")}`, "--server-port=0", `--agent-port=${agentPort}`],
    ...["--agent-bind-address=127.0.0.1", `--health-port=${serverHealth}`, `--admin-port=${admin}`],
    ...[`--cluster-cert=${bed.path("server.crt")}`, `--cluster-key=${bed.path("server.key")}`],
    ...[`--cluster-ca-cert=${bed.path("ca.crt")}`, ...flagsOnPage("proxy-server")],
  );
  const router = launch(
    t,
    ...["sni-router", `--listen=127.0.0.1:${port}`, `--default=127.0.0.1:${agentPort}`, ...flagsOnPage("sni-router")],
    ...[`--metrics-addr=127.0.0.1:${metrics}`, `--health-addr=127.0.0.1:${health}`],
  );
  await until("the server listens", () => server.said().includes('"started"'), { seen: server.said });
  await until("it routes", () => router.said().includes('"msg":"routing"'), { seen: router.said });

  const silent = await comeSilently(t, Number(port));
  await until("all are answered or ended", () => silent.answered + silent.ended >= CLIENTS.length, {
    seen: () => JSON.stringify(silent),
  });
  await bed.agent([{ agentPort: Number(port) }]);
  await until("the agent is connected", () => server.said().includes('"agent connected"'), { seen: server.said });
  assert.deepEqual(silent, { answered: CLIENTS.length, ended: 0 });
});
