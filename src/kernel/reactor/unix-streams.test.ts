// own process: it counts the descriptors of the process.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { type TestContext, test } from "node:test";
import { KernelError } from "#kernel/errors";
import { closeReactor, connectUnix, UnixListener, UnixStream } from "./index.ts";
import { freshPath, ownUnixPair, ticks } from "./testing/own-pair.ts";

const TIMEOUT = { timeout: 20_000 };
const UMASK = { umask: 0o007 };
const EVENTS = ["data", "end", "drain", "finish", "hangUp", "close"] as const;
const descriptors = (): number => readdirSync("/proc/self/fd").length;
/** For listeners that must get no client. */
const nobody = (): never => assert.fail("a client");
const hasErrno =
  (errno: string) =>
  (error: unknown): boolean =>
    error instanceof KernelError && error.errno === errno;
const errnoOf = ({ errored }: UnixStream): string | undefined =>
  errored instanceof KernelError ? errored.errno : undefined;

async function pair(t: TestContext): Promise<[UnixStream, UnixStream]> {
  const made = await ownUnixPair();
  t.after(() => {
    for (const stream of made) stream.destroy();
  });
  return made;
}

/** The events of a stream in order; those of `data` have their text. */
function record(stream: UnixStream): string[] {
  const events: string[] = [];
  stream.on("data", (chunk) => events.push(Buffer.from(chunk).toString()));
  for (const event of ["end", "drain", "finish", "hangUp", "close"] as const)
    stream.on(event, () => events.push(event));
  return events;
}

const closed = (stream: UnixStream): Promise<void> =>
  new Promise((resolve) => (stream.closed ? resolve() : stream.once("close", resolve)));
const hungUp = (stream: UnixStream): Promise<void> => new Promise((resolve) => stream.once("hangUp", resolve));

function listen(t: TestContext, onClient: (fd: number) => void, options: { backlog?: number } = {}): UnixListener {
  const events = { onClient, onFault: assert.fail, onError: assert.fail };
  const listener = UnixListener.listen(freshPath(), { ...UMASK, ...options }, events);
  t.after(() => listener.close());
  return listener;
}

test(
  "UnixStream: a peer that ends its sending is no peer that closes: the other direction goes on",
  TIMEOUT,
  async (t) => {
    const [ours, peer] = await pair(t);
    const [events, heard] = [record(ours), record(peer)];
    ours.resume();
    peer.resume();
    peer.end(Buffer.from("question"));
    while (!ours.readableEnded) await ticks(1);
    await ticks(5);
    ours.write(Buffer.from("answer"));
    while (!heard.includes("answer")) await ticks(1);
    assert.deepEqual([events, ours.hasHungUp, ours.destroyed], [["question", "end"], false, false]);
    ours.end();
    await closed(ours);
    await closed(peer);
    assert.deepEqual([ours.errored, peer.errored], [undefined, undefined]);
  },
);

test(
  "UnixStream: a peer that closes is lost at once after what it had sent, though nothing is sent to it",
  TIMEOUT,
  async (t) => {
    const [ours, peer] = await pair(t);
    const events = record(ours);
    peer.write(Buffer.from("last words"));
    peer.destroy();
    ours.resume();
    await closed(ours);
    assert.deepEqual([events, errnoOf(ours)], [["last words", "end", "close"], "EPIPE"]);
  },
);

test("UnixStream: a peer that had ended its sending and closes later is lost at that moment", TIMEOUT, async (t) => {
  for (const isPaused of [false, true]) {
    const [ours, peer] = await pair(t);
    const events = record(ours);
    ours.resume();
    peer.end();
    while (!ours.readableEnded) await ticks(1);
    if (isPaused) ours.pause();
    await ticks(5);
    assert.deepEqual([events, ours.destroyed], [["end"], false]);
    peer.destroy();
    await closed(ours);
    assert.deepEqual([events, errnoOf(ours)], [["end", "close"], "EPIPE"]);
  }
});

