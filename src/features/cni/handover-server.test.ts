import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { after, before, type TestContext, test } from "node:test";
import fc from "fast-check";
import { Deferred } from "#base/async";
import { FakeClock, systemClock } from "#base/clock";
import {
  ANSWER,
  type Answer,
  CALL,
  encodeAnswer,
  encodeHead,
  type HandedCall,
  MAX_TEXT_BYTES,
  NOT_MINE,
} from "#wire/cni-handover";
import { type HandoverOptions, MAX_CALLS, serveHandover } from "./handover-server.ts";

const TIMEOUT = { timeout: 20_000 };
const OK: Answer = { exitCode: 0, to: "stdout", text: "{}\n" };

let dir = "";
let serial = 0;
before(() => {
  dir = mkdtempSync(join(tmpdir(), "isthmus-handover-"));
});
after(() => rmSync(dir, { recursive: true, force: true }));

/** The bytes of a call. */
function call(env: string, stdin: string): Buffer {
  const head = Buffer.from(encodeHead("/run/x.sock.call1"));
  head.writeUInt32LE(Buffer.byteLength(env), CALL.environmentBytes);
  head.writeUInt32LE(Buffer.byteLength(stdin), CALL.inputBytes);
  return Buffer.concat([head, Buffer.from(env), Buffer.from(stdin)]);
}

const ADD = call("CNI_COMMAND=ADD\0", "{}");

/** A server whose calls are answered by `run`. */
async function serve(t: TestContext, run: HandoverOptions["run"], more: Partial<HandoverOptions> = {}) {
  serial += 1;
  const socketPath = join(dir, `${serial}.sock`);
  const onBug = (error: unknown): void => assert.fail(String(error));
  const server = await serveHandover({ socketPath, run, onBug, clock: systemClock, ...more });
  let ended: Promise<void> | undefined;
  const end = (): Promise<void> => {
    ended ??= Promise.resolve(server[Symbol.asyncDispose]());
    return ended;
  };
  t.after(end);
  return { socketPath, end };
}

async function open(path: string): Promise<Socket> {
  const socket = connect(path);
  // A peer that is disconnected while it writes gets EPIPE or ECONNRESET.
  socket.on("error", () => undefined);
  await once(socket, "connect");
  return socket;
}

/** All bytes until the server closes; what it has sent before a reset counts too. */
async function answerOf(socket: Socket): Promise<Buffer> {
  return buffer(socket).catch(() => Buffer.alloc(0));
}

