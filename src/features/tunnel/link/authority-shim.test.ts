import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import {
  type ClientHttp2Session,
  connect as connectHttp2,
  createServer,
  type Http2Server,
  type ServerHttp2Session,
} from "node:http2";
import { connect, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import fc from "fast-check";
import { encodeHeaderBlock, Http2Error } from "#wire/http2";
import { FrameFlag, FrameType, frameBytes, grpcRequest, PREFACE, RawHttp2 } from "../testing/raw-http2.ts";
import { AuthorityRewriter } from "./authority-rewriter.ts";
import { AuthorityDetector, acceptPathAuthority } from "./authority-shim.ts";

const PATH = "/etc/kubernetes/konnectivity-server/konnectivity-server.socket";
const FINE = ["localhost", encodeURIComponent(PATH)];
const ACK = frameBytes(FrameType.settings, FrameFlag.ack, 0);
const SETTINGS = frameBytes(FrameType.settings, 0, 0);

/** An HTTP/2 server that sends bodies back, behind the shim, or by itself. */
async function serve(
  t: TestContext,
  { shim, sessions = new Set() }: { readonly shim: boolean; readonly sessions?: Set<ServerHttp2Session> },
): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-authority-"));
  const http2: Http2Server = createServer();
  http2.on("session", (session) => {
    sessions.add(session);
    session.once("close", () => sessions.delete(session)).on("error", () => session.destroy());
  });
  http2.on("stream", (stream, headers) => {
    stream.on("error", () => undefined);
    stream.respond({ ":status": 200, "x-path": headers[":path"], "x-authority": headers[":authority"] });
    stream.pipe(stream);
  });
  const server: Server = shim ? acceptPathAuthority(http2) : http2;
  const sockets = new Set<Socket>();
  server.on("connection", (socket) => sockets.add(socket));
  const path = join(folder, "socket");
  await once(server.listen(path), "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
    rmSync(folder, { recursive: true, force: true });
  });
  return path;
}

async function dial(t: TestContext, path: string): Promise<Socket> {
  const socket = connect(path);
  t.after(() => socket.destroy());
  await once(socket, "connect");
  return socket;
}

/** Resolves when a socket is closed, with or without a reset. */
function gone(socket: Socket): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  socket.on("error", () => socket.destroy()).once("close", () => resolve());
  return promise;
}

test("node:http2 answers a request whose authority is a path with PROTOCOL_ERROR: why there is a shim", async (t) => {
  const peer = new RawHttp2(await dial(t, await serve(t, { shim: false })));
  peer.request(1, grpcRequest("/a", [], PATH));
  await peer.until("a reset", () => peer.of(FrameType.rstStream, 1).length > 0);
  assert.equal(peer.of(FrameType.rstStream, 1)[0]?.payload.readUInt32BE(), 1);
});

for (const authority of [PATH, ...FINE]) {
  test(`acceptPathAuthority: a client whose authority is ${authority} is served, its settings first or not`, async (t) => {
    const path = await serve(t, { shim: true });
    const peer = new RawHttp2(await dial(t, path));
    for (const stream of [1, 3, 5]) {
      peer.request(stream, grpcRequest(`/request-${stream}`, [], authority));
      peer.data(stream, Buffer.from(`body of ${stream}`), FrameFlag.endStream);
      await peer.until("the body is back", () => peer.dataOf(stream).length === 9);
      assert.equal(peer.header(stream, "x-path"), `/request-${stream}`);
      assert.equal(peer.header(stream, "x-authority"), authority === PATH ? "localhost" : authority);
    }
    // Settings twice: the shim's and the session's. The client has acknowledged both, and the session goes on.
    assert.equal(peer.of(FrameType.settings).filter(({ flags }) => flags === 0).length, 2);
    assert.equal(peer.of(FrameType.goAway).length, 0);
  });
}

