// alone: it measures time or memory, which other work on the machine changes
/** docs/spec/tunnel.md#11 and #15.A: agents and servers behind one balancer, and servers that start and stop. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { until } from "#test/lab";
import { connectThrough, ProxyBed, type ProxyProcess, type ProxyServerProcess, roundTrip } from "#test/proxies";

const TIMEOUT = { timeout: 90_000 };
const READY = 'server_ready_backends{proxy_strategy="default"}';

/** A balancer: round robin; a server that refuses is skipped, as after a failed health check. */
class Balancer {
  readonly backends: number[] = [];
  port = 0;
  #turn = 0;

  static async open(t: TestContext): Promise<Balancer> {
    const balancer = new Balancer();
    const sockets = new Set<Socket>();
    const server = createServer((client) => {
      const backend = connect(balancer.#next(), "127.0.0.1");
      for (const [one, other] of [
        [client, backend],
        [backend, client],
      ] as const) {
        sockets.add(one);
        one.on("error", () => other.destroy()).on("close", () => other.destroy());
        one.pipe(other);
      }
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    balancer.port = (server.address() as AddressInfo).port;
    t.after(() => {
      for (const socket of sockets) socket.destroy();
      server.close();
    });
    return balancer;
  }

  #next(): number {
    this.#turn += 1;
    return this.backends[this.#turn % this.backends.length] ?? 1;
  }
}

interface World {
  readonly bed: ProxyBed;
  readonly balancer: Balancer;
  /** Starts a server with this server count, and adds it to the balancer. */
  server(count: number): Promise<ProxyServerProcess>;
  agent(...args: string[]): Promise<ProxyProcess>;
}

async function world(t: TestContext): Promise<World> {
  const balancer = await Balancer.open(t);
  const bed = await ProxyBed.open();
  t.after(() => bed[Symbol.asyncDispose]());
  return {
    bed,
    balancer,
    server: async (count) => {
      const server = await bed.server(["--mode=http-connect", `--server-count=${count}`]);
      balancer.backends.push(server.agentPort);
      return server;
    },
    agent: (...args) => bed.agent([{ agentPort: balancer.port }], ["--sync-interval-cap=500ms", ...args]),
  };
}

async function haveAgents(servers: readonly ProxyServerProcess[], count: number): Promise<void> {
  for (const server of servers) {
    await until(`the server has ${count} agents`, async () => (await server.metric(READY)) === count, {
      deadlineMs: 20_000,
    });
  }
}

/** A server counts a stream a moment before its agent does. */
function hasServers(agent: ProxyProcess, count: number): Promise<void> {
  return until(`it has ${count} servers`, async () => (await agent.metric("agent_open_server_connections")) === count);
}

async function works({ bed }: World, servers: readonly ProxyServerProcess[], echo: number): Promise<void> {
  for (const server of servers) {
    const socket = await bed.dial(server.udsPath);
    assert.match(await connectThrough(socket, `127.0.0.1:${echo}`), /^HTTP\/1\.1 200 /);
    assert.equal(await roundTrip(socket, "hello"), "hello");
    socket.destroy();
  }
}

test(
  "ha: behind one balancer every server gets every agent; servers that are killed and added are noticed",
  TIMEOUT,
  async (t) => {
    const here = await world(t);
    const servers = [await here.server(3), await here.server(3), await here.server(3)];
    const agents = [await here.agent("--agent-id=one"), await here.agent("--agent-id=two")];
    await haveAgents(servers, 2);
    const echo = await here.bed.echo();
    await works(here, servers, echo);
    for (const agent of agents) await hasServers(agent, 3);

    const [gone, ...left] = servers;
    assert.ok(gone !== undefined);
    here.balancer.backends.splice(here.balancer.backends.indexOf(gone.agentPort), 1);
    await gone.stop("SIGKILL");
    for (const agent of agents) {
      await hasServers(agent, 2);
      assert.equal(await agent.health("/readyz"), "200 ok");
    }
    await works(here, left, echo);

    const added = await here.server(3);
    await haveAgents([...left, added], 2);
    await works(here, [...left, added], echo);
    for (const agent of agents) await hasServers(agent, 3);
  },
);

test(
  "ha: one server that knows of more is enough for the agents to look for them, and none is looked for beyond the count",
  TIMEOUT,
  async (t) => {
    const here = await world(t);
    // The first two have an old count: they report one server.
    const servers = [await here.server(1), await here.server(1)];
    const agent = await here.agent();
    await until("it is connected", async () => (await agent.health("/readyz")) === "200 ok");
    assert.equal(await agent.metric("agent_open_server_connections"), 1);
    assert.equal(await agent.metric("agent_known_server_count"), 1);

    const everywhere = await here.agent("--sync-forever");
    await hasServers(everywhere, 2);
    const third = await here.server(3);
    await hasServers(everywhere, 3);
    await until("it knows of three", async () => (await everywhere.metric("agent_known_server_count")) === 3);
    await until("it knows of three", async () => (await everywhere.metric("agent_known_server_count")) === 3);
    assert.equal(await agent.metric("agent_open_server_connections"), 1);
    await works(here, [third], await here.bed.echo());
    assert.equal(servers.length, 2);
  },
);
