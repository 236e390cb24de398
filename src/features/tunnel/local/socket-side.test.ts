import assert from "node:assert/strict";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { resetSocket } from "#base/socket-reset";
import { SocketSide } from "./socket-side.ts";

test("SocketSide: a reset of a UNIX socket, which has no reset, closes it", async (t) => {
  const path = join(tmpdir(), `isthmus-socket-end-${process.pid}.sock`);
  const server = createServer({ allowHalfOpen: true });
  await once(server.listen(path), "listening");
  t.after(() => {
    server.close();
    rmSync(path, { force: true });
  });
  const client = connect(path);
  const [accepted] = (await once(server, "connection")) as [Socket];
  const end = new SocketSide(accepted);
  end.watch({ onLocalEof: () => undefined, onLocalGone: () => undefined });
  end.destroy("reset");
  client.resume();
  await once(client, "close");
  assert.equal(accepted.destroyed, true);
});

for (const unread of [0, 1 << 20]) {
  test(`SocketSide: a reset of a paused socket is detected, with ${unread} bytes unread`, async (t) => {
    const accepted = Promise.withResolvers<Socket>();
    const server = createServer({ allowHalfOpen: true }, accepted.resolve);
    t.after(() => server.close());
    await once(server.listen(0, "127.0.0.1"), "listening");
    const peer = connect({ port: (server.address() as AddressInfo).port, host: "127.0.0.1" });
    const [socket] = await Promise.all([accepted.promise, once(peer, "connect")]);
    t.after(() => socket.destroy());
    const gone = Promise.withResolvers<string | undefined>();
    const end = new SocketSide(socket);
    end.start({
      onLocalData: () => end.pause(),
      onLocalEof: () => gone.reject(new Error("no end")),
      onLocalGone: gone.resolve,
    });
    end.pause();
    if (unread > 0) await new Promise((resolve) => peer.write(Buffer.alloc(unread), resolve));
    resetSocket(peer);
    assert.match((await gone.promise) ?? "", /connection reset by peer|broken pipe/);
  });
}

test("SocketSide: probing a paused socket sends nothing", async (t) => {
  const accepted = Promise.withResolvers<Socket>();
  const server = createServer({ allowHalfOpen: true }, accepted.resolve);
  t.after(() => server.close());
  await once(server.listen(0, "127.0.0.1"), "listening");
  const peer = connect({ port: (server.address() as AddressInfo).port, host: "127.0.0.1" });
  const socket = await accepted.promise;
  t.after(() => {
    socket.destroy();
    peer.destroy();
  });
  const probed = Promise.withResolvers<void>();
  const write = socket.write.bind(socket);
  t.mock.method(socket, "write", (bytes: Uint8Array) => {
    assert.equal(bytes.length, 0);
    probed.resolve();
    return write(bytes);
  });
  const end = new SocketSide(socket);
  end.start({
    onLocalData: () => undefined,
    onLocalEof: () => undefined,
    onLocalGone: () => probed.reject(new Error("it is gone")),
  });
  end.pause();
  await probed.promise;
  assert.deepEqual([peer.bytesRead, socket.destroyed], [0, false]);
});

test("SocketSide: a peer that sends byte for byte before the start is read to a bound, and all of it comes", async (t) => {
  const accepted = Promise.withResolvers<Socket>();
  const server = createServer({ allowHalfOpen: true }, accepted.resolve);
  t.after(() => server.close());
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  const peer = connect({ port, host: "127.0.0.1", noDelay: true });
  const socket = await accepted.promise;
  t.after(() => {
    socket.destroy();
    peer.destroy();
  });
  const side = new SocketSide(socket);
  side.watch({ onLocalEof: () => undefined, onLocalGone: () => undefined });
  const total = 2000;
  // Each of them is a read.
  for (let at = 0; at < total; at += 1) {
    const before = socket.bytesRead;
    peer.write(Buffer.of(at));
    for (let turns = 0; turns < 20 && socket.bytesRead === before; turns += 1)
      await new Promise((resolve) => setImmediate(resolve));
  }
  const calls: (readonly Uint8Array[])[] = [];
  const all = Promise.withResolvers<void>();
  side.start({
    onLocalData: (pieces) => {
      calls.push(pieces);
      if (Buffer.concat(calls.flat()).length === total) all.resolve();
    },
    onLocalEof: () => undefined,
    onLocalGone: () => all.reject(new Error("it is gone")),
  });
  await all.promise;
  assert.ok((calls[0]?.length ?? 0) <= 1024, `${calls[0]?.length} pieces were held`);
  assert.deepEqual(Buffer.concat(calls.flat()), Buffer.from(Array.from({ length: total }, (_, at) => at)));
});

test("SocketSide: an end after an error of the other side is no end in order for a peer that has bytes to read", async (t) => {
  const server = createServer({ allowHalfOpen: true });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const client = connect({ port: (server.address() as AddressInfo).port, host: "127.0.0.1", allowHalfOpen: true });
  client.on("error", () => undefined);
  t.after(() => {
    client.destroy();
    server.close();
  });
  const [accepted] = (await once(server, "connection")) as [Socket];
  const side = new SocketSide(accepted);
  side.start({ onLocalData: () => undefined, onLocalEof: () => undefined, onLocalGone: () => undefined });
  let isWritten = false;
  side.write([Buffer.alloc(64 << 20)], () => {
    isWritten = true;
  });
  side.finish("the link was lost", () => side.destroy("reset"));
  client.once("end", () => assert.fail("an end in order"));
  await new Promise((resolve) => client.resume().once("close", resolve));
  assert.equal(isWritten, true);
  assert.equal((client.errored as NodeJS.ErrnoException | null)?.code, "ECONNRESET");
});
