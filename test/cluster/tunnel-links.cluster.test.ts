/** docs/spec/tunnel.md#15.D: links and peers that stop silently, and the connections that use them. */
import assert from "node:assert/strict";
import type { Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { sleep } from "#base/async";
import { until } from "#test/lab";
import { connectThrough, type ProxyProcess, type ProxyServerProcess } from "#test/proxies";
import { ALLOWED, BIND, echoed, OVERLAP, REVERSE, read, Sides } from "#test/tunnel-sides";

const TIMEOUT = { timeout: 120_000 };
/** A second of silence, twenty for the answer to a PING (docs/spec/tunnel.md#11), and some for a busy machine. */
const NOTICED = { deadlineMs: 30_000 };
const KEEPALIVE = "--keepalive-time=1s";

/** The sides, with an endpoint on each that sends its name. */
async function openSides(t: TestContext): Promise<Sides> {
  const sides = await Sides.open(t);
  await sides.endpoint("master", OVERLAP.master, 6443, "master");
  await sides.endpoint("node1", OVERLAP.node, 8080, "node1!");
  return sides;
}

const streamsOf = (server: ProxyServerProcess): Promise<number> =>
  server.metric('server_grpc_connections{service_method="Connect"}');

const serversOf = (agent: ProxyProcess): Promise<number> => agent.metric("agent_open_server_connections");

/** A connection from the control plane to node1's endpoint. */
async function forward(sides: Sides, server: ProxyServerProcess): Promise<Socket> {
  const socket = await sides.bed.dial(server.udsPath);
  assert.match(await connectThrough(socket, `${OVERLAP.node}:8080`), /^HTTP\/1\.1 200 /);
  assert.equal(await read(socket, 6), "node1!");
  return socket;
}

/** A connection from node1 to the control plane's endpoint. */
const reverse = (sides: Sides): Promise<Socket> => sides.reach("node1", BIND, 6443, "master");

/** Resolves when a socket has ended, was reset or closed. */
function over(socket: Socket): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  for (const event of ["end", "error", "close"]) socket.once(event, () => resolve());
  if (socket.destroyed || socket.readableEnded) resolve();
  socket.resume();
  return promise;
}

const idle = async (server: ProxyServerProcess, agent: ProxyProcess): Promise<boolean> =>
  (await server.metric("server_established_connections")) === 0 &&
  (await server.metric("server_reverse_connections")) === 0 &&
  (await agent.metric("agent_open_endpoint_connections")) === 0 &&
  (await agent.metric("agent_reverse_connections")) === 0;

test(
  "links: packets that are dropped without a word are detected by both ends' keepalive, and the link recovers",
  TIMEOUT,
  async (t) => {
    const sides = await openSides(t);
    const server = await sides.server(...ALLOWED, "--mode=http-connect", KEEPALIVE);
    const agent = await sides.agent("node1", server, ...REVERSE, KEEPALIVE);
    const inward = await reverse(sides);
    const outward = await forward(sides, server);
    sides.cut();
    const startedMs = performance.now();
    await Promise.all([
      until("the server has given the agent up", async () => (await streamsOf(server)) === 0, NOTICED),
      until("the agent has given the server up", async () => (await serversOf(agent)) === 0, NOTICED),
      over(inward),
      over(outward),
    ]);
    t.diagnostic(`noticed by both after ${Math.round(performance.now() - startedMs)} ms`);
    await until("nothing is open on either side", () => idle(server, agent));
    assert.match(await server.health("/readyz"), /^500 /);
    assert.match(await agent.health("/readyz"), /^503 /);
    const { how, ms } = await sides.reset("node1", BIND, 6443);
    assert.equal(how, "ECONNRESET");
    assert.ok(ms < 1000, `a node's client without a server waited ${ms} ms`);

    sides.mend();
    await until("the agent is back", async () => (await agent.health("/readyz")).startsWith("200 "), NOTICED);
    (await reverse(sides)).destroy();
    (await forward(sides, server)).destroy();
  },
);

