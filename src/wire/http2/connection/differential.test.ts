import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  type ClientHttp2Session,
  connect,
  constants,
  performServerHandshake,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import { Duplex } from "node:stream";
import { buffer } from "node:stream/consumers";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import {
  type Header,
  Http2Code,
  Http2Connection,
  type Http2Events,
  type Http2Options,
  type Http2Stream,
} from "../index.ts";
import { RecordedStream } from "./testing/recorder.ts";

/** The largest batch of a write. */
const BATCH_BYTES = 262_144;

/** One end of a connection in memory: what is written comes out of the other end, a tick later. */
class MemoryEnd extends Duplex {
  other: MemoryEnd | undefined;
  #done: (() => void) | undefined;

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    const { other } = this;
    setImmediate(() => {
      if (other === undefined || other.destroyed || other.push(chunk)) done();
      else other.#done = done;
    });
  }

  override _read(): void {
    const done = this.#done;
    this.#done = undefined;
    done?.();
  }

  override _final(done: () => void): void {
    setImmediate(() => this.other?.push(null));
    done();
  }
}

function memoryPair(): [MemoryEnd, MemoryEnd] {
  const pair = [new MemoryEnd(), new MemoryEnd()] as const;
  pair[0].other = pair[1];
  pair[1].other = pair[0];
  return [...pair];
}

/** A connection of ours over a duplex. */
function bind(
  role: "client" | "server",
  duplex: Duplex,
  onRequest: Http2Events["onRequest"],
  options: Partial<Http2Options> = {},
): { readonly connection: Http2Connection; readonly goAways: number[]; readonly failures: string[] } {
  const goAways: number[] = [];
  const failures: string[] = [];
  let isWriting = false;
  const write = (): void => {
    if (isWriting || !connection.hasOutput || duplex.destroyed) return;
    isWriting = true;
    duplex.write(Buffer.concat(connection.takeOutput(BATCH_BYTES)), () => {
      isWriting = false;
      write();
    });
  };
  const connection = new Http2Connection(
    role,
    { clock: systemClock, ...options },
    {
      onWantsWrite: () => setImmediate(write),
      onRequest,
      onGoAway: (code) => goAways.push(code),
      onPing: () => undefined,
      onPong: () => undefined,
      onFailed: ({ message }) => failures.push(message),
    },
  );
  setImmediate(write);
  duplex.on("data", (chunk: Buffer) => connection.receive(chunk));
  duplex.once("close", () => connection.close("the transport has closed"));
  return { connection, goAways, failures };
}

/** A client of ours against a server of Node. */
function clientOfNode(
  onStream: (stream: ServerHttp2Stream, headers: Record<string, unknown>) => void,
  options: Partial<Http2Options> = {},
) {
  const [a, b] = memoryPair();
  const session: ServerHttp2Session = performServerHandshake(b as never, {
    settings: { initialWindowSize: 1 << 20, maxFrameSize: 65_536 },
  });
  session.on("stream", (stream, headers) => {
    stream.on("error", () => undefined);
    onStream(stream, headers);
  });
  session.on("error", () => undefined);
  const ours = bind(
    "client",
    a,
    () => {
      throw new Error("a request on a client");
    },
    options,
  );
  return { ...ours, session, duplex: a };
}

/** A client of Node against a server of ours. */
function serverForNode(onRequest: Http2Events["onRequest"], options: Partial<Http2Options> = {}) {
  const [a, b] = memoryPair();
  const ours = bind("server", b, onRequest, options);
  const session: ClientHttp2Session = connect("http://localhost", {
    createConnection: () => a,
    // Node ends sessions whose streams queue more.
    maxSessionMemory: 1000,
    settings: { initialWindowSize: 1 << 20, maxFrameSize: 65_536 },
  });
  session.on("error", () => undefined);
  return { ...ours, session };
}

/** Resolves when a recorded stream has closed. */
class Awaited extends RecordedStream {
  readonly closed = Promise.withResolvers<void>();
  readonly answered = Promise.withResolvers<void>();
  onMore: (bytes: Uint8Array) => void = () => undefined;
  whenSent: () => void = () => undefined;
  whenEnd: () => void = () => undefined;

