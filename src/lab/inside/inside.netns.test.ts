import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { createServer as createTcpServer } from "node:net";
import { type TestContext, test } from "node:test";
import { IpAddress } from "#base/ip";
import { createNetNs, deleteNetNs, openNetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";
import { connectInside, InsideError, readAll, request } from "./index.ts";

const LOOPBACK = IpAddress.parse("127.0.0.1");
const OPTIONS = { timeoutMs: 5000 };

function namespace(t: TestContext): string {
  const name = `isthmus-inside-${process.pid}`;
  createNetNs(name)[Symbol.dispose]();
  t.after(() => deleteNetNs(name));
  execFileSync("ip", ["-n", name, "link", "set", "lo", "up"]);
  return name;
}

function isInside(code: string, message: RegExp): (error: unknown) => boolean {
  return (error) => error instanceof InsideError && error.code === code && message.test(error.message);
}

test("connectInside, request, readAll: a listener in a namespace is reached only from inside, and refusals name both ends", async (t) => {
  const name = namespace(t);
  const web = createServer((incoming, response) => response.end(`${incoming.method} ${incoming.url}`));
  const talker = createTcpServer((socket) => socket.end("hello"));
  const silent = createTcpServer((socket) => socket.resume());
  for (const [server, port] of [
    [web, 80],
    [talker, 81],
    [silent, 82],
  ] as const) {
    using netns = openNetNs({ name });
    await once(server.listen({ fd: listenTcp(LOOPBACK, port, { netns }) }), "listening");
    t.after(() => server.close());
  }
  const open = (port: number, options: Parameters<typeof connectInside>[2] = OPTIONS) =>
    connectInside({ name }, { address: LOOPBACK, port }, options);
  assert.deepEqual(await request(await open(80), { path: "/here", host: "web" }, OPTIONS), {
    status: 200,
    body: "GET /here",
  });
  assert.equal(await readAll(await open(81), OPTIONS), "hello");
  await assert.rejects(open(83), isInside("failed", /^connecting to 127\.0\.0\.1 port 83: .*ECONNREFUSED/));
  const late = request(await open(82), { path: "/", host: "silent" }, { timeoutMs: 50 });
  await assert.rejects(late, isInside("timeout", /^GET \/ of silent: no data came within 50 ms$/));
  await assert.rejects(request(await open(81), { path: "/", host: "talker" }, OPTIONS), isInside("failed", /^GET \//));
  const reason = new Error("not wanted any more");
  await assert.rejects(open(80, { ...OPTIONS, signal: AbortSignal.abort(reason) }), reason);
});