test("serveHandover: a call in any pieces is run once, and its answer comes back", TIMEOUT, async (t) => {
  const calls: HandedCall[] = [];
  const answers = [OK, { exitCode: 1, to: "stderr", text: "no" } as const, NOT_MINE] as const;
  const { socketPath } = await serve(t, async (given) => {
    calls.push(given);
    return answers[calls.length - 1] ?? OK;
  });
  for (const [at, pieces] of [[ADD.length], [1, 7, 100, 30], [CALL.body, 5]].entries()) {
    const socket = await open(socketPath);
    const answer = answerOf(socket);
    let from = 0;
    for (const size of [...pieces, ADD.length]) {
      if (from < ADD.length) socket.write(ADD.subarray(from, from + size));
      from += size;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    assert.deepEqual(await answer, Buffer.from(encodeAnswer(answers[at] ?? OK)));
  }
  const expected = { env: { CNI_COMMAND: "ADD" }, stdin: "{}", path: "/run/x.sock.call1" };
  assert.deepEqual(
    calls.map((one) => ({ ...one, env: { ...one.env } })),
    [expected, expected, expected],
  );
});

const isRoot = process.getuid?.() === 0;
const asRoot = { ...TIMEOUT, skip: isRoot ? false : "kernel: only root can become another user" };

test("serveHandover: the socket is its owner's alone, and another user is refused", asRoot, async (t) => {
  const { socketPath } = await serve(t, async () => OK);
  assert.equal(statSync(socketPath).mode & 0o777, 0o600);
  chmodSync(dir, 0o755);
  const script = `import socket,os
os.setuid(65534)
try: socket.socket(socket.AF_UNIX).connect(${JSON.stringify(socketPath)}); print("connected")
except PermissionError: print("refused")`;
  assert.equal(execFileSync("python3", ["-c", script], { encoding: "utf8" }), "refused\n");
});

test(
  "serveHandover: strangers, giants and callers that send more are disconnected, and nothing is run",
  TIMEOUT,
  async (t) => {
    let runs = 0;
    const { socketPath } = await serve(t, async (_call, { signal }) => {
      runs += 1;
      await once(signal, "abort");
      return OK;
    });
    const giant = Buffer.from(ADD);
    giant.writeUInt32LE(0x7fffffff, CALL.inputBytes);
    const noEnd = call("CNI_COMMAND=ADD", "");
    for (const bytes of [Buffer.from("PRI * HTTP/2.0\r\n\r\n"), Buffer.alloc(500), giant, noEnd]) {
      const socket = await open(socketPath);
      socket.write(bytes);
      assert.equal((await answerOf(socket)).length, 0);
    }
    assert.equal(runs, 0);
    const twice = await open(socketPath);
    twice.write(ADD);
    while (runs === 0) await new Promise((resolve) => setTimeout(resolve, 2));
    twice.write("more");
    assert.equal((await answerOf(twice)).length, 0);
  },
);

test("serveHandover: of any bytes nothing but a whole call is run, and the server lives", TIMEOUT, async (t) => {
  const { socketPath } = await serve(t, async () => OK);
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 300 }),
    fc.tuple(fc.nat(ADD.length), fc.nat(255), fc.nat(ADD.length)).map(([at, value, length]) => {
      const spoiled = Buffer.from(ADD);
      spoiled[at] = value;
      return spoiled.subarray(0, length);
    }),
  );
  await fc.assert(
    fc.asyncProperty(bytes, async (given) => {
      const socket = await open(socketPath);
      socket.end(given);
      const answer = await answerOf(socket);
      assert.ok(answer.length === 0 || answer.equals(Buffer.from(encodeAnswer(OK))));
    }),
    { numRuns: 200 },
  );
  const socket = await open(socketPath);
  socket.write(ADD);
  assert.equal((await answerOf(socket)).length, encodeAnswer(OK).length);
});

test(
  "serveHandover: a call is aborted when its launcher is gone, and its late answer goes nowhere",
  TIMEOUT,
  async (t) => {
    const aborted = Promise.withResolvers<unknown>();
    const { socketPath } = await serve(t, async (_call, { signal }) => {
      await once(signal, "abort");
      aborted.resolve(signal.reason);
      return OK;
    });
    const socket = await open(socketPath);
    socket.write(ADD);
    setTimeout(() => socket.destroy(), 50);
    assert.match(String(await aborted.promise), /the caller closed the connection/);
  },
);

test("serveHandover: an answered call is not aborted afterwards", TIMEOUT, async (t) => {
  let given: AbortSignal | undefined;
  const { socketPath } = await serve(t, async (_call, { signal }) => {
    given = signal;
    return OK;
  });
  const socket = await open(socketPath);
  socket.write(ADD);
  await answerOf(socket);
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(given?.aborted, false);
});

test(
  "serveHandover: after 60 s a call is aborted, and the caller of one that never came whole is told that it was not begun",
  TIMEOUT,
  async (t) => {
    const clock = new FakeClock();
    const started = Promise.withResolvers<void>();
    const { socketPath } = await serve(
      t,
      async (_call, { signal }) => {
        started.resolve();
        await once(signal, "abort");
        return { exitCode: 1, to: "stdout", text: String(signal.reason) };
      },
      { clock },
    );
    const [whole, part] = [await open(socketPath), await open(socketPath)];
    part.write(ADD.subarray(0, 20));
    whole.write(ADD);
    await started.promise;
    await new Promise((resolve) => setTimeout(resolve, 50));
    const answers = [answerOf(whole), answerOf(part)];
    clock.advance(60_000);
    const [late, notBegun] = await Promise.all(answers);
    assert.match(String(late), /deadline/);
    assert.deepEqual(notBegun, Buffer.from(encodeAnswer(NOT_MINE)));
  },
);

