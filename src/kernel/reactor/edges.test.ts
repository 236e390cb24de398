import assert from "node:assert/strict";
import { once } from "node:events";
import { closeSync, openSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { IpAddress } from "#base/ip";
import { KernelError } from "#kernel/errors";
import { beginConnect, C, close, encodeSockaddr, send, setsockopt } from "#kernel/ffi";
import { listenTcp, localEndpoint, openTcp } from "#kernel/socket";
import { closeReactor, connectTcp, TcpListener, TcpStream } from "./index.ts";
import type { StreamSocket } from "./stream-socket.ts";
import { ownPair, PAIRS, ticks } from "./testing/own-pair.ts";

const TIMEOUT = { timeout: 20_000 };
const LOOPBACK = IpAddress.parse("127.0.0.1");
const MSG_OOB = 1;

const KINDS = ["TcpStream", "UnixStream"] as const;

async function pair(t: TestContext, kind: keyof typeof PAIRS = "TcpStream"): Promise<[StreamSocket, StreamSocket]> {
  const made = await PAIRS[kind]();
  t.after(() => {
    for (const stream of made) stream.destroy();
  });
  return made;
}

/** A reactor made after one was closed does its work. */
async function carriesAgain(): Promise<void> {
  const [next, other] = await ownPair();
  const heard = once(other as never, "data");
  other.resume();
  next.write(Buffer.from("again"));
  await heard;
  for (const stream of [next, other]) stream.destroy();
}

const emitted = (stream: StreamSocket, event: "end" | "close" | "drain" | "finish"): Promise<void> =>
  new Promise((resolve) => stream.once(event, () => resolve()));

for (const kind of KINDS) {
  test(`${kind}: the peer's end is emitted once, though 'drain' comes after it`, TIMEOUT, async (t) => {
    const [ours, peer] = await pair(t, kind);
    setsockopt(ours.fd, C.SOL_SOCKET, C.SO_SNDBUF, 4608);
    let ends = 0;
    ours.on("end", () => {
      ends += 1;
    });
    ours.resume();
    const ended = emitted(ours, "end");
    peer.end();
    await ended;
    let heard = 0;
    peer.on("data", (chunk) => {
      heard += chunk.length;
    });
    for (let round = 0; round < 4; round += 1) {
      const drained = emitted(ours, "drain");
      while (ours.write(Buffer.alloc(65_536)));
      peer.resume();
      await drained;
    }
    const closed = [emitted(ours, "close"), emitted(peer, "close")];
    ours.end();
    await Promise.all(closed);
    assert.equal(ends, 1);
    assert.ok(heard >= 4 * 65_536);
  });
}

for (const kind of KINDS) {
  test(`${kind}: a listener that ends the stream at 'end' gets 'finish', then 'close'`, TIMEOUT, async (t) => {
    const [ours, peer] = await pair(t, kind);
    const events: string[] = [];
    for (const event of ["end", "finish", "close"] as const) ours.on(event, () => events.push(event));
    ours.once("end", () => ours.end());
    ours.resume();
    const closed = emitted(ours, "close");
    peer.end();
    await closed;
    assert.deepEqual([events, ours.errored], [["end", "finish", "close"], undefined]);
  });
}

for (const kind of KINDS) {
  test(`${kind}: a stream's end is emitted before the reaction of its peer to it`, TIMEOUT, async (t) => {
    const [ours, peer] = await pair(t, kind);
    const [next, client] = await pair(t, kind);
    const events: string[] = [];
    const heard = emitted(next, "end");
    ours.on("close", () => events.push("close"));
    next.on("data", () => events.push("data"));
    next.resume();
    await ticks(2);
    // Timers run between two ticks: all of this is there when the next tick begins.
    await new Promise<void>((resolve) =>
      setTimeout(() => {
        ours.destroy();
        send(client.fd, Buffer.from("I saw you go"), { flags: 0 });
        resolve();
      }, 5),
    );
    client.end();
    await heard;
    assert.deepEqual(events, ["close", "data"]);
    peer.destroy();
  });
}

test("closeReactor: a listener that is called before the next poll may close it", TIMEOUT, async () => {
  const [ours, peer] = await ownPair();
  const closed = emitted(peer, "close");
  ours.on("close", () => closeReactor());
  await new Promise<void>((resolve) =>
    setTimeout(() => {
      ours.destroy();
      resolve();
    }, 5),
  );
  await closed;
  await ticks(3);
  await carriesAgain();
});

test("TcpStream: bytes behind urgent data are read, though nothing more comes", TIMEOUT, async (t) => {
  const [ours, peer] = await pair(t);
  let text = "";
  ours.on("data", (chunk) => {
    text += Buffer.from(chunk).toString();
  });
  peer.write(Buffer.from("before"));
  send(peer.fd, Buffer.from("!"), { flags: MSG_OOB });
  peer.write(Buffer.from("behind"));
  await ticks(5);
  ours.resume();
  while (text.length < 12) await ticks(1);
  assert.equal(text, "beforebehind");
});

for (const kind of KINDS) {
  test(
    `${kind}: a peer that has ended and then resets is lost at once, though nothing is sent to it`,
    TIMEOUT,
    async (t) => {
      const [ours, peer] = await pair(t, kind);
      ours.resume();
      const ended = emitted(ours, "end");
      const closed = emitted(ours, "close");
      peer.end();
      await ended;
      peer.reset();
      await closed;
      assert.ok(ours.errored instanceof KernelError);
      assert.ok(["EPIPE", "ECONNRESET"].includes(ours.errored.errno ?? ""), ours.errored.errno);
    },
  );
}

test(
  "closeReactor: streams emit `close`, dials fail, and later descriptors with their numbers are left alone",
  TIMEOUT,
  async () => {
    const [ours, peer] = await ownPair();
    peer.pause();
    while (ours.write(Buffer.alloc(1 << 20)));
    const listening = listenTcp(LOOPBACK, 0);
    const { port } = localEndpoint(listening);
    const listener = new TcpListener(listening, { onClient: assert.fail, onFault: assert.fail, onError: assert.fail });
    const dial = connectTcp({ address: LOOPBACK, port });
    const closed = [emitted(ours, "close"), emitted(peer, "close")];
    closeReactor();
    await assert.rejects(dial, (error: unknown) => error instanceof KernelError && error.code === "failed");
    const path = join(tmpdir(), `isthmus-reactor-${process.pid}`);
    const files = Array.from({ length: 8 }, () => openSync(path, "w"));
    try {
      assert.ok(files.includes(ours.fd), "the number is somebody else's now");
      assert.deepEqual([ours.destroyed, peer.destroyed], [true, true]);
      for (const stream of [ours, peer]) {
        stream.resume();
        stream.write(Buffer.from("to nobody"));
        stream.keepAlive(1000);
        stream.end();
        stream.reset();
      }
      listener.close();
      await Promise.all(closed);
      await ticks(3);
      assert.equal(readFileSync(path, "utf8"), "");
    } finally {
      for (const file of files) closeSync(file);
      rmSync(path);
    }
    await carriesAgain();
  },
);

for (const kind of KINDS) {
  test(`${kind}: a listener may close streams whose events are of the same tick`, TIMEOUT, async (t) => {
    const [ours, peer] = await pair(t, kind);
    const [third, fourth] = await pair(t, kind);
    ours.on("data", () => {
      // Events of these are in the same tick.
      third.destroy();
      fourth.destroy();
      ours.destroy();
    });
    third.on("data", () => assert.fail("destroyed streams are silent"));
    for (const stream of [ours, third]) stream.resume();
    const closed = [emitted(ours, "close"), emitted(third, "close"), emitted(fourth, "close")];
    peer.write(Buffer.from("x"));
    fourth.write(Buffer.from("y"));
    await Promise.all(closed);
  });
}

test("beginConnect: a second call returns the present state", TIMEOUT, async () => {
  const listening = listenTcp(LOOPBACK, 0);
  const to = encodeSockaddr(localEndpoint(listening));
  const fd = openTcp(4);
  const first = beginConnect(fd, to);
  assert.ok(first === 0 || first === -115, String(first));
  while (beginConnect(fd, to) !== 0) await ticks(1);
  assert.equal(beginConnect(fd, to), 0);
  close(fd);
  close(listening);
});

test(
  "connectTcp: aborted at any moment it leaves nothing, and after it has connected nothing happens",
  TIMEOUT,
  async () => {
    const [warm, other] = await ownPair();
    for (const stream of [warm, other]) stream.destroy();
    const before = readdirSync("/proc/self/fd").length;
    const listening = listenTcp(LOOPBACK, 0);
    const { port } = localEndpoint(listening);
    for (let moment = 0; moment < 6; moment += 1) {
      const stop = new AbortController();
      const dial = connectTcp({ address: LOOPBACK, port }, { signal: stop.signal });
      const settled = dial.then(
        (stream) => stream,
        (error: unknown) => error,
      );
      await ticks(moment);
      stop.abort(new Error("enough"));
      const outcome = await settled;
      if (outcome instanceof TcpStream) {
        assert.equal(outcome.destroyed, false);
        outcome.destroy();
      } else assert.match(String(outcome), /enough/);
    }
    close(listening);
    assert.equal(readdirSync("/proc/self/fd").length, before);
  },
);

test(
  "closeReactor: a stream whose descriptor number was reused emits its close, though it is destroyed after that",
  TIMEOUT,
  async () => {
    const [ours, peer] = await ownPair();
    const closed = emitted(ours, "close");
    closeSync(ours.fd);
    const others = await ownPair();
    assert.ok(others.some(({ fd }) => fd === ours.fd));
    closeReactor();
    ours.destroy();
    await closed;
    assert.deepEqual([ours.closed, peer.destroyed], [true, true]);
  },
);

test(
  "reactor: bytes that a client sent before it was accepted are read in the tick that accepts it",
  TIMEOUT,
  async (t) => {
    const fd = listenTcp(LOOPBACK, 0);
    const { port } = localEndpoint(fd);
    const heard: string[] = [];
    const done = Promise.withResolvers<void>();
    // Nobody accepts yet.
    const dialled = await connectTcp({ address: LOOPBACK, port });
    t.after(() => dialled.destroy());
    dialled.write(Buffer.from("first words"));
    const listener = new TcpListener(fd, {
      onClient: (accepted, remote) => {
        const stream = TcpStream.adopt(accepted, remote);
        t.after(() => stream.destroy());
        stream.on("data", (chunk) => heard.push(Buffer.from(chunk).toString()));
        stream.resume();
        setImmediate(() => {
          heard.push("the next tick");
          done.resolve();
        });
      },
      onFault: assert.fail,
      onError: assert.fail,
    });
    t.after(() => listener.close());
    await done.promise;
    assert.deepEqual(heard, ["first words", "the next tick"]);
  },
);

test("reactor: it keeps its thread's other work neither waiting nor busy", TIMEOUT, async (t) => {
  await pair(t);
  // Idle connections: the event loop runs for the timer alone, and not for the scheduled tick.
  const from = process.cpuUsage();
  for (let at = 0; at < 10; at += 1) await new Promise((resolve) => setTimeout(resolve, 30));
  const { user, system } = process.cpuUsage(from);
  assert.ok((user + system) / 1000 < 150, `${(user + system) / 1000} ms of CPU in 300 ms of rest`);
});
