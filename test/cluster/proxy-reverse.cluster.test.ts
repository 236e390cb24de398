import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { IpAddress } from "#base/ip";
import { createNetNs, deleteNetNs, openNetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";
import { until } from "#test/lab";
import { connectInside, ProxyBed, type ProxyProcess, roundTrip } from "#test/proxies";

const GATE = "--feature-gates=EnableClusterToMasterTraffic=true";
const BIND = "10.255.255.1";
const BIND6 = "fd00:ffff::1";

/** A control plane and a node, a link between them, and an API server that only the control plane reaches. */
async function twoSides(t: TestContext) {
  const [master, node] = [`isthmus-m${process.pid}`, `isthmus-n${process.pid}`];
  const ip = (...args: string[]): string => execFileSync("ip", args, { encoding: "utf8" });
  const bed = await ProxyBed.open();
  const servers: Server[] = [];
  const sockets = new Set<Socket>();
  t.after(async () => {
    for (const socket of sockets) socket.destroy();
    for (const server of servers) server.close();
    await bed[Symbol.asyncDispose]();
    deleteNetNs(master);
    deleteNetNs(node);
  });
  for (const name of [master, node]) createNetNs(name)[Symbol.dispose]();
  ip("-n", master, "link", "add", "to-node", "type", "veth", "peer", "name", "to-master", "netns", node);
  for (const [name, link, address] of [
    [master, "to-node", "192.0.2.1/24"],
    [node, "to-master", "192.0.2.2/24"],
  ] as const) {
    ip("-n", name, "address", "add", address, "dev", link);
    ip("-n", name, "link", "set", link, "up");
    ip("-n", name, "link", "set", "lo", "up");
  }
  const echo = async (host: string, port: number): Promise<void> => {
    using ns = openNetNs({ name: master });
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      sockets.add(socket);
      socket.on("error", () => socket.destroy());
      socket.pipe(socket);
    });
    servers.push(server);
    await once(server.listen({ fd: listenTcp(IpAddress.parse(host), port, { netns: ns }) }), "listening");
  };
  return { bed, master, node, ip, echo };
}

