import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { ConnectionLimit, type ConnectionLimitOptions } from "./index.ts";

const MAX = 3;
const ASK = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

/** A server that answers a request when the test decides. */
async function serve(t: TestContext, whenAllBusy: ConnectionLimitOptions["whenAllBusy"]) {
  const limit = new ConnectionLimit(MAX, { whenAllBusy });
  const asked: ServerResponse[] = [];
  const server = createServer((request, response) => {
    limit.busy(request, response);
    asked.push(response);
  });
  server.on("connection", (socket) => limit.admit(socket));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  t.after(() => limit.destroyAll());
  const { port } = server.address() as AddressInfo;
  return {
    limit,
    asked,
    /** A client whose connection the server has seen. */
    async come(): Promise<Socket> {
      const accepted = once(server, "connection");
      const client = connect(port, "127.0.0.1");
      client.on("error", () => client.destroy()).resume();
      await accepted;
      return client;
    },
    /** The client's request, once the server has it. */
    async ask(client: Socket): Promise<void> {
      const requested = once(server, "request");
      client.write(ASK);
      await requested;
    },
  };
}

const closed = async (client: Socket): Promise<void> => {
  if (!client.closed) await once(client, "close");
};

/** Answers one, and comes back when its connection is without a request. */
async function answer(response: ServerResponse | undefined): Promise<void> {
  assert.ok(response !== undefined);
  const done = once(response, "close");
  response.end();
  await done;
}

test("ConnectionLimit: at the limit the connection that was without a request for longest is ended", async (t) => {
  for (const whenAllBusy of ["refuse-next", "end-oldest"] as const) {
    const { limit, asked, come, ask } = await serve(t, whenAllBusy);
    const [first, second, third] = [await come(), await come(), await come()];
    await ask(first);
    await answer(asked[0]);
    // The first is idle again, and has been for the shortest time.
    for (const ended of [second, third, first]) {
      const next = await come();
      await closed(ended);
      assert.equal(limit.size, MAX);
      await ask(next);
    }
  }
});

test("ConnectionLimit: a connection with two requests has one until both are answered", async (t) => {
  const { asked, come, ask } = await serve(t, "refuse-next");
  const clients = [await come(), await come(), await come()];
  for (const client of clients) await ask(client);
  await ask(clients[0] ?? assert.fail());
  await answer(asked[0]);
  await closed(await come());
  await answer(asked[3]);
  await come();
  await closed(clients[0] ?? assert.fail());
});

test("ConnectionLimit: where all have a request, the next is refused or the oldest ended, as was chosen", async (t) => {
  for (const whenAllBusy of ["refuse-next", "end-oldest"] as const) {
    const { limit, come, ask } = await serve(t, whenAllBusy);
    const clients = [await come(), await come(), await come()];
    for (const client of clients) await ask(client);
    const next = await come();
    await closed(whenAllBusy === "refuse-next" ? next : (clients[0] ?? assert.fail()));
    assert.equal(limit.size, MAX);
    assert.deepEqual(
      clients.map((client) => client.closed),
      [whenAllBusy === "end-oldest", false, false],
    );
    assert.equal(next.closed, whenAllBusy === "refuse-next");
  }
});

test("ConnectionLimit: a connection that has ended is not counted; destroyAll ends all", async (t) => {
  const { limit, come } = await serve(t, "refuse-next");
  const clients = [await come(), await come()];
  clients[0]?.destroy();
  while (limit.size > 1) await new Promise((resolve) => setImmediate(resolve));
  limit.destroyAll();
  await closed(clients[1] ?? assert.fail());
  while (limit.size > 0) await new Promise((resolve) => setImmediate(resolve));
});
