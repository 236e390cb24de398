import assert from "node:assert/strict";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { KubeClient, resources, staticConnection } from "./index.ts";

/** A port of loopback on which a server is, or is not. */
class Gate implements AsyncDisposable {
  connections = 0;
  port = 0;
  #server: Server | undefined;

  async open(): Promise<void> {
    const server = createServer((_request, response) =>
      response.end(JSON.stringify({ kind: "Node", metadata: { name: "n", uid: "u", resourceVersion: "1" } })),
    );
    server.on("connection", () => {
      this.connections += 1;
    });
    await new Promise<void>((resolve) => server.listen(this.port, "127.0.0.1", resolve));
    this.port = (server.address() as AddressInfo).port;
    this.#server = server;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    this.#server = undefined;
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    server.closeAllConnections();
    await closed;
  }
}

test("whenOpen: one probe for all that wait, within a second of the server's return, and its connection is used", async () => {
  await using gate = new Gate();
  await gate.open();
  const server = `http://127.0.0.1:${gate.port}`;
  await using client = new KubeClient(staticConnection({ server }), { clock: systemClock });
  await client.get(resources.nodes, { name: "n" });
  await gate[Symbol.asyncDispose]();
  await assert.rejects(client.get(resources.nodes, { name: "n" }), { code: "unreachable" });
  const waiting = [1, 2, 3, 4].map(() => client.whenOpen());
  gate.connections = 0;
  await gate.open();
  const startedAt = performance.now();
  assert.deepEqual(new Set(await Promise.all(waiting)), new Set(["returned"]));
  const tookMs = performance.now() - startedAt;
  assert.ok(tookMs < 1300, `${tookMs} ms`);
  await client.get(resources.nodes, { name: "n" });
  assert.equal(gate.connections, 1);
});

test("whenOpen: an open port resolves at once; an abort, or closing the client, ends the probe", async () => {
  await using gate = new Gate();
  await gate.open();
  await using client = new KubeClient(staticConnection({ server: `http://127.0.0.1:${gate.port}` }), {
    clock: systemClock,
  });
  assert.equal(await client.whenOpen(), "open");
  await gate[Symbol.asyncDispose]();
  const stop = new AbortController();
  const [first, second] = [client.whenOpen({ signal: stop.signal }), client.whenOpen()];
  const reason = new Error("enough");
  stop.abort(reason);
  await assert.rejects(first, reason);
  await client.close();
  await assert.rejects(second, { code: "unreachable" });
  await assert.rejects(client.whenOpen(), { code: "unreachable" });
});
