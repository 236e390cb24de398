import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, mkdtempSync, renameSync, rmSync, statSync } from "node:fs";
import { connect as connectHttp2, type Http2Session } from "node:http2";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { Client, credentials, Metadata, type ServiceError } from "@grpc/grpc-js";
import fc from "fast-check";
import { Deferred } from "#base/async";
import { systemClock } from "#base/clock";
import { decodeCniError } from "#wire/cnirpc";
import { decodeStatus, frameMessage } from "#wire/grpc";
import { MAX_CONNECTIONS } from "./grpc-server.ts";
import { CniFailure, callGrpc, type GrpcHandler, inspectEgress, serveGrpc } from "./index.ts";
import { SessionPlaces } from "./session-places.ts";

/** A path for a socket, gone with the test. */
function socketPath(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), "isthmus-grpc-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  return join(dir, "coild.sock");
}

const METHOD = "/pkg.cnirpc.CNI/Add";
const fail = (error: unknown): void => assert.fail(String(error));
const same = (value: Buffer): Buffer => value;

/** A server with one method, its bugs, and a grpc-js client, all ended by the test. */
async function open(t: TestContext, handler: GrpcHandler) {
  const path = socketPath(t);
  const bugs: unknown[] = [];
  const handled: [string, number][] = [];
  const progress: string[] = [];
  const server = await serveGrpc({
    socketPath: path,
    handlers: { [METHOD]: handler },
    onBug: (error) => bugs.push(error),
    clock: systemClock,
    onProgress: (event) => progress.push(event),
    onHandled: (method, code) => handled.push([method, code]),
  });
  const client = new Client(`unix:${path}`, credentials.createInsecure());
  t.after(async () => {
    client.close();
    await server[Symbol.asyncDispose]();
  });
  const call = (request: Uint8Array, options: { method?: string; deadlineMs?: number } = {}): Promise<Buffer> =>
    new Promise((resolve, reject) => {
      const deadline = options.deadlineMs === undefined ? {} : { deadline: Date.now() + options.deadlineMs };
      const done = (error: ServiceError | null, reply?: Buffer): void =>
        error === null ? resolve(reply ?? Buffer.alloc(0)) : reject(error);
      client.makeUnaryRequest(
        options.method ?? METHOD,
        same,
        same,
        Buffer.from(request),
        new Metadata(),
        deadline,
        done,
      );
    });
  return { path, bugs, handled, progress, call, server };
}

test("serveGrpc: grpc-js is answered, messages of any size up to the bound included", async (t) => {
  const { call, handled } = await open(t, async (request) => request);
  for (const size of [0, 1, 70_000, 3_000_000]) {
    const message = Buffer.alloc(size, 7);
    assert.ok((await call(message)).equals(message), `${size} bytes`);
  }
  assert.deepEqual(
    handled,
    Array.from({ length: 4 }, () => [METHOD, 0]),
  );
});

test("serveGrpc: calls are counted at their start, messages when they were received or sent; a failure sends none", async (t) => {
  const { call, progress } = await open(t, async (request) => {
    if (request.length === 0) throw new CniFailure("try-again", "empty");
    return request;
  });
  await call(Buffer.from("x"));
  assert.deepEqual(progress.splice(0), ["started", "received", "sent"]);
  await assert.rejects(call(Buffer.alloc(0)));
  assert.deepEqual(progress.splice(0), ["started", "received"]);
  await assert.rejects(call(Buffer.from("x"), { method: "/pkg.cnirpc.CNI/Nope" }));
  assert.deepEqual(progress, ["started"]);
});

test("serveGrpc: a failure carries its status and exactly one CNIError", async (t) => {
  const { call } = await open(t, async () => {
    throw new CniFailure("try-again", "pool \u00e9l\u00e8ve has no free block", { cause: new Error("exhausted") });
  });
  await assert.rejects(call(new Uint8Array(0)), (error: ServiceError) => {
    assert.deepEqual([error.code, error.details], [9, "pool \u00e9l\u00e8ve has no free block"]);
    const [packed] = error.metadata.get("grpc-status-details-bin");
    const status = decodeStatus(Buffer.from(packed as Buffer).toString("base64"));
    assert.equal(status.code, 9);
    assert.deepEqual(
      status.details.map((detail) => [detail.typeUrl, decodeCniError(detail.value)]),
      [
        [
          "type.googleapis.com/pkg.cnirpc.CNIError",
          { code: 11, msg: "pool \u00e9l\u00e8ve has no free block", details: "exhausted" },
        ],
      ],
    );
    return true;
  });
});