test(
  "UnixStream: while it is paused, `hangUp` tells of the peer's close, and nothing that the peer had sent is lost",
  TIMEOUT,
  async (t) => {
    const [ours, peer] = await pair(t);
    const events = record(ours);
    peer.write(Buffer.from("last words"));
    const told = hungUp(ours);
    peer.destroy();
    await told;
    await ticks(5);
    assert.deepEqual([events, ours.hasHungUp, ours.destroyed], [["hangUp"], true, false]);
    ours.resume();
    await closed(ours);
    assert.deepEqual([events, errnoOf(ours)], [["hangUp", "last words", "end", "close"], "EPIPE"]);
  },
);

test("UnixStream: a hang-up while bytes wait to be sent keeps those that are still to be read", TIMEOUT, async (t) => {
  const [ours, peer] = await pair(t);
  const events = record(ours);
  while (ours.write(Buffer.alloc(65_536)));
  peer.write(Buffer.from("last words"));
  const told = hungUp(ours);
  peer.destroy();
  await told;
  await ticks(5);
  assert.ok(ours.writableNeedDrain && !ours.destroyed);
  ours.resume();
  await closed(ours);
  // The peer had not read what the kernel had taken for it, so its end is a reset.
  assert.deepEqual([events, errnoOf(ours)], [["hangUp", "last words", "close"], "ECONNRESET"]);
  assert.equal(ours.writableLength, 0);
});

test(
  "UnixStream: after a hang-up a write loses the stream, and an end of sending closes it in order",
  TIMEOUT,
  async (t) => {
    const writing = await pair(t);
    const told = hungUp(writing[0]);
    writing[1].destroy();
    await told;
    assert.equal(writing[0].write(Buffer.from("x")), false);
    await closed(writing[0]);
    assert.equal(errnoOf(writing[0]), "EPIPE");

    const [ours, peer] = await pair(t);
    const events = record(ours);
    const toldAgain = hungUp(ours);
    peer.destroy();
    await toldAgain;
    ours.end();
    ours.resume();
    await closed(ours);
    assert.deepEqual([events.toSorted(), ours.errored], [["close", "end", "finish", "hangUp"], undefined]);
  },
);

test(
  "UnixStream: a stream that ends at the peer's end closes in order, whether the peer has closed or not",
  TIMEOUT,
  async (t) => {
    for (const act of ["end", "destroy"] as const) {
      const [ours, peer] = await pair(t);
      const events = record(ours);
      ours.once("end", () => ours.end());
      ours.resume();
      peer[act]();
      await closed(ours);
      assert.deepEqual([events, ours.errored], [["end", "finish", "close"], undefined], act);
    }
  },
);

test(
  "UnixStream: once both have ended their sending there is no hang-up, though the kernel reports one",
  TIMEOUT,
  async (t) => {
    const [ours, peer] = await pair(t);
    const events = record(ours);
    peer.end(Buffer.from("last words"));
    ours.end();
    await ticks(5);
    assert.deepEqual([events, ours.hasHungUp], [["finish"], false]);
    ours.resume();
    await closed(ours);
    assert.deepEqual([events, ours.errored], [["finish", "last words", "end", "close"], undefined]);
  },
);

test(
  "UnixStream: a reset is ECONNRESET for a peer whose bytes are unread, and an end for another",
  TIMEOUT,
  async (t) => {
    for (const [isUnread, expected] of [
      [true, { errno: "ECONNRESET", hasEnd: false }],
      [false, { errno: "EPIPE", hasEnd: true }],
    ] as const) {
      const [ours, peer] = await pair(t);
      if (isUnread) peer.write(Buffer.from("x"));
      peer.resume();
      ours.reset();
      await closed(peer);
      assert.deepEqual({ errno: errnoOf(peer), hasEnd: peer.readableEnded }, expected);
    }
  },
);

test("UnixStream: it has no address, and keep-alive does nothing", TIMEOUT, async (t) => {
  const [ours] = await pair(t);
  ours.keepAlive();
  assert.deepEqual([ours.remoteAddress, ours.remotePort, ours.localAddress, ours.localPort], ["", 0, "", 0]);
});