test("serveHandover: its end waits for running calls, and for no caller that has not sent one", TIMEOUT, async (t) => {
  const finish = Promise.withResolvers<void>();
  const started = Promise.withResolvers<void>();
  const { socketPath, end } = await serve(t, async () => {
    started.resolve();
    await finish.promise;
    return OK;
  });
  const [running, idle, part] = [await open(socketPath), await open(socketPath), await open(socketPath)];
  part.write(ADD.subarray(0, 50));
  running.write(ADD);
  await started.promise;
  const answers = [running, idle, part].map(answerOf);
  const ended = end();
  const notBegun = Buffer.from(encodeAnswer(NOT_MINE));
  assert.deepEqual([await answers[1], await answers[2]], [notBegun, notBegun]);
  finish.resolve();
  assert.equal((await answers[0])?.length, encodeAnswer(OK).length);
  await ended;
  assert.equal(existsSync(socketPath), false);
});

test("serveHandover: a bug is reported, its caller is disconnected, and others are served", TIMEOUT, async (t) => {
  const bugs: unknown[] = [];
  let runs = 0;
  const run = async (): Promise<Answer> => {
    runs += 1;
    if (runs === 1) throw new TypeError("a bug");
    return OK;
  };
  const { socketPath } = await serve(t, run, { onBug: (error) => bugs.push(error) });
  for (const wanted of [0, encodeAnswer(OK).length]) {
    const socket = await open(socketPath);
    socket.write(ADD);
    assert.equal((await answerOf(socket)).length, wanted);
  }
  assert.match(String(bugs), /^TypeError: a bug$/);
});

test("serveHandover: an answer that is too large becomes an error of CNI that says so", TIMEOUT, async (t) => {
  const text = "x".repeat(MAX_TEXT_BYTES + 1);
  const { socketPath } = await serve(t, async () => ({ exitCode: 0, to: "stdout", text }));
  const socket = await open(socketPath);
  const answer = answerOf(socket);
  socket.write(ADD);
  const bytes = await answer;
  assert.equal(bytes[ANSWER.exitCode], 1);
  const { code, msg } = JSON.parse(bytes.toString("utf8", ANSWER.text)) as { code: number; msg: string };
  assert.deepEqual(
    [code, msg],
    [999, "the answer of coild cannot be encoded for the launcher: an answer exceeds 4194304 bytes"],
  );
});

test(
  "serveHandover: beyond its limit the oldest connection without a call is told that none was begun, and so are all others at the end",
  TIMEOUT,
  async (t) => {
    let runs = 0;
    const { socketPath, end } = await serve(t, async () => {
      runs += 1;
      return OK;
    });
    const [first = assert.fail(), second = assert.fail(), ...others] = await Promise.all(
      Array.from({ length: MAX_CALLS }, () => open(socketPath)),
    );
    const oldest = Promise.race([answerOf(first), answerOf(second)]);
    const late = await open(socketPath);
    const served = answerOf(late);
    late.write(ADD);
    assert.deepEqual(await served, Buffer.from(encodeAnswer(OK)));
    const notMine = Buffer.from(encodeAnswer(NOT_MINE));
    assert.deepEqual(await oldest, notMine);
    const [last = assert.fail(), ...rest] = others;
    const ended = answerOf(last);
    for (const socket of rest) socket.resume();
    await end();
    assert.deepEqual(await ended, notMine);
    assert.equal(runs, 1);
  },
);

test(
  "serveHandover: while all connections have calls, the launcher of a further one is told that it was not begun",
  TIMEOUT,
  async (t) => {
    const gate = new Deferred();
    let runs = 0;
    const { socketPath } = await serve(t, async () => {
      runs += 1;
      await gate.promise;
      return OK;
    });
    const busy = await Promise.all(Array.from({ length: MAX_CALLS }, () => open(socketPath)));
    const answers = busy.map((socket) => answerOf(socket));
    for (const socket of busy) socket.write(ADD);
    while (runs < MAX_CALLS) await new Promise((resolve) => setImmediate(resolve));
    const late = await open(socketPath);
    const refused = answerOf(late);
    late.write(ADD);
    assert.deepEqual(await refused, Buffer.from(encodeAnswer(NOT_MINE)));
    gate.resolve();
    assert.ok((await Promise.all(answers)).every((bytes) => bytes.equals(Buffer.from(encodeAnswer(OK)))));
  },
);

test("serveHandover: a socket that another process serves is refused", TIMEOUT, async (t) => {
  const { socketPath, end } = await serve(t, async () => OK);
  const options = {
    socketPath,
    run: async () => OK,
    onBug: (error: unknown) => assert.fail(String(error)),
    clock: systemClock,
  };
  await assert.rejects(serveHandover(options), { code: "in-use" });
  await end();
});