test("serveGrpc: an unknown method is UNIMPLEMENTED, an oversized request RESOURCE_EXHAUSTED", async (t) => {
  const { call, bugs } = await open(t, async (request) => request);
  await assert.rejects(call(new Uint8Array(1), { method: "/pkg.cnirpc.CNI/Nope" }), { code: 12 });
  await assert.rejects(call(new Uint8Array(1), { method: "/__proto__" }), { code: 12 });
  await assert.rejects(call(new Uint8Array(5_000_000)), { code: 8 });
  assert.equal((await call(Uint8Array.of(1))).length, 1, "the next call is served");
  assert.deepEqual(bugs, []);
});

test("serveGrpc: the caller's deadline aborts the handler's signal", async (t) => {
  const reasons: unknown[] = [];
  const { call } = await open(t, async (_request, { signal }) => {
    if (!signal.aborted) await once(signal, "abort");
    reasons.push(signal.reason);
    throw signal.reason;
  });
  // On a busy machine a deadline can pass before the call is there; the handler does not run then.
  for (let deadlineMs = 50; reasons.length === 0 && deadlineMs < 10_000; deadlineMs *= 2) {
    await assert.rejects(call(new Uint8Array(0), { deadlineMs }), { code: 4 });
    for (let turns = 0; turns < 100 && reasons.length === 0; turns += 1)
      await new Promise((resolve) => setTimeout(resolve, 1));
  }
  assert.ok(reasons[0] instanceof DOMException);
});

test("serveGrpc: a caller that goes away aborts the handler, and one that stops in the middle is no bug", async (t) => {
  const started = new Deferred();
  const aborted = new Deferred<{ name: string }>();
  const { path, bugs, handled } = await open(t, async (_request, { signal }) => {
    started.resolve();
    await once(signal, "abort");
    aborted.resolve(signal.reason as { name: string });
    throw signal.reason;
  });
  const whole = connectHttp2("http://localhost", { createConnection: () => connect(path) });
  whole.on("error", () => undefined);
  const stream = whole.request({ ":method": "POST", ":path": METHOD });
  stream.on("error", () => undefined);
  stream.end(frameMessage(new Uint8Array(3)));
  await started.promise;
  whole.destroy();
  assert.equal((await aborted.promise).name, "AbortError");
  while (handled.length === 0) await new Promise((resolve) => setImmediate(resolve));

  for (const cut of ["session", "stream"] as const) {
    const before = handled.length;
    const session = connectHttp2("http://localhost", { createConnection: () => connect(path) });
    session.on("error", () => undefined);
    const half = session.request({ ":method": "POST", ":path": METHOD });
    half.on("error", () => undefined);
    half.write(frameMessage(new Uint8Array(100)).subarray(0, 20));
    await once(session, "remoteSettings");
    if (cut === "session") session.destroy();
    else half.close(8);
    while (handled.length === before) await new Promise((resolve) => setImmediate(resolve));
    session.destroy();
  }
  assert.deepEqual(bugs, []);
  assert.equal(handled.length, 3);
});

test("serveGrpc: a request whose body never ends is given up at its deadline", async (t) => {
  const { path, handled } = await open(t, async (request) => request);
  const session = connectHttp2("http://localhost", { createConnection: () => connect(path) });
  const stream = session.request({ ":method": "POST", ":path": METHOD, "grpc-timeout": "20m" });
  stream.write(Uint8Array.of(0, 0));
  const [headers] = (await once(stream, "response")) as [Record<string, unknown>];
  assert.equal(headers["grpc-status"], "4");
  session.destroy();
  assert.deepEqual(handled, [[METHOD, 4]]);
});

test("serveGrpc: a client that leaks all connections keeps nobody out, and a call that is under way keeps its connection", async (t) => {
  const [gate, started] = [new Deferred(), new Deferred()];
  const { path, call } = await open(t, async (request) => {
    if (request.length === 0) {
      started.resolve();
      await gate.promise;
    }
    return request;
  });
  const slow = callGrpc(path, METHOD, new Uint8Array(0));
  await started.promise;
  const leaked = Array.from({ length: MAX_CONNECTIONS + 50 }, () => connect(path));
  t.after(() => {
    for (const socket of leaked) socket.destroy();
  });
  await Promise.all(
    leaked.map(async (socket) => {
      socket.on("error", () => undefined).resume();
      await once(socket, "connect");
    }),
  );
  assert.equal((await call(Uint8Array.of(1))).length, 1, "a newcomer is served");
  gate.resolve();
  assert.equal((await slow).length, 0, "the call under way was not cut");
  assert.ok(leaked.at(-1)?.destroyed === false, "those that were there for a shorter time have their places");
});

