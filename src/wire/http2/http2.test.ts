import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type Http2Server, type ServerHttp2Stream } from "node:http2";
import { type AddressInfo, connect } from "node:net";
import { buffer } from "node:stream/consumers";
import { test } from "node:test";
import fc from "fast-check";
import { character } from "#test/characters";
import { decodeHeaderBlock, encodeHeaderBlock, Http2Call, Http2Error, type Http2Response } from "./index.ts";

const request = (body: Uint8Array) => ({ path: "/pkg.S/M", authority: "localhost", headers: { te: "trailers" }, body });

/** Makes one call of a server that answers with `answer`. Rejects with what the call throws. */
async function call(
  answer: (stream: ServerHttp2Stream, server: Http2Server) => void,
  body: Uint8Array = new Uint8Array(5),
): Promise<Http2Response> {
  const server = createServer();
  server.on("stream", (stream) => {
    stream.on("error", () => undefined);
    answer(stream, server);
  });
  server.on("session", (session) => session.on("error", () => undefined));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  try {
    const http2 = new Http2Call(request(body));
    return await new Promise((resolve, reject) => {
      socket.on("data", (chunk: Buffer) => {
        try {
          socket.write(http2.receive(chunk));
        } catch (error) {
          reject(error);
        }
        if (http2.response !== undefined) resolve(http2.response);
      });
      socket.on("error", reject);
      socket.on("close", () => reject(new Error("closed")));
      socket.write(http2.start());
    });
  } finally {
    socket.destroy();
    server.close();
  }
}

function frame(type: number, flags: number, stream: number, payload: Uint8Array): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}
const headers = (...list: [string, string][]): Uint8Array => encodeHeaderBlock(list);
const END = 5; // END_STREAM and END_HEADERS

