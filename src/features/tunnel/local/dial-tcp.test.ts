// own process: counts its descriptors
import assert from "node:assert/strict";
import { once } from "node:events";
import { lstatSync, readdirSync, readlinkSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { SystemNames } from "#base/names";
import { freePort } from "#test/ports";
import { silentPort } from "#test/silent-port";
import { DialError, dialTcp } from "./dial-tcp.ts";

const names = new SystemNames({ clock: systemClock });
const never = new AbortController().signal;

test("dialTcp: a name is resolved, an IPv4-mapped address is the IPv4 one, and the stream is returned unread, so that no byte is lost", async (t) => {
  const server = createServer((socket) => {
    socket.on("error", () => socket.destroy());
    socket.write("hello");
  });
  t.after(() => server.close());
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  for (const host of ["localhost", "::ffff:127.0.0.1"]) {
    const socket = await dialTcp({ host, port }, { names, timeoutMs: 5000, signal: never });
    t.after(() => socket.destroy());
    const first = Promise.withResolvers<string>();
    socket.once("data", (bytes) => first.resolve(Buffer.from(bytes).toString()));
    socket.resume();
    assert.equal(await first.promise, "hello", host);
  }
});

test("dialTcp: failures have Go's words", async (t) => {
  const port = await freePort();
  const cases = [
    [{ host: "127.0.0.1", port }, "failed", `dial tcp 127.0.0.1:${port}: connect: connection refused`],
    [{ host: "::1", port }, "failed", `dial tcp [::1]:${port}: connect: connection refused`],
    [{ host: "does-not.exist.invalid", port: 1 }, "failed", "dial tcp does-not.exist.invalid:1: lookup: no such host"],
    [{ host: "127.0.0.1", port: await silentPort(t) }, "timeout", /: i\/o timeout$/],
  ] as const;
  for (const [target, code, message] of cases) {
    await assert.rejects(dialTcp(target, { names, timeoutMs: 300, signal: never }), (error) => {
      assert.ok(error instanceof DialError, String(error));
      assert.equal(error.code, code);
      if (typeof message === "string") assert.equal(error.message, message);
      else assert.match(error.message, message);
      return true;
    });
  }
});

test("dialTcp: an abort ends a dial with its reason and leaves neither socket nor timer", async (t) => {
  const target = { host: "127.0.0.1", port: await silentPort(t) };
  const sockets = (): number =>
    readdirSync("/proc/self/fd").filter((fd) => {
      const place = lstatSync(`/proc/self/fd/${fd}`, { throwIfNoEntry: false });
      return place !== undefined && readlinkSync(`/proc/self/fd/${fd}`).startsWith("socket:");
    }).length;
  const active = (): number => sockets() + process.getActiveResourcesInfo().filter((one) => one === "Timeout").length;
  const before = active();
  const stop = new AbortController();
  const dialling = dialTcp(target, { names, timeoutMs: 60_000, signal: stop.signal });
  stop.abort(new Error("given up"));
  await assert.rejects(dialling, /given up/);
  await new Promise((resolve) => setImmediate(resolve));
  await new Promise((resolve) => setImmediate(resolve));
  assert.ok(active() <= before, `${active()} resources, ${before} before`);
  await assert.rejects(dialTcp(target, { names, timeoutMs: 60_000, signal: stop.signal }), /given up/);
});
