import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { Health } from "#base/health";
import { type Logger, nullLogger } from "#base/log";
import { KernelError } from "#kernel/errors";
import { UnixListener as KernelListener } from "#kernel/reactor";
import { Succession } from "./succession.ts";
import { UnixListener } from "./unix-listener.ts";

const unexpected = (): never => assert.fail("not expected");

test("UnixListener: clients that cannot be accepted do not fill the log", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-listener-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "socket");
  const lines: unknown[] = [];
  const log: Logger = { ...nullLogger, warn: (message, fields) => lines.push([message, fields]) };
  const clock = new FakeClock();
  let clients = 0;
  const refuse = (): never => {
    clients += 1;
    throw new KernelError("busy", "Cannot watch a descriptor");
  };
  await using _listener = await UnixListener.open({ path, deleteExisting: false }, refuse, {
    log,
    clock,
    onBug: unexpected,
  });
  const come = async (total: number): Promise<void> => {
    while (clients < total) {
      const before = clients;
      const client = connect(path).on("error", () => undefined);
      while (clients === before) await new Promise((resolve) => setImmediate(resolve));
      client.destroy();
    }
  };
  await come(100);
  const line = ["cannot accept a connection", { reason: "Cannot watch a descriptor" }];
  assert.deepEqual(lines, new Array(5).fill(line));
  await clock.advance(1000);
  await come(101);
  assert.deepEqual(lines[5], [line[0], { reason: "Cannot watch a descriptor", suppressed: 95 }]);
});

test("UnixListener: an error after which no client is accepted ends the program", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-listener-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "socket");
  const listen = t.mock.method(KernelListener, "listen");
  const bugs: unknown[] = [];
  const deps = { log: nullLogger, clock: new FakeClock(), onBug: (error: unknown) => bugs.push(error) };
  await using _listener = await UnixListener.open({ path, deleteExisting: false }, unexpected, deps);
  // The kernel gives no such error on demand.
  listen.mock.calls[0]?.arguments[2].onError(KernelError.fromErrno(22, "accept a client"));
  assert.equal(bugs.length, 1);
  assert.equal(
    String(bugs[0]),
    `ListenerError: ${path} accepts no connections any more: Cannot accept a client: Invalid argument (EINVAL)`,
  );
});

test("UnixListener: a socket whose file is removed listens again within a second, unless it was told to stop accepting", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-listener-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "socket");
  const clock = new FakeClock();
  const health = new Health();
  const part = health.part("frontends", { needed: "always" });
  let clients = 0;
  const deps = { log: nullLogger, clock, health: part, onBug: unexpected };
  await using listener = await UnixListener.open({ path, deleteExisting: false }, () => (clients += 1), deps);
  rmSync(path);
  await clock.advance(1000);
  const client = connect(path).on("error", unexpected);
  while (clients === 0) await new Promise((resolve) => setImmediate(resolve));
  client.destroy();
  rmSync(path);
  writeFileSync(path, "");
  await clock.advance(1000);
  assert.match(health.unready[0]?.reason ?? "", /the path exists and is not a socket/);
  rmSync(path);
  await clock.advance(1000);
  assert.deepEqual([health.unready, existsSync(path)], [[], true]);
  listener.stopAccepting();
  await clock.advance(10_000);
  assert.equal(existsSync(path), false);
});

test("UnixListener: a follower whose file is lost while it waits listens again, says so, and serves when it is its turn", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-listener-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "socket");
  const clock = new FakeClock();
  const warnings: unknown[] = [];
  const health = new Health();
  const clients: unknown[] = [];
  const deps = { log: nullLogger, clock, onBug: unexpected };
  await using before = await UnixListener.open({ path, deleteExisting: true }, (stream) => stream.destroy(), deps);
  const succession = new Succession(path);
  const log: Logger = { ...nullLogger, warn: (message, fields) => warnings.push([message, fields]) };
  const part = health.part("frontends", { needed: "always" });
  await using _after = await UnixListener.open({ path, deleteExisting: true }, (stream) => clients.push(stream), {
    ...{ log, clock, health: part, onBug: unexpected, succession },
  });
  const isReady = (): boolean => health.unready.length === 0;
  /** Moves the clock until it is so: what the listener does takes turns of the event loop. */
  const becomes = async (isSo: () => boolean): Promise<void> => {
    for (let turns = 0; !isSo(); turns += 1) {
      assert.ok(turns < 1000);
      await clock.advance(100);
    }
  };
  for (const times of [1, 2]) {
    rmSync(succession.waitingPath);
    await becomes(() => warnings.length === times);
    assert.deepEqual(warnings.at(-1), [
      "listening again: the file of the socket was removed or replaced",
      { socket: succession.waitingPath },
    ]);
    assert.ok(await new Succession(path).isWaiting());
  }
  // While a file of somebody else is there it waits for the path, and says why it is not ready.
  rmSync(succession.waitingPath);
  writeFileSync(succession.waitingPath, "");
  await becomes(() => !isReady());
  assert.match(health.unready[0]?.reason ?? "", /socket\.next: the path exists and is not a socket/);
  rmSync(succession.waitingPath);
  await becomes(isReady);
  const lookedAt = clients.length;
  before.stopAccepting();
  await becomes(() => !succession.isBehind);
  const client = connect(path).on("error", unexpected);
  while (clients.length === lookedAt) await new Promise((resolve) => setImmediate(resolve));
  client.destroy();
});