test("Http2Call: every header value byte of node:http2, which Huffman-codes them, is read back", async () => {
  const printable = Array.from({ length: 0x7f - 0x20 }, (_, at) => String.fromCharCode(0x20 + at)).join("");
  const values = { "x-all": `a${printable}a`, "x-repeat": "e".repeat(3000), "x-mixed": `${printable.toLowerCase()}-` };
  const { headers: read, body } = await call((stream) => {
    stream.respond({ ":status": 200, ...values }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0", ...values }));
    stream.end("hello");
  });
  for (const [name, value] of Object.entries(values)) assert.equal(read.get(name), value, name);
  assert.equal(read.get(":status"), "200");
  assert.equal(read.get("grpc-status"), "0");
  assert.equal(Buffer.from(body).toString(), "hello");
});

test("decodeHeaderBlock: the Huffman examples of RFC 7541 appendix C.4", () => {
  // C.4.1 to C.4.3 without their dynamic-table references.
  const literal = (value: string): Buffer =>
    Buffer.concat([Buffer.from("0001", "hex"), Buffer.from("a"), Buffer.from(value, "hex")]);
  for (const [hex, text] of [
    ["8cf1e3c2e5f23a6ba0ab90f4ff", "www.example.com"],
    ["86a8eb10649cbf", "no-cache"],
    ["8825a849e95ba97d7f", "custom-key"],
    ["8925a849e95bb8e8b4bf", "custom-value"],
  ] as const) {
    assert.deepEqual(decodeHeaderBlock(literal(hex)), [["a", text]]);
  }
});

test("decodeHeaderBlock: bad padding, a cut string, a huge integer and an unknown index are refused", () => {
  for (const hex of [
    "000161" + "81ff",
    "000161" + "82ffff",
    "00016185",
    "c2",
    "be",
    "80",
    "00ffffffffffff7f",
    "0001",
  ]) {
    assert.throws(() => decodeHeaderBlock(Buffer.from(hex, "hex")), { name: "Http2Error", code: "malformed" }, hex);
  }
});

test("encodeHeaderBlock: round trips", () => {
  const header = fc.tuple(fc.string({ minLength: 1 }), fc.string({ unit: character, maxLength: 400 }));
  fc.assert(
    fc.property(fc.array(header), (list) => assert.deepEqual(decodeHeaderBlock(encodeHeaderBlock(list)), list)),
  );
});

test("Http2Call: a body beyond every window arrives complete, and so does a large response", async () => {
  const body = Uint8Array.from({ length: 700_000 }, (_, at) => at % 251);
  const { body: echoed } = await call((stream) => {
    void buffer(stream).then((got) => {
      stream.respond({ ":status": 200 });
      stream.end(got);
    });
  }, body);
  assert.deepEqual(Buffer.from(echoed).equals(body), true);
});

test("Http2Call: headers in several frames are joined; too many of them are refused", async () => {
  const block = headers([":status", "200"], ["x", "y".repeat(50)]);
  const http2 = new Http2Call(request(new Uint8Array(1)));
  http2.start();
  http2.receive(frame(1, 1, 1, block.subarray(0, 7)));
  http2.receive(frame(9, 0, 1, block.subarray(7, 20)));
  assert.equal(http2.response, undefined);
  http2.receive(frame(9, 4, 1, block.subarray(20)));
  assert.equal((http2.response as Http2Response | undefined)?.headers.get("x"), "y".repeat(50));
  const endless = new Http2Call(request(new Uint8Array(1)));
  endless.start();
  endless.receive(frame(1, 0, 1, block));
  assert.throws(
    () => {
      for (let at = 0; at < 20; at += 1) endless.receive(frame(9, 0, 1, new Uint8Array(100)));
    },
    { name: "Http2Error", code: "too-large" },
  );
});

test("Http2Call: frames of the server before the request are kept, and the body is sent once", () => {
  const settings = frame(4, 0, 0, new Uint8Array(0));
  const http2 = new Http2Call(request(Uint8Array.of(1, 2, 3)));
  assert.equal(http2.receive(settings).length, 0);
  const sent = Buffer.from(http2.start());
  assert.ok(sent.subarray(-9).equals(frame(4, 1, 0, new Uint8Array(0))), "acknowledged behind the request");
  assert.equal(sent.toString("latin1").split("\x01\x02\x03").length, 2);
});

test("Http2Call: bytes may come one at a time", () => {
  const stream = Buffer.concat([
    frame(4, 0, 0, new Uint8Array(0)),
    frame(6, 0, 0, Buffer.from("12345678")),
    frame(1, 4, 1, headers([":status", "200"])),
    frame(0, 8, 1, Buffer.from("\x02hi\x00\x00")), // padded
    frame(1, END, 1, headers(["grpc-status", "0"])),
  ]);
  const http2 = new Http2Call(request(new Uint8Array(0)));
  http2.start();
  const replies = Buffer.concat(Array.from(stream, (byte) => http2.receive(Uint8Array.of(byte))));
  assert.ok(replies.includes(frame(6, 1, 0, Buffer.from("12345678"))), "the ping is answered");
  assert.equal(Buffer.from(http2.response?.body ?? []).toString(), "hi");
});

test("Http2Call: a reset or a closing connection is refused with the server's error", async () => {
  await assert.rejects(
    call((stream) => stream.close(11)),
    { name: "Http2Error", code: "refused", message: /HTTP\/2 error 11/ },
  );
  const goAway = call((stream) => stream.session?.goaway(2));
  await assert.rejects(goAway, {
    name: "Http2Error",
    code: "refused",
    message: /closed the connection \(HTTP\/2 error 2\)/,
  });
});

test("Http2Call: a reset after the complete response does not drop it (RFC 9113 section 8.1)", () => {
  const http2 = new Http2Call(request(new Uint8Array(0)));
  http2.start();
  http2.receive(
    Buffer.concat([
      frame(1, END, 1, headers([":status", "200"])),
      frame(3, 0, 1, new Uint8Array(4)),
      Buffer.from("noise"),
    ]),
  );
  assert.equal(http2.response?.headers.get(":status"), "200");
});

test("Http2Call: an answer above the bound, frames of other streams and oversized frames are refused", async () => {
  await assert.rejects(
    call((stream) => {
      stream.respond({ ":status": 200 });
      stream.end(Buffer.alloc(5 * 1024 * 1024));
    }),
    { name: "Http2Error", code: "too-large" },
  );
  for (const bad of [
    frame(0, 0, 3, new Uint8Array(1)),
    frame(1, END, 2, new Uint8Array(0)),
    frame(0, 0, 1, new Uint8Array(16_385)),
    Buffer.from("HTTP/1.1 400 Bad Request\r\n\r\n"),
  ]) {
    const http2 = new Http2Call(request(new Uint8Array(0)));
    http2.start();
    assert.throws(() => http2.receive(bad), { name: "Http2Error", code: "malformed" });
  }
});

test("Http2Call: arbitrary bytes and frames give a response, need more, or throw an Http2Error", () => {
  const anyFrame = fc
    .tuple(
      fc.nat(10),
      fc.nat(255),
      fc.constantFrom(0, 1, 1, 1, 3),
      fc.oneof(fc.uint8Array({ maxLength: 60 }), fc.constant(headers([":status", "200"]))),
    )
    .map(([type, flags, stream, payload]) => frame(type, flags, stream, payload));
  fc.assert(
    fc.property(fc.array(fc.oneof(fc.uint8Array(), anyFrame, anyFrame), { maxLength: 8 }), (chunks) => {
      const http2 = new Http2Call(request(new Uint8Array(100_000)));
      http2.start();
      try {
        for (const chunk of chunks) http2.receive(chunk);
      } catch (error) {
        assert.ok(error instanceof Http2Error, String(error));
      }
    }),
    { numRuns: 2000 },
  );
});