  override onHeaders(headers: readonly Header[]): void {
    super.onHeaders(headers);
    this.answered.resolve();
  }

  override onData(bytes: Uint8Array): void {
    super.onData(bytes);
    this.onMore(bytes);
  }

  override onSent(bytes: number): void {
    super.onSent(bytes);
    this.whenSent();
  }

  override onEnd(): void {
    super.onEnd();
    this.whenEnd();
  }

  override onClosed(fault: RecordedStream["fault"]): void {
    super.onClosed(fault);
    this.closed.resolve();
  }
}

function open(connection: Http2Connection, headers: readonly Header[], endStream = false): Awaited {
  const seen = new Awaited();
  seen.stream = connection.openStream(headers, endStream, seen);
  return seen;
}

const request = (path = "/S/M"): Header[] => [
  [":method", "POST"],
  [":scheme", "http"],
  [":path", path],
  [":authority", "localhost"],
  ["content-type", "application/grpc"],
  ["te", "trailers"],
];

/** Sends bytes as fast as the stream takes them, in parts of 64 KiB, and ends the side. */
function pour(seen: Awaited, stream: Http2Stream, bytes: Buffer): void {
  let at = 0;
  const more = (): void => {
    while (at < bytes.length && stream.sendable > 0) {
      const end = Math.min(bytes.length, at + 65_536);
      stream.sendData([bytes.subarray(at, end)], end === bytes.length);
      at = end;
    }
  };
  seen.whenSent = more;
  more();
}

const digest = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

test("differential: our client makes unary calls of Node's server, with headers both ways and trailers", async () => {
  const { connection, session } = clientOfNode((stream, headers) => {
    void buffer(stream).then((body) => {
      stream.respond({ ":status": 200, "x-path": String(headers[":path"]) }, { waitForTrailers: true });
      stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0", "x-sum": digest(body) }));
      stream.end(body);
    });
  });
  for (const size of [0, 1, 5, 511, 512, 513, 16_384, 16_385, 200_000]) {
    const body = randomBytes(size);
    const seen = open(connection, [...request(`/S/${size}`), ["x-size", String(size)]]);
    seen.stream?.sendData([body.subarray(0, 3), body.subarray(3)], true);
    await seen.closed.promise;
    assert.equal(seen.fault, undefined);
    assert.ok(seen.data.equals(body), `${size} bytes`);
    assert.equal(new Map(seen.headers).get("x-path"), `/S/${size}`);
    assert.equal(new Map(seen.trailers).get("x-sum"), digest(body));
  }
  assert.equal(connection.streams, 0);
  session.destroy();
});

test("differential: Node's client makes unary calls of our server, with headers both ways and trailers", async () => {
  const { session, connection } = serverForNode((stream, headers) => {
    const seen = new Awaited();
    seen.stream = stream;
    seen.whenEnd = () => {
      stream.sendHeaders([...OK, ["x-path", new Map(headers).get(":path") ?? ""]], false);
      stream.sendData([seen.data], false);
      stream.sendHeaders([["grpc-status", "0"]], true);
    };
    return seen;
  });
  for (const size of [0, 1, 511, 513, 16_384, 16_385, 200_000]) {
    const body = randomBytes(size);
    const stream = session.request({ ":method": "POST", ":path": `/S/${size}`, "x-size": String(size) });
    let trailers: Record<string, unknown> = {};
    stream.on("trailers", (list) => {
      trailers = list;
    });
    const headed = once(stream, "response");
    stream.end(body);
    const [[response], got] = (await Promise.all([headed, buffer(stream)])) as unknown as [
      [Record<string, unknown>],
      Buffer,
    ];
    assert.equal(response["x-path"], `/S/${size}`);
    assert.ok(got.equals(body), `${size} bytes`);
    assert.equal(trailers["grpc-status"], "0");
  }
  assert.equal(connection.streams, 0);
  session.destroy();
});

const OK: readonly Header[] = [[":status", "200"]];

