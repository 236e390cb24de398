import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { type ByteStream, NodeStream } from "./index.ts";

const TIMEOUT = { timeout: 20_000 };

async function pair(t: TestContext): Promise<{ stream: ByteStream; peer: Socket }> {
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }).listen(0, "127.0.0.1");
  t.after(() => server.close());
  await once(server, "listening");
  const connection = once(server, "connection");
  const peer = connect({ port: (server.address() as AddressInfo).port, host: "127.0.0.1", allowHalfOpen: true });
  const [socket] = (await connection) as [Socket];
  t.after(() => {
    socket.destroy();
    peer.destroy();
  });
  return { stream: new NodeStream(socket), peer };
}

const emitted = (stream: ByteStream, event: "end" | "close" | "drain" | "finish"): Promise<void> =>
  new Promise((resolve) => {
    if (event === "close" && stream.closed) resolve();
    else stream.once(event, () => resolve());
  });

test("NodeStream: the caller may reuse written bytes, even before the peer reads", TIMEOUT, async (t) => {
  const { stream, peer } = await pair(t);
  peer.pause();
  const chunk = Buffer.alloc(1 << 20);
  let sum = 0;
  let wanted = 0;
  for (let value = 1; ; value += 1) {
    chunk.fill(value);
    wanted += value * chunk.length;
    const goes = stream.write(chunk);
    chunk.fill(0);
    if (!goes && value > 16) break;
  }
  assert.ok(stream.writableNeedDrain && stream.writableLength > 0);
  peer.on("data", (bytes: Buffer) => {
    for (const byte of bytes) sum += byte;
  });
  stream.end();
  peer.resume();
  await once(peer, "end");
  assert.equal(sum, wanted);
});

test("NodeStream: paused at first, each way ends for itself, then it is closed in order", TIMEOUT, async (t) => {
  const { stream, peer } = await pair(t);
  let text = "";
  stream.on("data", (chunk) => {
    text += Buffer.from(chunk).toString();
  });
  peer.end("question");
  await once(peer, "finish");
  for (let tick = 0; tick < 10; tick += 1) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(text, "");
  stream.resume();
  await emitted(stream, "end");
  assert.deepEqual([text, stream.readableEnded, stream.destroyed], ["question", true, false]);
  assert.deepEqual([stream.remotePort, stream.remoteAddress], [peer.localPort, "127.0.0.1"]);
  assert.deepEqual([stream.localPort, stream.localAddress], [peer.remotePort, "127.0.0.1"]);
  const answered = once(peer, "data");
  stream.end(Buffer.from("answer"));
  assert.equal(String((await answered)[0]), "answer");
  await emitted(stream, "close");
  assert.deepEqual([stream.closed, stream.writableFinished, stream.errored], [true, true, undefined]);
});

test(
  "NodeStream: a reset by the peer closes it with an error that needs no listener; its own reset is an error for the peer",
  TIMEOUT,
  async (t) => {
    const lost = await pair(t);
    lost.stream.resume();
    lost.peer.resetAndDestroy();
    await emitted(lost.stream, "close");
    assert.equal((lost.stream.errored as NodeJS.ErrnoException | undefined)?.code, "ECONNRESET");
    const cut = await pair(t);
    const failed = once(cut.peer, "error");
    cut.stream.reset();
    assert.equal(((await failed)[0] as NodeJS.ErrnoException).code, "ECONNRESET");
  },
);