for (const authority of [PATH, "localhost"]) {
  test(`acceptPathAuthority: a client that waits for settings, pings, and sends byte by byte is served (${authority})`, async (t) => {
    const path = await serve(t, { shim: true });
    const socket = await dial(t, path);
    const [first] = await once(socket, "data");
    assert.deepEqual(first, SETTINGS);
    socket.pause();
    const peer = new RawHttp2(socket);
    peer.write(ACK);
    peer.ping();
    socket.resume();
    await peer.until("the PING is answered", () => peer.of(FrameType.ping).length === 1);
    const byBytes = async (bytes: Buffer): Promise<void> => {
      for (const byte of bytes) {
        peer.write(Buffer.of(byte));
        await turn();
      }
    };
    const block = encodeHeaderBlock(grpcRequest("/a", [], authority));
    await byBytes(frameBytes(FrameType.headers, FrameFlag.endHeaders, 1, block));
    // Otherwise the acknowledgement would be written into the middle of the next frame.
    await peer.until("the session's settings are here", () => peer.of(FrameType.settings).length >= 2);
    await byBytes(frameBytes(FrameType.data, FrameFlag.endStream, 1, Buffer.from("body")));
    await peer.until("the body is back", () => String(peer.dataOf(1)) === "body");
  });

  test(`acceptPathAuthority: a client with a dynamic table and Huffman coding, many streams and 4 MiB each way (${authority})`, async (t) => {
    const path = await serve(t, { shim: true });
    const session: ClientHttp2Session = connectHttp2("http://localhost", { createConnection: () => connect(path) });
    t.after(() => session.destroy());
    const all = Array.from({ length: 40 }, async (_, at) => {
      const stream = session.request({
        ":method": "POST",
        ":authority": authority,
        ":path": `/path-${at % 7}`,
        "x-same": "the same in each request",
        [`x-${at}`]: "z".repeat(at * 20),
      });
      stream.end(Buffer.alloc(100 * 1024, at));
      const [headers] = await once(stream, "response");
      assert.equal(headers["x-path"], `/path-${at % 7}`);
      let bytes = 0;
      for await (const chunk of stream) {
        assert.ok((chunk as Buffer).every((byte) => byte === at));
        bytes += chunk.length;
      }
      assert.equal(bytes, 100 * 1024);
    });
    await Promise.all(all);
  });
}

for (const authority of [PATH, "localhost"]) {
  for (const how of ["end", "destroy"] as const) {
    test(`acceptPathAuthority: a client that leaves (${how}) ends its session (${authority})`, async (t) => {
      const sessions = new Set<ServerHttp2Session>();
      const path = await serve(t, { shim: true, sessions });
      const socket = await dial(t, path);
      const peer = new RawHttp2(socket);
      peer.request(1, grpcRequest("/a", [], authority));
      await peer.until("it is answered", () => peer.of(FrameType.headers, 1).length > 0);
      const [session] = sessions;
      assert.ok(session !== undefined);
      const closed = once(session, "close");
      socket[how]();
      await closed;
      await peer.closed();
    });
  }
}

test("acceptPathAuthority: another protocol, too much before the first request, and a broken one end the connection", async (t) => {
  const path = await serve(t, { shim: true });
  const lone = await dial(t, path);
  const loneEnds = gone(lone);
  lone.resume().write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  await loneEnds;
  const greedy = await dial(t, path);
  const greedyEnds = gone(greedy.resume());
  greedy.write(Buffer.concat([PREFACE, SETTINGS, ACK]));
  for (let at = 0; at < 40; at += 1) greedy.write(frameBytes(FrameType.data, 0, 1, Buffer.alloc(16_000)));
  await greedyEnds;
  const broken = await dial(t, path);
  const brokenEnds = gone(broken.resume());
  broken.write(Buffer.concat([PREFACE, SETTINGS, ACK, frameBytes(FrameType.headers, 4, 1, Buffer.from("ff", "hex"))]));
  await brokenEnds;
});