test("UnixStream: the send queue is empty once the peer has read everything", TIMEOUT, async (t) => {
  const [ours, peer] = await pair(t);
  assert.equal(ours.sendQueueBytes(), 0);
  ours.write(Buffer.alloc(100));
  await ticks(5);
  assert.ok((ours.sendQueueBytes() ?? 0) >= 100);
  peer.resume();
  while (ours.sendQueueBytes() !== 0) await ticks(1);
  assert.deepEqual([ours.bytesWritten, peer.bytesRead], [100, 100]);
  ours.destroy();
  assert.equal(ours.sendQueueBytes(), undefined);
});

test(
  "UnixStream: a peer that never reads gets what the kernel holds; the rest waits, and the caller may reuse its chunks",
  TIMEOUT,
  async (t) => {
    const [ours, peer] = await pair(t);
    const chunks = [Buffer.alloc(10), Buffer.alloc(40_000), Buffer.alloc(300)];
    const sizes = chunks.reduce((sum, { length }) => sum + length, 0);
    let rounds = 0;
    const wanted: Buffer[] = [];
    for (let isTaken = true; isTaken; rounds += 1) {
      for (const [at, chunk] of chunks.entries()) chunk.fill(rounds * 3 + at);
      wanted.push(Buffer.concat(chunks));
      isTaken = ours.writeAll(chunks);
    }
    const { bytesWritten } = ours;
    await ticks(10);
    assert.equal(ours.bytesWritten, bytesWritten, "the kernel takes no more");
    assert.equal(ours.bytesWritten + ours.writableLength, rounds * sizes);
    assert.ok(ours.writableLength <= sizes, "only bytes of the last write wait");
    for (const chunk of chunks) chunk.fill(255);
    const got: Buffer[] = [];
    peer.on("data", (chunk) => got.push(Buffer.from(chunk)));
    ours.end();
    peer.resume();
    while (!peer.readableEnded) await ticks(1);
    assert.ok(Buffer.concat(got).equals(Buffer.concat(wanted)));
  },
);

for (const event of EVENTS) {
  test(`UnixStream: destroyed at '${event}' it emits nothing after that but 'close'`, TIMEOUT, async () => {
    const before = descriptors();
    const [ours, peer] = await ownUnixPair();
    const events = record(ours);
    let since = -1;
    ours.once(event as "end", () => {
      ours.destroy();
      since = events.length;
    });
    if (event === "drain") {
      while (ours.write(Buffer.alloc(65_536)));
      peer.resume();
    } else if (event === "finish") ours.end();
    else if (event === "hangUp") {
      peer.write(Buffer.from("unread"));
      peer.destroy();
    } else {
      ours.resume();
      peer.end(Buffer.from("x"));
      if (event === "close") peer.destroy();
    }
    await closed(ours);
    await ticks(3);
    assert.deepEqual(events.slice(since), event === "close" ? [] : ["close"]);
    peer.destroy();
    await closed(peer);
    assert.equal(descriptors(), before);
  });
}

test(
  "UnixStream: bytes behind a descriptor that the peer passes are read, and the descriptor is not kept",
  TIMEOUT,
  async (t) => {
    const accepted = Promise.withResolvers<UnixStream>();
    const listener = listen(t, (fd) => accepted.resolve(UnixStream.adopt(fd)));
    const program = `
import array, socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
client.sendmsg([b"with a descriptor,"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
client.send(b"without")
client.recv(1)`;
    const child = spawn("python3", ["-c", program, listener.path]);
    const ours = await accepted.promise;
    t.after(() => ours.destroy());
    const before = descriptors();
    let text = "";
    ours.on("data", (chunk) => {
      text += Buffer.from(chunk).toString();
    });
    ours.resume();
    while (!text.endsWith(",without")) await ticks(1);
    assert.equal(descriptors(), before);
    ours.end(Buffer.from("x"));
    assert.deepEqual(await once(child, "exit"), [0, null]);
  },
);