test(
  "links: a server that is stopped is given up by its agents, another serves meanwhile, and both when it goes on",
  TIMEOUT,
  async (t) => {
    const sides = await openSides(t);
    const args = [...ALLOWED, "--mode=http-connect", "--server-count=2", KEEPALIVE];
    const [stopped, other] = [await sides.server(...args), await sides.server(...args)];
    const agent = await sides.agent(
      "node1",
      stopped,
      ...REVERSE,
      KEEPALIVE,
      `--proxy-server=192.0.2.1:${other.agentPort}`,
    );
    await until("both are connected", async () => (await serversOf(agent)) === 2);
    const inward = await Promise.all([1, 2, 3, 4].map(() => reverse(sides)));
    assert.equal(await stopped.metric("server_reverse_connections"), 2);
    const lost = await forward(sides, stopped);
    const kept = await forward(sides, other);
    // An agent that sends only a PING every second gets too_many_pings: the link that stays must have traffic.
    let isOver = false;
    const talk = async (): Promise<void> => {
      while (!isOver) {
        assert.equal(await echoed(kept, "still"), "still");
        await sleep(200);
      }
    };
    const talked = talk();

    process.kill(stopped.running.child.pid ?? 0, "SIGSTOP");
    await until("the agent has given it up", async () => (await serversOf(agent)) === 1, NOTICED);
    await until("its nodes' clients are reset", () => inward.filter(({ destroyed }) => destroyed).length === 2);
    await until("its endpoints are closed", async () => (await agent.metric("agent_open_endpoint_connections")) === 1);
    for (const socket of inward.filter(({ destroyed }) => !destroyed))
      assert.equal(await echoed(socket, "still"), "still");
    for (let at = 0; at < 5; at += 1) (await reverse(sides)).destroy();
    (await forward(sides, other)).destroy();
    assert.equal(await agent.health("/readyz"), "200 ok");

    process.kill(stopped.running.child.pid ?? 0, "SIGCONT");
    await over(lost);
    await until("both are connected", async () => (await serversOf(agent)) === 2, NOTICED);
    await until(
      "it has forgotten what it had",
      async () => (await stopped.metric("server_established_connections")) === 0,
    );
    // An earlier client may still use the link that died while the server was stopped.
    await until(
      "the agent's old link is noticed too",
      async () => (await stopped.metric("server_ready_backend_connections")) === 1,
      NOTICED,
    );
    (await forward(sides, stopped)).destroy();
    isOver = true;
    await talked;
  },
);

test(
  "links: an agent that is killed in the middle of a transfer is told to its clients within a second, and gauges return",
  TIMEOUT,
  async (t) => {
    const sides = await openSides(t);
    const server = await sides.server(...ALLOWED, "--mode=http-connect");
    const agent = await sides.agent("node1", server, ...REVERSE);
    const sockets = await Promise.all(Array.from({ length: 10 }, () => forward(sides, server)));
    const block = Buffer.alloc(1 << 16, 3);
    for (const socket of sockets) {
      const more = (): void => {
        while (socket.writable && socket.write(block)) {
          // until it is full
        }
      };
      socket.on("drain", more).resume();
      more();
    }
    await until("bytes come back", () => sockets.every(({ bytesRead }) => bytesRead > 1 << 20));
    const startedMs = performance.now();
    const ended = Promise.all(sockets.map(over));
    await agent.stop("SIGKILL");
    await ended;
    const ms = performance.now() - startedMs;
    assert.ok(ms < 1000, `the last client was told after ${ms} ms`);
    for (const gauge of ["established_connections", "http_connections", "pending_backend_dials", "buffered_bytes"]) {
      await until(`${gauge} is 0`, async () => (await server.metric(`server_${gauge}`)) === 0);
    }
  },
);

test("links: packets that are dropped without a word are detected by the kernel of both ends within a minute", {
  timeout: 180_000,
}, async (t) => {
  const sides = await openSides(t);
  const server = await sides.server(...ALLOWED, "--mode=http-connect");
  const agent = await sides.agent("node1", server, ...REVERSE);
  const outward = await forward(sides, server);
  sides.cut();
  // The server's kernel has bytes that nobody acknowledges, so it does not probe; the agent's has none.
  outward.write("lost");
  const startedMs = performance.now();
  await Promise.all([
    until("the server has given the agent up", async () => (await streamsOf(server)) === 0, { deadlineMs: 60_000 }),
    until("the agent has given the server up", async () => (await serversOf(agent)) === 0, { deadlineMs: 60_000 }),
    over(outward),
  ]);
  t.diagnostic(`noticed by both after ${Math.round(performance.now() - startedMs)} ms`);
  assert.match(await agent.health("/readyz"), /^503 /);
  sides.mend();
  await until("the agent is back", async () => (await agent.health("/readyz")).startsWith("200 "), NOTICED);
  (await forward(sides, server)).destroy();
});
