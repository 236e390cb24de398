import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { IpAddress, type IpFamily } from "#base/ip";
import { createLogger } from "#base/log";
import { until } from "#test/lab";
import { LocalNodePorts, RETRY_MS } from "./local-node-ports.ts";
import type { LocalPlan } from "./plan.ts";

const LOOPBACK = { 4: IpAddress.parse("127.0.0.1"), 6: IpAddress.parse("::1") } as const;

/** A server that answers with its name and what it got, after the client has ended its side. */
async function serve(t: TestContext, name: string, family: IpFamily = 4): Promise<{ readonly port: number }> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    let got = "";
    socket.setEncoding("utf8").on("data", (text: string) => {
      got += text;
    });
    socket.on("error", () => undefined).once("end", () => socket.end(`${name} ${got.length}`));
  });
  server.listen(0, String(LOOPBACK[family]));
  await once(server, "listening");
  t.after(() => server.close());
  return { port: (server.address() as AddressInfo).port };
}

async function freePort(): Promise<number> {
  const server: Server = createServer().listen(0, "::");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

function setUp(t: TestContext, options: { readonly maxConnections?: number } = {}) {
  const said: Record<string, unknown>[] = [];
  const clock = new FakeClock();
  const log = createLogger({ name: "t", write: (line) => void said.push(JSON.parse(line)) });
  const local = new LocalNodePorts({ log, clock, ...options });
  const stop = new AbortController();
  const running = local.run({ signal: stop.signal });
  t.after(async () => {
    stop.abort();
    await running;
  });
  return { local, clock, stop, running, messages: () => said.map(({ msg }) => msg) };
}

const plan = (nodePort: number, targets: Partial<Record<IpFamily, number>>, others = 0): LocalPlan => ({
  ports: new Map([
    [
      nodePort,
      {
        service: "ns/web",
        targets: new Map(
          Object.entries(targets).map(([key, port]) => {
            const family = Number(key) as IpFamily;
            return [family, { address: LOOPBACK[family], port }];
          }),
        ),
      },
    ],
  ]),
  others,
});

function client(family: IpFamily, port: number): Socket {
  return connect({ host: String(LOOPBACK[family]), port, allowHalfOpen: true });
}

/** Returns the answer to a text, or the error's code. */
async function ask(family: IpFamily, port: number, text = "hello"): Promise<string> {
  const socket = client(family, port);
  socket.end(text);
  try {
    return Buffer.concat((await socket.toArray()) as Buffer[]).toString();
  } catch (error) {
    return String((error as NodeJS.ErrnoException).code);
  }
}

test("LocalNodePorts: both loopback addresses lead to the Service, by their family where it has it; the ends of both sides are passed on", async (t) => {
  const [four, six] = [await serve(t, "four"), await serve(t, "six", 6)];
  const { local } = setUp(t);
  const port = await freePort();
  local.set(plan(port, { 4: four.port, 6: six.port }));
  await until("it listens", () => local.size === 2);
  assert.deepEqual([await ask(4, port), await ask(6, port)], ["four 5", "six 5"]);
  assert.equal(await ask(4, port, "x".repeat(3_000_000)), "four 3000000");
  local.set(plan(port, { 6: six.port }));
  assert.equal(await ask(4, port), "six 5", "a Service of the other family alone, without another listener");
  await until("nothing is left", () => local.connections === 0);
  local.set({ ports: new Map(), others: 0 });
  await until("it does not listen", () => local.size === 0);
  assert.equal(await ask(4, port), "ECONNREFUSED");
});

test("LocalNodePorts: a Service that refuses resets the client, and connections outlive the NodePort", async (t) => {
  const { port: target } = await serve(t, "web");
  const { local } = setUp(t);
  const port = await freePort();
  local.set(plan(port, { 4: await freePort() }));
  await until("it listens", () => local.size === 2);
  assert.equal(await ask(4, port), "ECONNRESET");
  local.set(plan(port, { 4: target }));
  const socket = client(4, port);
  socket.write("a");
  await until("it is connected", () => local.connections === 1);
  local.set({ ports: new Map(), others: 0 });
  await until("it does not listen", () => local.size === 0);
  socket.end("b");
  assert.equal(Buffer.concat((await socket.toArray()) as Buffer[]).toString(), "web 2");
});

test("LocalNodePorts: beyond the limit, of which an address has half, connections are reset; at the end all are closed, and UDP is a warning once", async (t) => {
  const { port: target } = await serve(t, "web");
  const { local, stop, running, messages } = setUp(t, { maxConnections: 4 });
  const port = await freePort();
  for (let at = 0; at < 2; at += 1) local.set(plan(port, { 4: target }, 3));
  await until("it listens", () => local.size === 2);
  const held = [client(4, port), client(4, port)];
  await until("both are there", () => local.connections === 2);
  assert.equal(await ask(4, port), "ECONNRESET");
  assert.equal(await ask(6, port), "web 5", "another address");
  assert.deepEqual(messages(), [
    "NodePorts of UDP and SCTP are not served at loopback addresses; those of TCP are",
    "too many connections to NodePorts at loopback addresses: new ones are reset",
  ]);
  const ended = held.map((socket) => once(socket.resume(), "end"));
  stop.abort();
  await Promise.all([running, ...ended]);
  for (const socket of held) socket.destroy();
});

test("LocalNodePorts: a port that another program has is logged once, and served when it is free", async (t) => {
  const { port: target } = await serve(t, "web");
  const { local, clock, messages } = setUp(t);
  const thief = createServer().listen(0, "127.0.0.1");
  await once(thief, "listening");
  const { port } = thief.address() as AddressInfo;
  local.set(plan(port, { 4: target }));
  await until("::1 is served", () => local.size === 1);
  await clock.advance(RETRY_MS * 3);
  assert.deepEqual(messages(), ["cannot listen for a NodePort at a loopback address; trying again"]);
  thief.close();
  await once(thief, "close");
  await clock.advance(RETRY_MS);
  await until("both are", () => local.size === 2);
  assert.equal(await ask(4, port), "web 5");
});