test("UnixStream: single bytes that wait for a peer are not a burden each", TIMEOUT, async (t) => {
  const BYTES = 200_000;
  const [ours, peer] = await pair(t);
  for (let at = 0; at < BYTES; at += 1) ours.write(Uint8Array.of(at));
  assert.ok(ours.writableLength > BYTES / 2);
  let received = 0;
  let isInOrder = true;
  const all = Promise.withResolvers<void>();
  peer.on("data", (chunk) => {
    for (const byte of chunk) {
      isInOrder &&= byte === received % 256;
      received += 1;
    }
    if (received === BYTES) all.resolve();
  });
  const before = process.cpuUsage();
  peer.resume();
  await all.promise;
  const { user, system } = process.cpuUsage(before);
  assert.equal(isInOrder, true);
  // Half a minute when each of them was an entry of a queue.
  assert.ok(user + system < 2_000_000, `${user + system} µs`);
});

test("UnixListener: 1,000 clients at once are served, each once, and nothing is left", TIMEOUT, async (t) => {
  const CLIENTS = 1000;
  let served = 0;
  const listener = listen(t, (fd) => {
    const stream = UnixStream.adopt(fd);
    served += 1;
    stream.on("data", (chunk) => stream.write(chunk));
    stream.on("end", () => stream.end());
    stream.resume();
  });
  const before = descriptors();
  const clients = Array.from({ length: CLIENTS }, () => connectUnix(listener.path));
  const answers = clients.map(async (client, at) => {
    const events = record(client);
    client.resume();
    client.end(Buffer.from(`client ${at}`));
    await closed(client);
    return events.filter((event) => event.startsWith("client")).join("");
  });
  assert.deepEqual(
    await Promise.all(answers),
    clients.map((_, at) => `client ${at}`),
  );
  assert.equal(served, CLIENTS);
  while (descriptors() > before) await ticks(1);
  assert.deepEqual(clients.map(errnoOf), new Array(CLIENTS).fill(undefined));
});

test(
  "UnixListener: the file has the mode of the umask; closing it removes the file and no client",
  TIMEOUT,
  async (t) => {
    const accepted = Promise.withResolvers<UnixStream>();
    const mask = process.umask();
    const listener = listen(t, (fd) => accepted.resolve(UnixStream.adopt(fd)));
    assert.equal(process.umask(), mask);
    assert.equal(statSync(listener.path).mode & 0o777, 0o770);
    // A client of Node's.
    const peer = connect(listener.path);
    t.after(() => peer.destroy());
    const ours = await accepted.promise;
    t.after(() => ours.destroy());
    const exits = process.listenerCount("exit");
    listener.close();
    listener.close();
    assert.equal(process.listenerCount("exit"), exits - 1);
    assert.equal(existsSync(listener.path), false);
    assert.throws(() => connectUnix(listener.path), hasErrno("ENOENT"));
    ours.write(Buffer.from("still here"));
    assert.equal(String((await once(peer, "data"))[0]), "still here");
  },
);

