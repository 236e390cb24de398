import assert from "node:assert/strict";
import { existsSync, lstatSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { FakeClock } from "#base/clock";
import { Health } from "#base/health";
import { createLogger } from "#base/log";
import { claimSocketPath, keepSocket, listenOnPath } from "./index.ts";

const root = mkdtempSync(join(tmpdir(), "isthmus-keep-"));
after(() => rmSync(root, { recursive: true }));

/** A kept server in a folder of its own, and what an operator sees of it. */
async function bedOf(name: string, more: { readonly mayStartWithout?: boolean } = {}) {
  const folder = join(root, name);
  mkdirSync(folder);
  const path = join(folder, "socket");
  const clock = new FakeClock();
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => lines.push(JSON.parse(line).msg) });
  const health = new Health({ log, clock });
  const clients: Socket[] = [];
  const serve = async (): Promise<AsyncDisposable> => {
    await claimSocketPath(path, { deleteExisting: true });
    const server = createServer((socket) => clients.push(socket.on("error", () => undefined)));
    const listening = await listenOnPath(server, path, { umask: 0o177 });
    return {
      [Symbol.asyncDispose]: () =>
        new Promise((resolve) => {
          listening.close(resolve);
        }),
    };
  };
  const part = health.part("socket", { needed: "always" });
  const onBug = (error: unknown): never => assert.fail(String(error));
  const keep = () => keepSocket(serve, { path, health: part, log, clock, onBug, ...more });
  /** Moves the clock until the part has that state; at most a second may pass for it. */
  const becomes = async (status: "ok" | "degraded"): Promise<void> => {
    const before = clock.monotonic();
    while (health.parts[0]?.status !== status || (status === "ok" && !existsSync(path))) await clock.advance(100);
    assert.ok(clock.monotonic() - before <= 1000);
  };
  return { folder, path, clock, lines, health, clients, keep, becomes };
}

function canConnect(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
}

test("keepSocket: a socket whose file is removed listens again within a second, and says so in one line; its clients stay", async () => {
  const { path, keep, becomes, lines, clients } = await bedOf("removed");
  await using kept = await keep();
  const old = connect(path);
  while (clients.length === 0) await new Promise((resolve) => setImmediate(resolve));
  for (const times of [1, 2]) {
    rmSync(path);
    await becomes("ok");
    assert.ok(await canConnect(path));
    assert.equal(lstatSync(path).mode & 0o777, 0o600);
    assert.deepEqual(lines, new Array(times).fill("listening again: the file of the socket was removed or replaced"));
  }
  old.write("x");
  await new Promise((resolve) => clients[0]?.once("data", resolve));
  old.destroy();
  for (const client of clients) client.destroy();
  await kept[Symbol.asyncDispose]();
  assert.equal(existsSync(path), false);
});

test("keepSocket: a socket that another live process put there stays; not ready until it is gone, and nobody's file is removed at the end", async () => {
  const { path, keep, becomes, clock, lines, health } = await bedOf("replaced");
  await using kept = await keep();
  rmSync(path);
  const other = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve) => void other.listen(path, resolve));
  const { ino } = lstatSync(path);
  await becomes("degraded");
  assert.match(health.unready[0]?.reason ?? "", /socket: another process listens there; stop that process/);
  for (let checks = 0; checks < 10; checks += 1) await clock.advance(500);
  assert.deepEqual([lstatSync(path).ino, await canConnect(path), lines], [ino, true, ["degraded"]]);
  await new Promise((resolve) => other.close(resolve));
  await becomes("ok");
  assert.ok(await canConnect(path));
  assert.deepEqual(health.unready, []);
  // Disposing before the loss is noticed.
  rmSync(path);
  writeFileSync(path, "precious");
  await kept[Symbol.asyncDispose]();
  assert.ok(lstatSync(path).isFile());
});

test("keepSocket: not ready while the folder is gone; listens again when it is made again", async () => {
  const { folder, path, keep, becomes, health } = await bedOf("folder");
  await using _kept = await keep();
  rmSync(folder, { recursive: true });
  await becomes("degraded");
  assert.match(health.unready[0]?.reason ?? "", /cannot listen on .*folder\/socket/);
  mkdirSync(folder);
  await becomes("ok");
  assert.ok(await canConnect(path));
});

test("keepSocket: a first try that fails rejects, or is tried again where the program may start without the socket", async () => {
  const strict = await bedOf("strict");
  writeFileSync(strict.path, "");
  await assert.rejects(strict.keep(), { code: "not-a-socket" });
  const lenient = await bedOf("lenient", { mayStartWithout: true });
  writeFileSync(lenient.path, "");
  await using _kept = await lenient.keep();
  assert.equal(lenient.health.unready[0]?.status, "degraded");
  rmSync(lenient.path);
  await lenient.becomes("ok");
  assert.ok(await canConnect(lenient.path));
  assert.deepEqual(lenient.lines, ["degraded", "well again"]);
});
