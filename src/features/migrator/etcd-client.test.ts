import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type Http2Server, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { systemClock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { nullLogger } from "#base/log";
import { ETCD_AUTHENTICATE } from "#wire/etcd";
import { frameMessage } from "#wire/grpc";
import { ProtoWriter } from "#wire/protobuf";
import { EtcdClient } from "./etcd-client.ts";

/** The way in which a member answers one call. */
type Answer = (stream: ServerHttp2Stream, call: { readonly path: string; readonly token: string | undefined }) => void;

/** A member of etcd on loopback; its URL. */
async function member(t: TestContext, answer: Answer): Promise<URL> {
  const server: Http2Server = createServer();
  const sessions = new Set<ServerHttp2Session>();
  server.on("session", (session) => sessions.add(session));
  server.on("stream", (stream, headers) => {
    stream.on("error", () => undefined);
    const token = headers["token"];
    stream.resume().on("end", () => {
      answer(stream, { path: headers[":path"] ?? "", token: typeof token === "string" ? token : undefined });
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    for (const session of sessions) session.destroy();
    server.close();
  });
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
}

function succeed(stream: ServerHttp2Stream, message: Uint8Array): void {
  stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
  stream.end(frameMessage(message));
}

function fail(stream: ServerHttp2Stream, code: number, message: string): void {
  stream.respond({ ":status": 200, "grpc-status": `${code}`, "grpc-message": message }, { endStream: true });
}

const revision = (value: number): Uint8Array =>
  new ProtoWriter().message(1, new ProtoWriter().uint(3, value).finish()).finish();
const token = (value: string): Uint8Array => new ProtoWriter().string(2, value).finish();
const request = { key: Buffer.from("/coil/"), rangeEnd: Buffer.from("/coil0"), limit: 10, revision: 0 };
const options = { signal: AbortSignal.timeout(60_000) };
const user = { name: "coil", password: "secret" };

function clientOf(endpoints: readonly URL[], more: { readonly user?: typeof user; readonly timeoutMs?: number } = {}) {
  const { timeoutMs = 2000 } = more;
  return new EtcdClient({ clock: systemClock, log: nullLogger }, { endpoints, tls: {}, timeoutMs, user: more.user });
}

test("EtcdClient: members that are down, silent, without a leader or no etcd are passed over; the one that answers stays", async (t) => {
  const asked: string[] = [];
  const silent = await member(t, () => asked.push("silent"));
  const leaderless = await member(t, (stream) => {
    asked.push("leaderless");
    fail(stream, 14, "etcdserver: no leader");
  });
  const web = await member(t, (stream) => {
    asked.push("web");
    stream.respond({ ":status": 404 }, { endStream: true });
  });
  const good = await member(t, (stream) => {
    asked.push("good");
    succeed(stream, revision(7));
  });
  using etcd = clientOf([new URL("http://127.0.0.1:1"), silent, leaderless, web, good], { timeoutMs: 300 });
  assert.equal((await etcd.range(request, options)).revision, 7);
  assert.deepEqual(asked, ["silent", "leaderless", "web", "good"]);
  for (let at = 0; at < 30; at += 1) await etcd.range(request, options);
  assert.equal(asked.filter((name) => name !== "good").length, 3);
});

test("EtcdClient: without any answer, the error names each endpoint and its reason", async (t) => {
  const silent = await member(t, () => undefined);
  using etcd = clientOf([new URL("http://127.0.0.1:1"), silent], { timeoutMs: 50 });
  await assert.rejects(etcd.range(request, options), (error) => {
    assert.ok(error instanceof ExpectedError);
    assert.equal(error.code, "etcd-unreachable");
    const [first, second] = (error.cause as AggregateError).errors as Error[];
    assert.match(first?.message ?? "", /^etcd http:\/\/127\.0\.0\.1:1: .*ECONNREFUSED/);
    assert.match(second?.message ?? "", /no answer came within 50 ms$/);
    return true;
  });
});

test("EtcdClient: an expired token is replaced once; a user that etcd does not want is left out", async (t) => {
  let valid = 0;
  const strict = await member(t, (stream, { path, token: sent }) => {
    if (path === ETCD_AUTHENTICATE) {
      valid += 1;
      succeed(stream, token(`t${valid}`));
    } else if (sent === `t${valid}`) succeed(stream, revision(valid));
    else fail(stream, 16, "etcdserver: invalid auth token");
  });
  using etcd = clientOf([strict], { user });
  assert.equal((await etcd.range(request, options)).revision, 1);
  valid = 5;
  assert.equal((await etcd.range(request, options)).revision, 6);
  const never = await member(t, (stream, { path }) => {
    if (path === ETCD_AUTHENTICATE) succeed(stream, token("t"));
    else fail(stream, 16, "etcdserver: invalid auth token");
  });
  using refused = clientOf([never], { user });
  await assert.rejects(refused.range(request, options), { code: "etcd-refused", message: /invalid auth token; check/ });
  const open = await member(t, (stream, { path, token: sent }) => {
    if (path === ETCD_AUTHENTICATE) fail(stream, 9, "etcdserver: authentication is not enabled");
    else succeed(stream, revision(sent === undefined ? 3 : 4));
  });
  using free = clientOf([open], { user });
  assert.equal((await free.range(request, options)).revision, 3);
});

test("EtcdClient: a compacted revision has a code of its own, and is asked for once", async (t) => {
  let calls = 0;
  const compacted = await member(t, (stream) => {
    calls += 1;
    fail(stream, 11, "etcdserver: mvcc: required revision has been compacted");
  });
  using etcd = clientOf([compacted]);
  await assert.rejects(etcd.range(request, options), { code: "compacted" });
  assert.equal(calls, 1);
});

test("EtcdClient: arbitrary bytes and statuses are an answer or an ExpectedError", async (t) => {
  let body: Uint8Array = new Uint8Array(0);
  let status = "0";
  const odd = await member(t, (stream) => {
    stream.respond({ ":status": 200 }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": status }));
    stream.end(body);
  });
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 30 }),
    fc.uint8Array({ maxLength: 30 }).map((message) => frameMessage(message)),
  );
  await fc.assert(
    fc.asyncProperty(bytes, fc.constantFrom("0", "0", "3", "x", "", "99"), async (one, code) => {
      body = one;
      status = code;
      using etcd = clientOf([odd], { timeoutMs: 1000 });
      // The first failure of transport is enough: rounds with pauses have their own test.
      const stop = AbortSignal.timeout(60);
      try {
        await etcd.range(request, { signal: stop });
      } catch (error) {
        assert.ok(error instanceof ExpectedError || stop.aborted, String(error));
      }
    }),
    { numRuns: 150 },
  );
});