test("UnixListener: the file is removed when the process exits, and when the reactor is closed", TIMEOUT, (t) => {
  const path = freshPath();
  const program = `
    import { UnixListener } from "${new URL("./index.ts", import.meta.url).href}";
    const fail = () => process.exit(9);
    const listener = UnixListener.listen(process.argv[1], { umask: 0o077 }, { onClient: fail, onFault: fail, onError: fail });
    process.exit(7);`;
  const { status, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", program, path]);
  assert.equal(status, 7, String(stderr));
  assert.equal(existsSync(path), false);
  const listener = listen(t, nobody);
  closeReactor();
  assert.equal(existsSync(listener.path), false);
});

test("UnixListener: the file of another socket that has taken its path stays", TIMEOUT, async (t) => {
  const accepted = Promise.withResolvers<UnixStream>();
  const first = listen(t, nobody);
  rmSync(first.path);
  const events = {
    onClient: (fd: number) => accepted.resolve(UnixStream.adopt(fd)),
    onFault: assert.fail,
    onError: assert.fail,
  };
  const second = UnixListener.listen(first.path, UMASK, events);
  t.after(() => second.close());
  first.close();
  const client = connectUnix(second.path);
  t.after(() => client.destroy());
  (await accepted.promise).destroy();
  second.close();
  assert.equal(existsSync(second.path), false);
});

test("UnixListener: a path that it cannot have is an error, and nothing of the path changes", TIMEOUT, (t) => {
  const before = descriptors();
  const events = { onClient: nobody, onFault: assert.fail, onError: assert.fail };
  const taken = freshPath();
  writeFileSync(taken, "precious");
  t.after(() => spawnSync("rm", [taken]));
  const places: [string, string | undefined][] = [
    [taken, "EADDRINUSE"],
    [`${tmpdir()}/no/such/folder/socket`, "ENOENT"],
    [`${tmpdir()}/${"long".repeat(30)}`, undefined],
    ["", undefined],
    ["/tmp/with\0nul", undefined],
  ];
  for (const [path, errno] of places) {
    const isExpected = (error: unknown): boolean =>
      error instanceof KernelError && error.errno === errno && (errno !== undefined || error.code === "invalid");
    assert.throws(() => UnixListener.listen(path, UMASK, events), isExpected, path);
  }
  const longest = `${tmpdir()}/isthmus-${process.pid}`.padEnd(107, "/x");
  assert.throws(() => connectUnix(longest), hasErrno("ENOENT"));
  assert.throws(() => connectUnix(`${longest}x`), { code: "invalid" });
  assert.equal(statSync(taken).size, "precious".length);
  assert.equal(descriptors(), before);
});

test(
  "connectUnix: a failure has its errno and leaves no descriptor; with a full backlog a client fails at once",
  TIMEOUT,
  async (t) => {
    const server = createServer().listen(freshPath());
    await once(server, "listening");
    const left = freshPath();
    const program = "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])";
    spawnSync("python3", ["-c", program, left]);
    t.after(() => spawnSync("rm", [left]));
    const listener = listen(t, nobody, { backlog: 0 });
    const before = descriptors();
    // Nobody accepts in this tick.
    const waiting = connectUnix(listener.path);
    listener.close();
    for (const [path, errno] of [
      [freshPath(), "ENOENT"],
      [left, "ECONNREFUSED"],
      [`${left}/below`, "ENOTDIR"],
    ] as const)
      assert.throws(() => connectUnix(path), hasErrno(errno));
    const full = listen(t, (fd) => UnixStream.adopt(fd).destroy(), { backlog: 0 });
    const first = connectUnix(full.path);
    assert.throws(() => connectUnix(full.path), hasErrno("EAGAIN"));
    for (const stream of [waiting, first]) stream.destroy();
    full.close();
    assert.ok(descriptors() <= before);
    const accepted = once(server, "connection") as Promise<[Socket]>;
    const ours = connectUnix(server.address() as string);
    const [peer] = await accepted;
    peer.end("from Node");
    const events = record(ours);
    ours.resume();
    ours.end();
    await closed(ours);
    assert.deepEqual(events.toSorted(), ["close", "end", "finish", "from Node"]);
    server.close();
  },
);

test(
  "UnixListener: bytes that a client sent before it was accepted are read in the tick that accepts it",
  TIMEOUT,
  async (t) => {
    const heard: string[] = [];
    const done = Promise.withResolvers<void>();
    const listener = listen(t, (fd) => {
      const stream = UnixStream.adopt(fd);
      t.after(() => stream.destroy());
      stream.on("data", (chunk) => heard.push(Buffer.from(chunk).toString()));
      stream.resume();
      setImmediate(() => {
        heard.push("the next tick");
        done.resolve();
      });
    });
    const client = connectUnix(listener.path);
    t.after(() => client.destroy());
    client.write(Buffer.from("first words"));
    await done.promise;
    assert.deepEqual(heard, ["first words", "the next tick"]);
  },
);
