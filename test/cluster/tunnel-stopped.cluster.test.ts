// quiet: it measures time, and uses little of the processor
/** An agent that is alive and does nothing is lost to its server, and is back when it continues (docs/spec/tunnel.md). */
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "#test/lab";
import { connectThrough, ProxyBed } from "#test/proxies";

test("tunnel: an agent that is stopped is detected by keepalive, its clients end, and it connects again when it continues", {
  timeout: 120_000,
}, async () => {
  await using bed = await ProxyBed.open();
  const server = await bed.server(["--mode=http-connect", "--keepalive-time=1s"]);
  const agent = await bed.agent([server]);
  await until("the agent is ready", async () => (await agent.health("/readyz")).startsWith("200 "));
  const echo = await bed.echo();
  const open = async () => {
    const dialled = await bed.dial(server.udsPath);
    assert.match(await connectThrough(dialled, `127.0.0.1:${echo}`), /^HTTP\/1\.1 200 /);
    return dialled;
  };
  const socket = await open();
  // A UNIX socket cannot be reset: its client sees the end.
  const closed = new Promise<void>((resolve) => socket.once("end", () => resolve()));
  socket.resume();
  process.kill(agent.running.child.pid ?? 0, "SIGSTOP");
  // A second of silence, and twenty for the answer to a PING.
  const streams = async (): Promise<number> => server.metric('server_grpc_connections{service_method="Connect"}');
  await until("the server has given the agent up", async () => (await streams()) === 0, { deadlineMs: 30_000 });
  await closed;
  assert.equal(await server.metric("server_established_connections"), 0);
  assert.match(await server.health("/readyz"), /^500 /);
  process.kill(agent.running.child.pid ?? 0, "SIGCONT");
  await until("the agent is back", async () => (await streams()) === 1, { deadlineMs: 15_000 });
  await until(
    "its old connections are gone",
    async () => (await agent.metric("agent_open_endpoint_connections")) === 0,
  );
  const again = await open();
  again.write("hello");
  await until("it works", () => again.read() !== null);
});