test("differential: 64 MiB each way at once on one stream, our client and Node's server", async () => {
  const body = randomBytes(64 << 20);
  const received = createHash("sha256");
  let ended: Promise<unknown> | undefined;
  const { connection, session } = clientOfNode(
    (stream) => {
      stream.respond({ ":status": 200 });
      stream.on("data", (chunk: Buffer) => received.update(chunk));
      ended = once(stream, "end");
      stream.end(body);
    },
    { streamWindowBytes: 1 << 20, connectionWindowBytes: 4 << 20, maxFrameBytes: 65_536 },
  );
  const seen = open(connection, request());
  const hash = createHash("sha256");
  let bytes = 0;
  seen.onMore = (chunk) => {
    hash.update(chunk);
    bytes += chunk.length;
    seen.chunks.length = 0;
  };
  pour(seen, seen.stream as Http2Stream, body);
  await seen.closed.promise;
  await ended;
  assert.equal(seen.fault, undefined);
  assert.equal(bytes, body.length);
  assert.equal(hash.digest("hex"), digest(body));
  assert.equal(received.digest("hex"), digest(body));
  session.destroy();
});

test("differential: 64 MiB each way at once on eight streams, Node's client and our server", async () => {
  const part = randomBytes(8 << 20);
  const sums: Promise<string>[] = [];
  const { session, connection } = serverForNode(
    (stream) => {
      const seen = new Awaited();
      seen.stream = stream;
      const hash = createHash("sha256");
      seen.onMore = (chunk) => {
        hash.update(chunk);
        seen.chunks.length = 0;
      };
      sums.push(seen.closed.promise.then(() => hash.digest("hex")));
      stream.sendHeaders(OK, false);
      pour(seen, stream, part);
      return seen;
    },
    { streamWindowBytes: 1 << 20, connectionWindowBytes: 4 << 20, maxFrameBytes: 65_536 },
  );
  const got = await Promise.all(
    Array.from({ length: 8 }, async () => {
      const stream = session.request({ ":method": "POST", ":path": "/" });
      stream.end(part);
      return digest(await buffer(stream));
    }),
  );
  assert.deepEqual(new Set([...got, ...(await Promise.all(sums))]), new Set([digest(part)]));
  assert.equal(connection.streams, 0);
  assert.equal(connection.unconsumedBytes, 0);
  session.destroy();
});

test("differential: CONNECT both ways, with data in both directions and a half-close", async () => {
  const { connection, session } = clientOfNode((stream, headers) => {
    assert.equal(headers[":method"], "CONNECT");
    assert.equal(headers[":authority"], "10.0.0.1:443");
    stream.respond({ ":status": 200 });
    stream.pipe(stream);
  });
  const seen = open(connection, [
    [":method", "CONNECT"],
    [":authority", "10.0.0.1:443"],
  ]);
  seen.stream?.sendData([Buffer.from("hello")], false);
  await seen.answered.promise;
  seen.stream?.sendData([Buffer.from(" there")], true);
  await seen.closed.promise;
  assert.equal(String(seen.data), "hello there");
  session.destroy();

  const other = serverForNode((stream, headers) => {
    assert.deepEqual(headers.slice(0, 2).sort(), [
      [":authority", "10.0.0.1:443"],
      [":method", "CONNECT"],
    ]);
    const tunnel = new Awaited();
    tunnel.stream = stream;
    stream.sendHeaders(OK, false);
    tunnel.onMore = (bytes) => stream.sendData([Buffer.from(bytes)], false);
    tunnel.whenEnd = () => stream.sendData([], true);
    return tunnel;
  });
  const tunnel = other.session.request({ ":method": "CONNECT", ":authority": "10.0.0.1:443" });
  tunnel.end("over node");
  assert.equal(String(await buffer(tunnel)), "over node");
  other.session.destroy();
});

