import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { type TestContext, test } from "node:test";
import type { ByteStream } from "#base/byte-stream";
import { IpAddress } from "#base/ip";
import { listenTcp, localEndpoint } from "#kernel/socket";
import { DescriptorWatch, epollStreamsFault, tcpStreams } from "./index.ts";

const TIMEOUT = { timeout: 20_000 };
const LOOPBACK = IpAddress.parse("127.0.0.1");
const KINDS = ["epoll", "node"] as const;
const descriptors = (): number => readdirSync("/proc/self/fd").length;
const tick = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Both ends of a connection, dialled and accepted by the streams of one kind. */
async function pair(
  t: TestContext,
  kind: (typeof KINDS)[number],
): Promise<{ readonly dialled: ByteStream; readonly accepted: ByteStream }> {
  const streams = tcpStreams(kind);
  const client = Promise.withResolvers<ByteStream>();
  const fd = listenTcp(LOOPBACK, 0, { noDelay: true });
  const { port } = localEndpoint(fd);
  const listener = streams.listen(fd, {
    onClient: (one, remote) => client.resolve(streams.adopt(one, remote)),
    onFault: client.reject,
    onError: client.reject,
  });
  t.after(() => listener.close());
  const source = IpAddress.parse("127.0.0.7");
  const dialled = await streams.connect({ address: LOOPBACK, port }, { source });
  const accepted = await client.promise;
  t.after(() => {
    dialled.destroy();
    accepted.destroy();
  });
  assert.deepEqual([accepted.remoteAddress, dialled.remotePort], ["127.0.0.7", port]);
  return { dialled, accepted };
}

async function textOf(stream: ByteStream): Promise<string> {
  let text = "";
  const ended = new Promise<void>((resolve) => stream.once("end", resolve));
  stream.on("data", (chunk) => {
    text += Buffer.from(chunk).toString("latin1");
  });
  stream.resume();
  await ended;
  return text;
}

for (const kind of KINDS) {
  test(
    `tcpStreams, ${kind}: bytes both ways, each direction ends for itself, and nothing is left`,
    TIMEOUT,
    async (t) => {
      const { dialled, accepted } = await pair(t, kind);
      const before = descriptors();
      const request = textOf(accepted);
      dialled.write(Buffer.from("request"));
      dialled.end();
      assert.equal(await request, "request");
      const answer = textOf(dialled);
      accepted.write(Buffer.alloc(1 << 20, "a"));
      accepted.end();
      assert.equal((await answer).length, 1 << 20);
      while (!dialled.closed || !accepted.closed) await tick();
      while (descriptors() > before - 2) await tick();
      assert.deepEqual([dialled.errored, accepted.errored], [undefined, undefined]);
    },
  );

  test(
    `tcpStreams, ${kind}: a reset is one for the peer, and the transport state counts acknowledged bytes`,
    TIMEOUT,
    async (t) => {
      const { dialled, accepted } = await pair(t, kind);
      dialled.write(Buffer.from("x"));
      while ((dialled.transport?.()?.ackedBytes ?? 0) < 1) await tick();
      accepted.resume();
      dialled.reset();
      while (!accepted.closed) await tick();
      assert.match(String(accepted.errored), /ECONNRESET/);
      assert.equal(dialled.transport?.(), undefined);
    },
  );

  test(
    `tcpStreams, ${kind}: a refusal has its errno, an abort its reason, and neither leaves a descriptor`,
    TIMEOUT,
    async () => {
      const { connect } = tcpStreams(kind);
      const fd = listenTcp(LOOPBACK, 0, {});
      const { port } = localEndpoint(fd);
      tcpStreams(kind)
        .listen(fd, { onClient: () => undefined, onFault: assert.fail, onError: assert.fail })
        .close();
      const before = descriptors();
      await assert.rejects(connect({ address: LOOPBACK, port }), /ECONNREFUSED/);
      const stop = new AbortController();
      const dialled = connect({ address: IpAddress.parse("127.0.0.2"), port }, { signal: stop.signal });
      stop.abort(new Error("left"));
      await assert.rejects(dialled, /left|ECONNREFUSED/);
      while (descriptors() > before) await tick();
    },
  );
}

test("epollStreamsFault: this runtime supports streams over epoll", () => {
  assert.equal(epollStreamsFault(), undefined);
});

test("epollStreamsFault: without a free descriptor the fault is its errno", () => {
  const program = `
    import { openSync } from "node:fs";
    import { epollStreamsFault } from "${new URL("./index.ts", import.meta.url).href}";
    try { for (;;) openSync("/dev/null"); } catch {}
    console.log(epollStreamsFault()?.errno);`;
  const { stdout, stderr } = spawnSync("sh", [
    "-c",
    'ulimit -n 64; exec "$0" --input-type=module -e "$1"',
    process.execPath,
    program,
  ]);
  assert.equal(stdout.toString().trim(), "EMFILE", stderr.toString());
});

test("DescriptorWatch: without the event loop's help the descriptor is checked every 200 ms", TIMEOUT, async () => {
  const before = descriptors();
  const fd = listenTcp(LOOPBACK, 0, {});
  const called = Promise.withResolvers<void>();
  const watch = new DescriptorWatch(fd, called.resolve, { isPolled: true });
  const alive = setTimeout(() => undefined, 10_000);
  await called.promise;
  clearTimeout(alive);
  watch[Symbol.dispose]();
  watch[Symbol.dispose]();
  assert.equal(descriptors(), before);
});

for (const kind of KINDS) {
  test(
    `tcpStreams, ${kind}: reads have the size that they are limited to, and a stream that pauses within one gets no other`,
    TIMEOUT,
    async (t) => {
      const { dialled, accepted } = await pair(t, kind);
      const lengths: number[] = [];
      let paused = Promise.withResolvers<void>();
      accepted.limitReads(100);
      accepted.on("data", (chunk) => {
        lengths.push(chunk.length);
        accepted.pause();
        paused.resolve();
      });
      accepted.resume();
      // Of Node.js's sockets the first read has its buffer already.
      dialled.write(Buffer.alloc(1));
      await paused.promise;
      assert.deepEqual(lengths.splice(0), [1]);
      paused = Promise.withResolvers<void>();
      accepted.resume();
      dialled.write(Buffer.alloc(250));
      await paused.promise;
      for (let turn = 0; turn < 5; turn += 1) await tick();
      assert.deepEqual(lengths, [100]);
      while (lengths.length < 3) {
        accepted.resume();
        await tick();
      }
      assert.deepEqual(lengths, [100, 100, 50]);
    },
  );
}