/** Returns how a connection from the node ends that the agent does not pass on. */
async function fate(node: string, host: string, port: number): Promise<string> {
  let socket: Socket;
  try {
    socket = await connectInside(node, host, port);
  } catch (error) {
    // The reset may be there before the connection is told.
    return (error as NodeJS.ErrnoException).code ?? String(error);
  }
  const { promise, resolve } = Promise.withResolvers<string>();
  socket.once("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  socket.once("end", () => resolve("closed"));
  socket.resume();
  return promise.finally(() => socket.destroy());
}

async function connected(agent: ProxyProcess): Promise<void> {
  let last = "";
  const isReady = async (): Promise<boolean> => {
    last = await agent.health("/readyz");
    return last.startsWith("200 ");
  };
  await until("the agent is ready", isReady, { seen: () => `${last}\n${agent.running.said()}` });
}

test("proxy-agent: a node reaches the API server by the bind addresses, and nothing that is not allowed", async (t) => {
  const { bed, master, node, ip, echo } = await twoSides(t);
  await echo("127.0.0.1", 6443);
  await echo("127.0.0.1", 9443);
  const allowed = bed.write("allowed", "# what agents may reach\nlocalhost:6443\n");
  const server = await bed.server(["--agent-bind-address=192.0.2.1", GATE, `--allowed-destination-file=${allowed}`], {
    netns: master,
  });
  const agentWith = (...args: string[]): Promise<ProxyProcess> =>
    bed.agent(
      [],
      [
        ...[`--proxy-server=192.0.2.1:${server.agentPort}`, "--tls-server-name=localhost", GATE, ...args],
        ...[`--bind-address=${BIND},${BIND6}`, "--target=6443:localhost:6443", "--target=9443:127.0.0.1:9443"],
      ],
      { netns: node },
    );
  const agent = await agentWith();
  await connected(agent);
  assert.match(
    await agent.health("/readyz?verbose"),
    /^200 .*\[\+\]reverse-listener ok\n\[\+\]bind-interface ok\ncheck passed\n$/s,
  );
  for (const host of [BIND, BIND6]) {
    const socket = await connectInside(node, host, 6443);
    assert.equal(await roundTrip(socket, "hello"), "hello", host);
    socket.end("last words");
    assert.equal(await text(socket), "last words");
  }
  assert.equal(await agent.metric('agent_reverse_accepted_total{target="localhost:6443"}'), 2);
  assert.equal(await server.metric('server_reverse_dials_total{result="ok"}'), 2);
  assert.equal(await fate(node, BIND, 9443), "ECONNRESET");
  assert.equal(await agent.metric('agent_reverse_failures_total{reason="denied"}'), 1);
  assert.equal(await server.metric('server_reverse_dials_total{result="denied"}'), 1);
  const idle = async (): Promise<boolean> =>
    (await agent.metric("agent_reverse_connections")) === 0 &&
    (await server.metric("server_reverse_connections")) === 0;
  await until("nothing is open", idle);

  bed.write("allowed", "localhost\n");
  server.running.child.kill("SIGHUP");
  const failed = "the file of allowed destinations cannot be used; the old destinations stay in force";
  await until("the wrong file is told", () => server.said(failed).length === 1, { seen: server.running.said });
  bed.write("allowed", "localhost:6443\n127.0.0.1:9443\n");
  server.running.child.kill("SIGHUP");
  await until("the file is read", () => server.said("destinations reloaded").length === 1);
  const other = await connectInside(node, BIND, 9443);
  assert.equal(await roundTrip(other, "hello"), "hello");
  other.destroy();

  const holder = (): string => ip("-n", node, "-o", "address", "show", "to", BIND);
  const link = /^\d+: (\S+)/.exec(holder())?.[1] ?? "";
  assert.match(holder(), /inet 10\.255\.255\.1\/32 scope host/);
  ip("-n", node, "address", "del", `${BIND}/32`, "dev", link);
  await until("the address is back", () => holder() !== "", { deadlineMs: 5000 });
  const again = await connectInside(node, BIND, 6443);
  assert.equal(await roundTrip(again, "hello"), "hello");

  // Killed, it leaves the addresses, and the next one takes them over.
  await agent.stop("SIGKILL");
  assert.notEqual(holder(), "");
  const choosy = await agentWith("--allowed-source=198.51.100.0/24");
  await connected(choosy);
  assert.equal(choosy.said("bind address added").length, 0);
  // The node itself is let in, a neighbour that is not named is not.
  const own = await connectInside(node, BIND, 6443);
  assert.equal(await roundTrip(own, "hello"), "hello");
  own.destroy();
  ip("-n", master, "route", "add", `${BIND}/32`, "via", "192.0.2.2");
  assert.equal(await fate(master, BIND, 6443), "ECONNRESET");
  assert.equal(await choosy.metric('agent_reverse_failures_total{reason="source"}'), 1);
  await choosy.stop();
  await assert.rejects(connectInside(node, BIND, 6443));

  for (const address of [`${BIND}/32`, `${BIND6}/128`]) {
    if (ip("-n", node, "-o", "address", "show", "to", address) !== "")
      ip("-n", node, "address", "del", address, "dev", link);
  }
  const tidy = await agentWith();
  await connected(tidy);
  assert.notEqual(holder(), "");
  await tidy.stop();
  assert.equal(holder(), "");
  const keeper = await agentWith("--keep-bind-interface");
  await connected(keeper);
  await keeper.stop();
  assert.notEqual(holder(), "");
});

test("--workers: a node reaches the API server through workers of both programs; the leader has the bind interface", async (t) => {
  const { bed, master, node, ip, echo } = await twoSides(t);
  await echo("127.0.0.1", 6443);
  const allowed = bed.write("allowed", "localhost:9443\n");
  const server = await bed.server(
    ["--workers=2", "--agent-bind-address=192.0.2.1", GATE, `--allowed-destination-file=${allowed}`],
    { netns: master },
  );
  const args = [
    ...["--workers=2", `--proxy-server=192.0.2.1:${server.agentPort}`, "--tls-server-name=localhost", GATE],
    ...[`--bind-address=${BIND}`, "--target=6443:localhost:6443"],
  ];
  const agent = await bed.agent([], args, { netns: node });
  await connected(agent);
  assert.equal(
    await agent.health("/readyz?verbose"),
    "200 [+]bind-interface ok\n[+]workers ok\n[+]ping ok\n[+]server-connected ok\n[+]reverse-listener ok\ncheck passed\n",
  );
  assert.equal(await fate(node, BIND, 6443), "ECONNRESET");
  bed.write("allowed", "localhost:6443\n");
  server.running.child.kill("SIGHUP");
  await until("both workers have read the file", () => server.said("destinations reloaded").length === 2);
  const sockets = await Promise.all(Array.from({ length: 16 }, () => connectInside(node, BIND, 6443)));
  for (const socket of sockets) assert.equal(await roundTrip(socket, "hello"), "hello");
  assert.equal(await agent.metric("agent_reverse_connections"), 16);
  assert.equal(await server.metric("server_reverse_connections"), 16);
  assert.equal(await server.metric('server_reverse_dials_total{result="ok"}'), 16);
  for (const socket of sockets) socket.destroy();
  const holder = (): string => ip("-n", node, "-o", "address", "show", "to", BIND);
  assert.notEqual(holder(), "");
  // Another agent must not join this one's port.
  await assert.rejects(bed.agent([], args, { netns: node }), /cannot listen on 10\.255\.255\.1:6443: .*EADDRINUSE/);
  assert.equal((await agent.stop()).code, 0);
  assert.equal(holder(), "");
});

test("proxy-agent: without a server that serves this direction a node's client fails at once", async (t) => {
  const { bed, master, node, ip, echo } = await twoSides(t);
  await echo("127.0.0.1", 6443);
  const server = await bed.server(["--agent-bind-address=192.0.2.1"], { netns: master });
  const args = [
    ...[`--proxy-server=192.0.2.1:${server.agentPort}`, "--tls-server-name=localhost", GATE],
    ...[`--bind-address=${BIND}`, "--target=6443:localhost:6443"],
  ];
  const agent = await bed.agent([], args, { netns: node });
  const why = /^503 \[\+\]ping ok\n\[\+\]server-connected ok\n\[-\]reverse-listener failed: /;
  await until("the agent says so", async () => why.test(await agent.health("/readyz")), { seen: agent.running.said });
  const started = performance.now();
  assert.equal(await fate(node, BIND, 6443), "ECONNRESET");
  assert.ok(performance.now() - started < 1000);
  assert.equal(await agent.metric('agent_reverse_failures_total{reason="no_server"}'), 1);
  await agent.stop();

  ip("-n", node, "address", "add", `${BIND}/24`, "dev", "to-master");
  const taken = bed.agent([], args, { netns: node });
  await assert.rejects(taken, /10\.255\.255\.1 is already on interface to-master/);
});
