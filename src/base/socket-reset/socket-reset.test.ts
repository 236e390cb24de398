import assert from "node:assert/strict";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { resetSocket } from "./index.ts";

async function pair(t: TestContext, path?: string): Promise<readonly [accepted: Socket, client: Socket]> {
  const server: Server = createServer({ allowHalfOpen: true, pauseOnConnect: true });
  await once(path === undefined ? server.listen(0, "127.0.0.1") : server.listen(path), "listening");
  const address = server.address();
  const client =
    typeof address === "string"
      ? connect(address)
      : connect({ port: address?.port ?? 0, host: "127.0.0.1", allowHalfOpen: true });
  client.on("error", () => undefined);
  const [accepted] = (await once(server, "connection")) as [Socket];
  accepted.on("error", (error) => assert.fail(error.message));
  t.after(() => {
    client.destroy();
    server.close();
  });
  return [accepted, client];
}

/** Sockets that Node holds open, so a descriptor that was left shows. */
const open = (): number => process.getActiveResourcesInfo().filter((one) => /TCPSocketWrap|PipeWrap/.test(one)).length;

test("resetSocket: the peer of an idle socket sees a reset", async (t) => {
  const [accepted, client] = await pair(t);
  const failed = once(client, "error");
  resetSocket(accepted);
  client.resume();
  const [error] = (await failed) as [NodeJS.ErrnoException];
  assert.equal(error.code, "ECONNRESET");
});

test("resetSocket: a socket that is ending, or that has bytes to flush, is closed and leaves no descriptor", async (t) => {
  const before = open();
  for (const prepare of [
    (socket: Socket): void => void socket.end(),
    (socket: Socket): void => void socket.end(Buffer.alloc(32 << 20)),
    (socket: Socket): void => void socket.write(Buffer.alloc(32 << 20)),
  ]) {
    const [accepted, client] = await pair(t);
    prepare(accepted);
    const closed = once(accepted, "close");
    resetSocket(accepted);
    await closed;
    client.destroy();
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.ok(open() <= before, `${open()} sockets are open, ${before} were`);
  }
});

test("resetSocket: a UNIX socket is closed", async (t) => {
  const path = join(tmpdir(), `isthmus-reset-${process.pid}.sock`);
  t.after(() => rmSync(path, { force: true }));
  const [accepted, client] = await pair(t, path);
  const closed = once(client, "close");
  client.resume();
  resetSocket(accepted);
  await closed;
  assert.equal(accepted.destroyed, true);
});

test("resetSocket: a pending connection is abandoned at once, not after an answer", async () => {
  const before = open();
  const late = connect({ port: 9, host: "127.0.0.1" });
  assert.equal(late.connecting, true);
  late.on("error", () => undefined);
  const closed = once(late, "close");
  resetSocket(late);
  assert.equal(late.destroyed, true);
  await closed;
  assert.equal(open(), before);
});