test("SessionPlaces: while all connections have calls the newcomer gets no place", () => {
  const [busy, idle, late] = [{}, {}, {}] as [Http2Session, Http2Session, Http2Session];
  const places = new SessionPlaces(2);
  assert.equal(places.take(busy), undefined);
  places.begin(busy);
  assert.equal(places.take(idle), undefined);
  places.begin(idle);
  assert.equal(places.take(late), late);
  places.end(idle);
  assert.equal(places.take(late), idle);
  assert.deepEqual([...places], [busy, late]);
});

test("serveGrpc: an unexpected error is reported as a bug and answered UNKNOWN", async (t) => {
  const { call, bugs } = await open(t, async () => {
    throw new TypeError("a bug");
  });
  await assert.rejects(call(new Uint8Array(0)), { code: 2 });
  assert.equal((bugs[0] as Error).message, "a bug");
});

test("serveGrpc: random bytes on the socket end their connection and nothing else", async (t) => {
  const { path, call, bugs } = await open(t, async (request) => request);
  const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", "latin1");
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ minLength: 1, maxLength: 200 }), fc.boolean(), async (bytes, greet) => {
      const socket = connect(path);
      socket.on("error", () => undefined);
      socket.resume();
      socket.end(greet ? Buffer.concat([preface, bytes]) : bytes);
      await once(socket, "close");
    }),
    { numRuns: 50 },
  );
  assert.equal((await call(Uint8Array.of(1))).length, 1);
  assert.deepEqual(bugs, []);
});

test("serveGrpc: the socket has mode 0600, is gone afterwards, and a stale file is replaced", async (t) => {
  const path = socketPath(t);
  const stale = createServer();
  stale.listen(path);
  await once(stale, "listening");
  // A process that is killed leaves its socket file; renaming hides it from close(), which removes it.
  renameSync(path, `${path}.old`);
  stale.close();
  renameSync(`${path}.old`, path);
  const server = await serveGrpc({ socketPath: path, handlers: {}, onBug: fail, clock: systemClock });
  assert.equal(statSync(path).mode & 0o777, 0o600);
  await server[Symbol.asyncDispose]();
  assert.equal(existsSync(path), false);
});

test("serveGrpc: a second server is refused while the first serves, and a path that cannot be had is named", async (t) => {
  const { path, call } = await open(t, async (request) => request);
  const options = { handlers: {}, onBug: fail, clock: systemClock };
  await assert.rejects(serveGrpc({ ...options, socketPath: path }), { name: "SocketPathError", code: "in-use" });
  assert.equal((await call(Uint8Array.of(1))).length, 1, "the first still serves");
  await assert.rejects(serveGrpc({ ...options, socketPath: `${path}.d/x.sock` }), {
    name: "SocketPathError",
    code: "cannot-listen",
    message: new RegExp(`cannot listen on ${path}.d/x.sock`),
  });
});

test("serveGrpc: disposing waits for the calls that run", async (t) => {
  const path = socketPath(t);
  const gate = new Deferred();
  const started = new Deferred();
  const server = await serveGrpc({
    socketPath: path,
    onBug: fail,
    clock: systemClock,
    handlers: {
      [METHOD]: async () => {
        started.resolve();
        await gate.promise;
        return Uint8Array.of(9);
      },
    },
  });
  const reply = callGrpc(path, METHOD, new Uint8Array(0));
  await started.promise;
  const disposed = server[Symbol.asyncDispose]();
  gate.resolve();
  assert.deepEqual(Uint8Array.from(await reply), Uint8Array.of(9));
  await disposed;
});

test("callGrpc: replies, failures and an absent server", async (t) => {
  const { path } = await open(t, async (request) => {
    if (request.length === 0) throw new CniFailure("internal", "no request");
    return request;
  });
  assert.deepEqual(Uint8Array.from(await callGrpc(path, METHOD, Uint8Array.of(1, 2))), Uint8Array.of(1, 2));
  await assert.rejects(callGrpc(path, METHOD, new Uint8Array(0)), {
    name: "GrpcCallError",
    code: "failed",
    message: /status 13: no request/,
  });
  await assert.rejects(callGrpc(path, `${METHOD}s`, new Uint8Array(0)), {
    name: "GrpcCallError",
    code: "unimplemented",
  });
  assert.equal(await inspectEgress(path, t), undefined, "an older coild");
  await assert.rejects(callGrpc(`${path}.none`, METHOD, new Uint8Array(0)), {
    name: "GrpcCallError",
    code: "unreachable",
  });
  await assert.rejects(callGrpc(path, METHOD, new Uint8Array(0), { signal: AbortSignal.abort(new Error("enough")) }), {
    message: "enough",
  });
});