test("acceptPathAuthority: a client that sends PINGs before its first request, and acknowledges nothing, is disconnected", async (t) => {
  const path = await serve(t, { shim: true });
  const asking = await dial(t, path);
  const ends = gone(asking);
  asking.write(Buffer.concat([PREFACE, SETTINGS]));
  const pings = Buffer.concat(Array.from({ length: 1000 }, () => frameBytes(FrameType.ping, 0, 0, Buffer.alloc(8))));
  // It reads nothing, and sends until it is disconnected.
  asking.pause();
  let asked = 0;
  const ask = (): void => {
    asked += 1000;
    if (asked < 1_000_000) asking.write(pings, (error) => error ?? ask());
  };
  ask();
  asking.once("error", () => asking.resume());
  await ends;
  assert.ok(asked < 100_000, `${asked} questions were taken`);
});

/** A conversation of a client: frames of many kinds, some of them requests. */
const conversation = fc
  .array(
    fc.oneof(
      fc.record({ authority: fc.constantFrom(PATH, ...FINE), value: fc.string({ maxLength: 40 }), cut: fc.nat(30) }),
      fc.record({ type: fc.constantFrom(0, 2, 3, 8, 20), payload: fc.uint8Array({ maxLength: 40 }) }),
    ),
    { maxLength: 12 },
  )
  .map((parts) =>
    parts.flatMap((part, at) => {
      const stream = 2 * at + 1;
      if ("type" in part) return [frameBytes(part.type, 0, stream, part.payload)];
      const block = encodeHeaderBlock(grpcRequest("/a", [["x-value", part.value]], part.authority));
      return [
        frameBytes(FrameType.headers, FrameFlag.endStream, stream, block.subarray(0, part.cut)),
        frameBytes(FrameType.continuation, FrameFlag.endHeaders, stream, block.subarray(part.cut)),
      ];
    }),
  );

const cutAt = (bytes: Buffer, cuts: readonly number[]): Buffer[] => {
  const places = [...new Set([0, ...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length])].sort((a, b) => a - b);
  return places.slice(1).map((end, at) => bytes.subarray(places[at], end));
};

test("AuthorityRewriter: cuts change nothing, nothing but authorities changes, and no path is left", () => {
  fc.assert(
    fc.property(conversation, fc.array(fc.nat(), { maxLength: 20 }), (frames, cuts) => {
      const bytes = Buffer.concat([PREFACE, ...frames]);
      const whole = Buffer.concat(new AuthorityRewriter().push(bytes));
      const rewriter = new AuthorityRewriter();
      assert.deepEqual(Buffer.concat(cutAt(bytes, cuts).flatMap((part) => rewriter.push(part))), whole);
      assert.equal(whole.includes(PATH), false);
      // The output is valid, and a second pass does not change it.
      assert.deepEqual(Buffer.concat(new AuthorityRewriter().push(whole)), whole);
    }),
    { numRuns: 500 },
  );
});

test("AuthorityRewriter, AuthorityDetector: any bytes, after the preface or without it, give bytes or an Http2Error", () => {
  const frame = fc
    .record({
      type: fc.constantFrom(0, 1, 4, 6, 9, 1, 9),
      flags: fc.nat(255),
      stream: fc.constantFrom(0, 1, 3),
      payload: fc.uint8Array({ maxLength: 60 }),
    })
    .map(({ type, flags, stream, payload }) => frameBytes(type, flags, stream, payload));
  const garbage = fc.oneof(
    frame,
    fc.uint8Array({ maxLength: 30 }).map((bytes) => Buffer.from(bytes)),
  );
  fc.assert(
    fc.property(
      fc.array(garbage, { maxLength: 20 }),
      fc.array(fc.nat(), { maxLength: 5 }),
      fc.nat(48),
      (parts, cuts, cut) => {
        const bytes = Buffer.concat([PREFACE.subarray(0, cut), ...parts]);
        for (const make of [() => new AuthorityRewriter(), () => new AuthorityDetector()]) {
          const taker = make();
          try {
            for (const part of cutAt(bytes, cuts)) {
              const result = taker.push(part);
              if (!Array.isArray(result) && result.kind !== "wait") break;
            }
          } catch (error) {
            assert.ok(error instanceof Http2Error, String(error));
          }
        }
      },
    ),
    { numRuns: 3000 },
  );
});
