import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { Agent } from "node:http";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { FakeClock, systemClock } from "#base/clock";
import { createLogger } from "#base/log";
import {
  type EndpointAnswer,
  type EndpointRequest,
  HttpEndpoint,
  type HttpEndpointOptions,
  SharedText,
} from "./index.ts";

type Answer = (request: EndpointRequest) => EndpointAnswer | undefined | Promise<EndpointAnswer | undefined>;

async function serve(t: TestContext, answer: Answer, options: HttpEndpointOptions = {}, clock = systemClock) {
  const bugs: unknown[] = [];
  const log = createLogger({ name: "t", write: () => undefined });
  const endpoint = new HttpEndpoint({ answer, onBug: (error) => bugs.push(error), log, clock }, options);
  t.after(() => endpoint[Symbol.asyncDispose]());
  const { port } = await endpoint.listen({ host: "127.0.0.1", port: 0 }, undefined);
  const come = async (host = "127.0.0.1"): Promise<Socket> => {
    const socket = connect({ port, host: "127.0.0.1", localAddress: host, allowHalfOpen: true });
    socket.on("error", () => undefined);
    t.after(() => socket.destroy());
    await once(socket, "connect");
    return socket;
  };
  /** All that the server sends to these bytes. */
  const raw = async (bytes: string): Promise<string> => {
    const socket = await come();
    socket.end(bytes);
    return text(socket);
  };
  return { endpoint, port, bugs, come, raw };
}

const GET = "GET /x HTTP/1.1\r\nHost: x\r\n\r\n";
const closed = (socket: Socket): Promise<void> => {
  const { promise, resolve } = Promise.withResolvers<void>();
  socket.resume().once("close", () => resolve());
  return socket.closed ? Promise.resolve() : promise;
};
/** The bodies of answers with a Content-Length. */
const bodies = (answers: string): string[] =>
  answers.split(/HTTP\/1\.1 \d+ [^\r]*\r\n/).flatMap((one) => (one === "" ? [] : (one.split("\r\n\r\n")[1] ?? "")));

