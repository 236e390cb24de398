import assert from "node:assert/strict";
import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createSecureServer, type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { systemClock } from "#base/clock";
import { createAuthority, issueServerCertificate } from "#base/x509";
import { KubeClient, resources, staticConnection } from "./index.ts";
import { rejectsWith } from "./testing/scripted-server.ts";

const TIMEOUT = { timeout: 20_000 };

async function listen(t: TestContext, server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return (server.address() as AddressInfo).port;
}

/**
 * An API server behind an address whose connections can lose their way, without a reset: what is sent over them goes nowhere. Go's server
 * chooses HTTP/2, as here. It answers for the node `n` at once, for `later` after 500 ms, and for others never. A watch is accepted, and silent.
 */
async function serverBehindAddress(t: TestContext, version: "1.1" | "2.0") {
  const names = { organization: "test", notBefore: Date.now() - 3_600_000, notAfter: Date.now() + 3_600_000 };
  const ca = createAuthority({ commonName: "ca", ...names });
  const { cert, key } = issueServerCertificate(ca, { hosts: ["127.0.0.1"], ...names });
  const answer = (
    request: IncomingMessage | Http2ServerRequest,
    response: ServerResponse | Http2ServerResponse,
  ): void => {
    assert.equal(request.httpVersion, version);
    if (request.url?.includes("watch=true")) {
      const stream = response as ServerResponse;
      stream.write("\n");
      return;
    }
    const name = request.url?.split("/").at(-1);
    if (name !== "n" && name !== "later") return;
    response.setHeader("content-type", "application/json");
    const body = JSON.stringify({ kind: "Node", metadata: { name, resourceVersion: "1" } });
    setTimeout(() => response.end(body), name === "later" ? 500 : 0);
  };
  const server =
    version === "2.0" ? createSecureServer({ cert, key }, answer) : createHttpsServer({ cert, key }, answer);
  const target = await listen(t, server);
  const dials: Socket[] = [];
  const lost = new Set<Socket>();
  const address = createServer((near) => {
    dials.push(near);
    const far = connect(target, "127.0.0.1");
    const relay = (from: Socket, to: Socket): void => {
      from.on("data", (bytes) => lost.has(near) || to.write(bytes));
      // A reset is an end too.
      from.on("error", () => undefined).on("close", () => lost.has(near) || to.destroy());
      t.after(() => from.destroy());
    };
    relay(near, far);
    relay(far, near);
  });
  const port = await listen(t, address);
  const connection = staticConnection({ server: `https://127.0.0.1:${port}`, token: "t0ken", ca: ca.cert });
  const client = new KubeClient(connection, { clock: systemClock });
  t.after(() => client[Symbol.asyncDispose]());
  return {
    dials,
    lose: () => {
      for (const socket of dials) lost.add(socket);
    },
    get: (name: string, timeoutMs: number) => client.get(resources.nodes, { name }, { timeoutMs }),
    watch: async (idleTimeoutMs: number): Promise<void> => {
      for await (const _event of client.watch(resources.nodes, { idleTimeoutMs, timeoutMs: 1000 }));
    },
  };
}

for (const version of ["1.1", "2.0"] as const) {
  test(`timeout: the next request has a new connection, over HTTP/${version}`, TIMEOUT, async (t) => {
    const { dials, lose, get } = await serverBehindAddress(t, version);
    await Promise.all([get("n", 5000), get("n", 5000)]);
    // One that answers early may take both requests; the connection for the other one is then there a moment later. undici uses a connection
    // again after a whole turn of the event loop: if both were answered in one turn, a request in the same turn would make a third connection.
    do await new Promise<void>((resolve) => setImmediate(resolve));
    while (dials.length < (version === "1.1" ? 2 : 1));
    const closed = dials.map((socket) => once(socket, "close"));
    lose();
    await rejectsWith(get("n", 300), "timeout", /in 300 ms/);
    await get("n", 5000);
    assert.equal(dials.length, closed.length + 1);
    await Promise.all(closed);
  });
}

test("timeout: other requests of the connection go on, over HTTP/2.0", TIMEOUT, async (t) => {
  const { dials, get } = await serverBehindAddress(t, "2.0");
  await get("n", 5000);
  const before = dials.length;
  const later = get("later", 5000);
  await rejectsWith(get("never", 100), "timeout", /in 100 ms/);
  assert.equal((await later).metadata.name, "later");
  await get("n", 5000);
  await get("n", 5000);
  assert.equal(dials.length, before + 1);
});

test(
  "watch: silence for the idle time keeps a good connection; the next watch gives a dead one up, over HTTP/2.0",
  TIMEOUT,
  async (t) => {
    const { dials, lose, get, watch } = await serverBehindAddress(t, "2.0");
    const silence = (): Promise<void> => rejectsWith(watch(300), "unreachable", /sent nothing for 300 ms/);
    await silence();
    await silence();
    assert.equal(dials.length, 1);
    const silent = silence();
    // The watch is accepted by the time that this is answered.
    await get("n", 5000);
    lose();
    await silent;
    const before = dials.length;
    await rejectsWith(watch(300), "timeout", /in 1000 ms/);
    await silence();
    assert.equal(dials.length, before + 1);
  },
);