test("differential: a reset of either side reaches the other with its code", async () => {
  const { connection, session } = clientOfNode((stream, headers) => {
    if (headers[":path"] === "/peer") stream.close(constants.NGHTTP2_CANCEL);
    else stream.once("close", () => codes.push(stream.rstCode));
  });
  const codes: (number | undefined)[] = [];
  const reset = open(connection, request("/peer"));
  await reset.closed.promise;
  assert.deepEqual([reset.fault?.code, reset.fault?.origin], [constants.NGHTTP2_CANCEL, "peer"]);
  const own = open(connection, request("/own"));
  own.stream?.reset(Http2Code.refusedStream);
  await own.closed.promise;
  const after = open(connection, request("/peer"));
  await after.closed.promise;
  assert.deepEqual(codes, [Http2Code.refusedStream]);
  session.destroy();

  const other = serverForNode((stream) => {
    const seen = new Awaited();
    stream.reset(Http2Code.enhanceYourCalm);
    return seen;
  });
  const stream = other.session.request({ ":method": "POST", ":path": "/" });
  stream.on("error", () => undefined);
  await new Promise((resolve) => stream.once("close", resolve));
  assert.equal(stream.rstCode, constants.NGHTTP2_ENHANCE_YOUR_CALM);
  other.session.destroy();
});

test("differential: an answer before the end of the request, and NO_ERROR behind it, as gRPC servers do", async () => {
  const { session } = serverForNode((stream) => {
    stream.sendHeaders(OK, false);
    stream.sendData([Buffer.alloc(100_000, 1)], false);
    stream.sendHeaders([["grpc-status", "5"]], true);
    stream.resetAfterEnd();
    return new RecordedStream();
  });
  const stream = session.request({ ":method": "POST", ":path": "/" });
  let status: unknown;
  stream.on("trailers", (list) => {
    status = list["grpc-status"];
  });
  stream.write("the request goes on");
  assert.equal((await buffer(stream)).length, 100_000);
  assert.equal(status, "5");
  assert.equal(stream.rstCode, 0);
  session.destroy();
});

test("differential: Node's limit of streams holds streams back, and its GOAWAY lets open streams end", async () => {
  const held: ServerHttp2Stream[] = [];
  const { connection, session, goAways } = clientOfNode((stream) => held.push(stream));
  session.settings({ maxConcurrentStreams: 2 });
  const first = open(connection, request());
  while (held.length < 1) await new Promise(setImmediate);
  const [second, third] = [open(connection, request(), true), open(connection, request(), true)];
  while (held.length < 2) await new Promise(setImmediate);
  assert.deepEqual([second.stream?.id, third.stream?.id], [3, 0]);
  held[0]?.respond({ ":status": 204 }, { endStream: true });
  first.stream?.sendData([], true);
  while (held.length < 3) await new Promise(setImmediate);
  assert.equal(third.stream?.id, 5);
  session.goaway(constants.NGHTTP2_NO_ERROR);
  while (goAways.length < 1) await new Promise(setImmediate);
  assert.equal(connection.acceptsStreams, false);
  assert.throws(() => open(connection, request()), { name: "Http2Error", code: "refused" });
  for (const stream of held.slice(1)) stream.respond({ ":status": 200 }, { endStream: true });
  await Promise.all([second.closed.promise, third.closed.promise]);
  assert.deepEqual([second.fault, third.fault], [undefined, undefined]);
  session.destroy();
});

test("differential: Node's client obeys our GOAWAY and our limit of streams", async () => {
  const { session, connection } = serverForNode(
    (stream) => {
      const seen = new Awaited();
      seen.stream = stream;
      seen.whenEnd = () => stream.sendHeaders(OK, true);
      return seen;
    },
    { maxConcurrentStreams: 1 },
  );
  await once(session, "remoteSettings");
  assert.equal(session.remoteSettings.maxConcurrentStreams, 1);
  const streams = [1, 2, 3].map(() => session.request({ ":method": "POST", ":path": "/" }).end());
  for (const stream of streams) {
    await once(stream.resume(), "close");
    assert.equal(stream.rstCode, 0);
  }
  const gone = once(session, "goaway");
  connection.goAway(0, "bye");
  const [code, , text] = await gone;
  assert.deepEqual([code, String(text)], [0, "bye"]);
  session.destroy();
});

test("differential: PINGs are answered both ways", async () => {
  const { session } = serverForNode(() => new RecordedStream());
  const opaque = randomBytes(8);
  const back = await new Promise<Buffer>((resolve) => {
    session.ping(opaque, (_error, _duration, payload) => resolve(payload));
  });
  assert.ok(back.equals(opaque));
  session.destroy();
});