test("HttpEndpoint: a request's parts, HEAD, HTTP/1.0, absolute targets, and what a connection is told about its end", async (t) => {
  const { raw, bugs } = await serve(t, ({ method, path, query, host, from, to }) => ({
    body: JSON.stringify([method, path, query.get("q"), host, from, to]),
  }));
  const close = "Connection: close\r\n\r\n";
  const first = await raw(`GET /a/%2e?q=1&r HTTP/1.1\r\nHost: h:1\r\n${close}`);
  assert.match(first, /^HTTP\/1\.1 200 OK\r\ndate: .* GMT\r\n/);
  assert.match(first, /\r\nconnection: close\r\n/);
  assert.deepEqual(bodies(first), ['["GET","/a/%2e","1","h:1","127.0.0.1","127.0.0.1"]']);
  assert.match(
    await raw("HEAD /x HTTP/1.1\r\n\r\n"),
    /content-length: 44\r\nconnection: close\r\n\r\n$|content-length: \d+\r\n.*\r\n\r\n$/,
  );
  assert.match(await raw("GET http://h/x?q=2 HTTP/1.0\r\n\r\n"), /connection: close\r\n\r\n\["GET","\/x","2","",/);
  assert.match(await raw("GET http://h HTTP/1.0\r\n\r\n"), /\["GET","\/",null/);
  const posted = await raw(`POST /x HTTP/1.1\r\nContent-Length: 30\r\n\r\n${GET}`);
  assert.equal(bodies(posted).length, 1, "the body of a request is no request");
  assert.deepEqual(bugs, []);
});

test("HttpEndpoint: a client that may not connect is ended at once, without a word and without a place", async (t) => {
  const log = createLogger({ name: "t", write: () => undefined });
  const asked: unknown[] = [];
  const endpoint = new HttpEndpoint(
    {
      answer: () => ({ body: "ok" }),
      admits: (ends) => {
        asked.push(ends);
        return ends.from !== "127.0.0.9";
      },
      onBug: (error) => assert.fail(String(error)),
      log,
      clock: systemClock,
    },
    { maxConnections: 1 },
  );
  t.after(() => endpoint[Symbol.asyncDispose]());
  const { port } = await endpoint.listen({ host: "127.0.0.1", port: 0 }, undefined);
  const from = (localAddress: string): Socket => {
    const socket = connect({ port, host: "127.0.0.1", localAddress });
    socket.on("error", () => undefined);
    t.after(() => socket.destroy());
    return socket;
  };
  const known = from("127.0.0.2");
  await once(known, "connect");
  const stranger = from("127.0.0.9");
  let heard = 0;
  stranger.on("data", (data) => (heard += data.length)).write(GET);
  await closed(stranger);
  assert.equal(heard, 0);
  known.end(GET);
  assert.match(await text(known), /ok$/);
  assert.deepEqual(asked, [
    { from: "127.0.0.2", to: "127.0.0.1" },
    { from: "127.0.0.9", to: "127.0.0.1" },
  ]);
});

test("HttpEndpoint: what is no HTTP is refused and the connection ends, and an answer of nothing ends it", async (t) => {
  const { raw, bugs } = await serve(t, () => undefined);
  assert.equal(await raw(GET), "");
  for (const bytes of ["\x16\x03\x01", "GET /\r\n\r\n", "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "GET / HT"])
    assert.match(await raw(bytes), /^HTTP\/1\.1 400 Bad Request\r\n/, bytes);
  assert.match(await raw(`GET / HTTP/1.1\r\nA: ${"a".repeat(20_000)}\r\n\r\n`), /^HTTP\/1\.1 431 /);
  assert.equal(await raw(""), "");
  assert.deepEqual(bugs, []);
});

test("HttpEndpoint: that an answer throws ends its connection alone, and is told", async (t) => {
  const { raw, bugs } = await serve(t, ({ path }) => {
    if (path === "/x") throw new Error("secret");
    return { body: "ok" };
  });
  assert.equal(await raw(GET), "");
  assert.equal(bugs.length, 1);
  assert.match(await raw("GET / HTTP/1.1\r\n\r\n"), /ok$/);
});

test("HttpEndpoint: of a client that sends 500 requests at once one is served at a time, and the others of all clients get their turns", async (t) => {
  let underWay = 0;
  let most = 0;
  let count = 0;
  const { come, raw } = await serve(t, async () => {
    underWay += 1;
    count += 1;
    most = Math.max(most, underWay);
    await new Promise<void>((resolve) => setImmediate(resolve));
    underWay -= 1;
    return { body: "x".repeat(100) };
  });
  const many = await come();
  many.write(GET.repeat(500));
  await once(many, "data");
  const before = count;
  assert.match(await raw(GET), /x$/);
  assert.ok(count - before < 250, `${count - before} requests of the other client were served meanwhile`);
  many.end();
  await closed(many);
  assert.equal(count, 501);
  assert.ok(most <= 2, `${most} at once`);
});

test("HttpEndpoint: who has sent more than 16 KiB ahead gets the answer under way, and no further one", async (t) => {
  let count = 0;
  const { come } = await serve(t, async () => {
    count += 1;
    await new Promise<void>((resolve) => setImmediate(resolve));
    return { body: "ok" };
  });
  const client = await come();
  client.write(GET.repeat(20_000));
  await closed(client);
  assert.ok(count < 10, `${count} were served`);
});

test("HttpEndpoint: clients that do not read their answers hold at most 8 MiB, are ended after the limit, and others are served", async (t) => {
  const clock = new FakeClock();
  // More than the kernel's buffers take.
  const big = new Uint8Array(48 * 2 ** 20).fill(97);
  const { come, raw, endpoint } = await serve(t, ({ path }) => ({ body: path === "/big" ? big : "ok" }), {}, clock);
  const unread: Socket[] = [];
  for (let at = 0; at < 8; at += 1) {
    const socket = await come();
    socket.pause().write("GET /big HTTP/1.1\r\n\r\n".repeat(3));
    unread.push(socket);
  }
  while (endpoint.connections > 1) await new Promise<void>((resolve) => setImmediate(resolve));
  assert.match(await raw(GET), /ok$/);
  await clock.advance(10_000);
  for (const socket of unread) await closed(socket);
  assert.equal(endpoint.connections, 0);
});

test("HttpEndpoint: at the limit a client with many connections loses one of its own, first one that is idle, and a busy one goes last", async (t) => {
  const held: (() => void)[] = [];
  const answer: Answer = ({ path }) =>
    path === "/slow" ? new Promise((resolve) => held.push(() => resolve({ body: "slow" }))) : { body: "ok" };
  const { come, endpoint } = await serve(t, answer, { maxConnections: 4 });
  const good = await come("127.0.0.2");
  const busy = await come("127.0.0.3");
  busy.write("GET /slow HTTP/1.1\r\n\r\n");
  while (held.length < 1) await new Promise<void>((resolve) => setImmediate(resolve));
  const first = await come("127.0.0.3");
  const second = await come("127.0.0.3");
  for (const next of [first, second]) {
    const one = await come("127.0.0.3");
    await closed(next);
    assert.equal(endpoint.connections, 4);
    one.write("GET /slow HTTP/1.1\r\n\r\n");
    while (held.length < (next === first ? 2 : 3)) await new Promise<void>((resolve) => setImmediate(resolve));
  }
  const other = await come("127.0.0.4");
  await closed(busy);
  good.write(GET);
  assert.match(String((await once(good, "data"))[0]), /ok$/);
  for (const socket of [good, other]) assert.equal(socket.closed, false);
});

test("HttpEndpoint: at the limit of a UNIX socket the oldest client ends, and the program goes on", async (t) => {
  const { endpoint } = await serve(t, () => ({ body: "ok" }), { maxConnections: 2 });
  const folder = mkdtempSync(join(tmpdir(), "isthmus-endpoint-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, "socket");
  await endpoint.listen({ path }, undefined);
  const come = (): Socket => {
    const socket = connect({ path });
    socket.on("error", () => undefined);
    t.after(() => socket.destroy());
    return socket;
  };
  const [first, second] = [come(), come()];
  const third = come();
  await closed(first);
  third.end(GET);
  assert.match(await text(third), /ok$/);
  assert.equal(second.closed, false);
});

test("HttpEndpoint: who sends nothing, half a head, or a byte now and then gets 408 in time, and an idle connection ends", async (t) => {
  const clock = new FakeClock();
  const { come, endpoint } = await serve(t, () => ({ body: "ok" }), {}, clock);
  const silent = await come();
  const half = await come();
  half.write("GET / HT");
  const slow = await come();
  const idle = await come();
  idle.write(GET);
  await once(idle, "data");
  const answers = [silent, half, slow].map((socket) => once(socket, "data"));
  for (let at = 0; at < 5; at += 1) {
    slow.write("G");
    await new Promise((resolve) => setTimeout(resolve, 5));
    await clock.advance(1000);
  }
  for (const answer of answers) assert.match(String((await answer)[0]), /^HTTP\/1\.1 408 /);
  await clock.advance(1000);
  assert.equal(endpoint.connections, 1);
  await clock.advance(76_000);
  assert.equal(endpoint.connections, 0);
});

test("HttpEndpoint: a stream is sent in chunks to the end, to 1.0 until the connection ends, and ends with its client", async (t) => {
  let isReturned = false;
  const pieces = async function* (): AsyncGenerator<Uint8Array> {
    try {
      yield Buffer.from("ab");
      yield Buffer.alloc(0);
      yield Buffer.from("c");
    } finally {
      isReturned = true;
    }
  };
  const gone = Promise.withResolvers<void>();
  const endless = async function* (): AsyncGenerator<Uint8Array> {
    try {
      for (;;) yield Buffer.alloc(100_000);
    } finally {
      gone.resolve();
    }
  };
  const { raw, come } = await serve(t, ({ path }) => ({ body: path === "/x" ? pieces() : endless() }));
  assert.match(await raw(GET), /transfer-encoding: chunked\r\n[\s\S]*\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n$/);
  assert.match(await raw("GET /x HTTP/1.0\r\n\r\n"), /connection: close\r\n\r\nabc$/);
  assert.equal(isReturned, true);
  const reader = await come();
  reader.write("GET / HTTP/1.1\r\n\r\n");
  await once(reader, "data");
  reader.destroy();
  await gone.promise;
});

test("HttpEndpoint: the signal of a request aborts when its client goes", async (t) => {
  const seen = Promise.withResolvers<AbortSignal>();
  const { come } = await serve(t, async ({ signal }) => {
    seen.resolve(signal);
    await once(signal, "abort");
    return { body: "late" };
  });
  const client = await come();
  client.write(GET);
  const signal = await seen.promise;
  assert.equal(signal.aborted, false);
  client.destroy();
  if (!signal.aborted) await once(signal, "abort");
});

test("HttpEndpoint: whatever bytes come, cut anywhere, no bug is told and the next request of another is answered", async (t) => {
  const { raw, come, bugs, endpoint } = await serve(t, () => ({ body: "ok" }), { maxConnections: 16 });
  const part = fc.oneof(
    fc.constantFrom(
      GET,
      "GET ",
      " HTTP/1.1\r\n",
      "\r\n",
      "Content-Length: 5\r\n",
      "Transfer-Encoding: chunked\r\n",
      "\0",
    ),
    fc.string({ maxLength: 20, unit: "binary" }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(part, { maxLength: 12 }), fc.boolean(), async (parts, isReset) => {
      const socket = await come();
      for (const bytes of parts) socket.write(bytes);
      if (isReset) socket.resetAndDestroy();
      else socket.end();
      await closed(socket);
    }),
    { numRuns: 100 },
  );
  assert.match(await raw(GET), /ok$/);
  assert.deepEqual(bugs, []);
  while (endpoint.connections > 0) await new Promise<void>((resolve) => setImmediate(resolve));
});

test("HttpEndpoint: a prober's connection is kept for many requests", async (t) => {
  const seen = new Set<string>();
  const { port } = await serve(t, () => ({ body: "ok" }));
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.after(() => agent.destroy());
  const { request } = await import("node:http");
  for (let at = 0; at < 5; at += 1) {
    const response = await new Promise<import("node:http").IncomingMessage>((resolve, reject) => {
      const sent = request({ port, agent, path: "/" }, resolve).on("error", reject);
      sent.on("socket", (socket) => seen.add(String(socket.localPort ?? "new")));
      sent.end();
    });
    assert.equal(await text(response), "ok");
  }
  seen.delete("new");
  assert.equal(seen.size, 1);
});

test("SharedText: one making serves all who ask meanwhile, the next one begins after four times as long, and a failure is not kept", async () => {
  const clock = new FakeClock();
  let made = 0;
  let isFailing = false;
  const shared = new SharedText(
    async () => {
      made += 1;
      const mine = made;
      await new Promise<void>((resolve) => clock.after(10, resolve));
      if (isFailing) throw new Error("not now");
      return String(mine);
    },
    { clock },
  );
  const [one, two] = [shared.read(), shared.read()];
  await clock.advance(10);
  assert.deepEqual([String(await one), String(await two), made], ["1", "1", 1]);
  const [three, four] = [shared.read(), shared.read()];
  await clock.advance(39);
  assert.equal(made, 1);
  await clock.advance(11);
  assert.deepEqual([String(await three), String(await four), made], ["2", "2", 2], "made after it was asked for");
  isFailing = true;
  const failed = assert.rejects(shared.read(), /not now/);
  await clock.advance(50);
  await failed;
  isFailing = false;
  const next = shared.read();
  await clock.advance(50);
  assert.equal(String(await next), "4");
});
