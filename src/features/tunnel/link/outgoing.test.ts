import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http2";
import { type AddressInfo, connect } from "node:net";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { createLogger } from "#base/log";
import { SystemNames } from "#base/names";
import { MetadataKey, TUNNEL_METHODS } from "#wire/konnectivity";
import { ServerSet } from "../agent/server-set.ts";
import { BufferBudget } from "../mux/budget.ts";
import { MUX_DEFAULTS } from "../mux/options.ts";
import { Counts } from "../testing/bed.ts";
import { openStream } from "./outgoing.ts";

/** Connects an agent to a server that answers with these headers. Resolves with the agent's first line of log. */
async function join(headers: readonly string[]): Promise<string> {
  const server = createServer();
  server.on("stream", (stream) => {
    stream.on("error", () => undefined);
    stream.respond([":status", "200", "content-type", "application/grpc", ...headers] as never);
  });
  server.on("session", (session) => session.on("error", () => undefined));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const { promise: line, resolve: write } = Promise.withResolvers<string>();
  const stop = new AbortController();
  const set = new ServerSet(
    {
      connect: async ({ signal }) => {
        const socket = connect(port, "127.0.0.1");
        await once(socket, "connect");
        const metadata = { [MetadataKey.agentID]: "one" };
        const options = { path: TUNNEL_METHODS.connect, authority: "localhost", timeoutMs: 5000, keepAliveMs: 0 };
        return openStream({ ...options, socket, metadata, clock: systemClock }, { signal });
      },
      metrics: new Counts().agent(),
      clock: systemClock,
      log: createLogger({ name: "agent", write }),
      budget: new BufferBudget(1 << 20),
      names: new SystemNames({ clock: systemClock }),
      onBug: (error) => assert.fail(String(error)),
    },
    {
      ...{ syncIntervalMs: 1000, syncIntervalCapMs: 10_000, reconnectJitterMs: 200, syncForever: false },
      ...{ capabilities: new Set<never>(), countSource: "default" },
      link: { mux: MUX_DEFAULTS, dialTimeoutMs: 5000, closeLingerMs: 1000 },
    },
  );
  const running = set.run({ signal: stop.signal });
  const first = await line;
  stop.abort();
  await running;
  for (const { mux } of set.links) mux.destroy({ code: 1, message: "the test is done" });
  server.close();
  return first;
}

test("openStream: an agent takes exactly one serverID and one serverCount, and gives up a server that sends more", async () => {
  assert.match(await join(["serverid", "a", "servercount", "1"]), /connected to a proxy server/);
  for (const headers of [
    ["serverid", "a", "serverid", "b", "servercount", "1"],
    ["serverid", "a", "serverid", "a", "servercount", "1"],
    ["serverid", "a", "servercount", "1", "servercount", "2"],
    ["serverid", "a"],
  ]) {
    assert.match(await join(headers), /exactly one serverID and one serverCount.*cannot connect/);
  }
});
