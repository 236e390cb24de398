import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { RequestHeadReader } from "#wire/http-connect";
import {
  type BodyFraming,
  BodyReader,
  encodeChunk,
  encodeLastChunk,
  ResponseHeadReader,
  requestFraming,
  responseFraming,
} from "./index.ts";

const bytes = (text: string): Buffer => Buffer.from(text, "latin1");

/** The pieces of a text, cut where told. */
function cut(data: Uint8Array, at: readonly number[]): Uint8Array[] {
  const places = [...new Set(at.map((place) => place % (data.length + 1)))].sort((a, b) => a - b);
  return [...places, data.length].map((end, index) => data.subarray(places[index - 1] ?? 0, end));
}

/** Returns the body that a reader decodes from pieces. */
function readBody(framing: BodyFraming, pieces: readonly Uint8Array[]): string {
  const reader = new BodyReader(framing);
  let payload = "";
  for (const [index, piece] of pieces.entries()) {
    const progress = reader.push(piece);
    if (progress.kind === "malformed") return `malformed: ${progress.what}`;
    for (const part of progress.payload) payload += Buffer.from(part).toString("latin1");
    if (progress.kind === "more") continue;
    const rest = Buffer.concat([progress.rest, ...pieces.slice(index + 1)]).toString("latin1");
    return `done: ${payload} | ${progress.trailers.map(({ name, value }) => `${name}=${value}`).join()} | ${rest}`;
  }
  return `${reader.end() ? "ended" : "cut off"}: ${payload}`;
}

function framingOfRequest(fields: string, version = "1.1"): string {
  const progress = new RequestHeadReader().push(bytes(`POST http://a/ HTTP/${version}\r\nHost: a\r\n${fields}\r\n`));
  if (progress.kind !== "head") return progress.kind;
  const framing = requestFraming(progress.head);
  return framing.kind === "length" ? `length ${framing.bytes}` : framing.kind;
}

function framingOfAnswer(statusLine: string, fields: string, method = "GET"): string {
  const progress = new ResponseHeadReader().push(bytes(`${statusLine}\r\n${fields}\r\n`));
  if (progress.kind !== "head") return progress.kind;
  const framing = responseFraming(progress.head, method);
  return framing.kind === "length" ? `length ${framing.bytes}` : framing.kind;
}

test("requestFraming: ambiguous framing is malformed (RFC 9112 sections 6.1, 6.3)", () => {
  assert.equal(framingOfRequest(""), "none");
  assert.equal(framingOfRequest("Content-Length: 0\r\n"), "length 0");
  assert.equal(framingOfRequest("Content-Length: 12\r\n"), "length 12");
  assert.equal(framingOfRequest("Transfer-Encoding: Chunked\r\n"), "chunked");
  // Equal ones are one.
  assert.equal(framingOfRequest("Content-Length: 1\r\nContent-Length: 1\r\n"), "length 1");
  assert.equal(framingOfRequest("Content-Length: 1, 1\r\nA: b\r\ncontent-length: 1\r\n"), "length 1");
  for (const fields of [
    "Content-Length: 1\r\nContent-Length: 01\r\n",
    "Content-Length: 1\r\nContent-Length: 2\r\n",
    "Content-Length: 1,\r\n",
    "Content-Length: +1\r\n",
    "Content-Length: 0x1\r\n",
    "Content-Length:\r\n",
    "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding: chunked, identity\r\n",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: \x0bchunked\r\n",
    "Transfer-Encoding : chunked\r\n",
    " Content-Length: 1\r\n",
  ]) {
    assert.match(framingOfRequest(fields), /^(malformed|refused)$/, JSON.stringify(fields));
  }
  assert.equal(framingOfRequest("Transfer-Encoding: chunked\r\n", "1.0"), "malformed");
});

test("responseFraming: HEAD, 1xx, 204 and 304 have no body, whatever their fields; others end by length, chunks or connection", () => {
  assert.equal(framingOfAnswer("HTTP/1.1 200 OK", "Content-Length: 5\r\n"), "length 5");
  assert.equal(framingOfAnswer("HTTP/1.1 200", "Transfer-Encoding: chunked\r\n"), "chunked");
  assert.equal(framingOfAnswer("HTTP/1.0 200 OK", ""), "close");
  assert.equal(framingOfAnswer("HTTP/1.1 200 OK", "Content-Length: 5\r\n", "HEAD"), "none");
  assert.equal(framingOfAnswer("HTTP/1.1 204 No Content", "Content-Length: 5\r\n"), "none");
  assert.equal(framingOfAnswer("HTTP/1.1 304 Not Modified", "Transfer-Encoding: chunked\r\n"), "none");
  assert.equal(framingOfAnswer("HTTP/1.1 200 OK", "Content-Length: 5\r\nContent-Length: 5\r\n"), "length 5");
  for (const fields of [
    "Content-Length: 5\r\nContent-Length: 6\r\n",
    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Content-Length: 5\r\n folded\r\n",
    "Content-Length: -5\r\n",
  ]) {
    assert.equal(framingOfAnswer("HTTP/1.1 200 OK", fields), "malformed", JSON.stringify(fields));
  }
  for (const line of [
    "HTTP/1.1 200 OK\n",
    "HTTP/2 200 OK",
    "200 OK",
    "HTTP/1.1 99 x",
    "HTTP/1.1  200 OK",
    "HTTP/1.1 200 a\rb",
  ]) {
    assert.equal(framingOfAnswer(line, ""), "malformed", line);
  }
});

test("BodyReader: a chunked body gives its payload, skips its trailer, and returns the bytes after it", () => {
  const read = (text: string): string => readBody({ kind: "chunked" }, [bytes(text)]);
  assert.equal(
    read("5\r\nhello\r\nA;x=1\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\nGET /"),
    "done: hello0123456789 | X-Sum=1 | GET /",
  );
  assert.equal(read("0\r\n\r\n"), "done:  |  | ");
  assert.equal(read("5\r\nhel"), "cut off: hel");
  for (const text of [
    "5\nhello\r\n0\r\n\r\n",
    "5\r\nhello0\r\n\r\n",
    "5\r\nhello\n0\r\n\r\n",
    "-1\r\n",
    "0x5\r\nhello",
    "fffffffffffffffff\r\n",
    "\r\n",
    "5 5\r\n",
    "0\r\nno field\r\n\r\n",
    "0\r\n X: folded\r\n\r\n",
    `5;${"x".repeat(5000)}\r\n`,
    `0\r\nX: ${"x".repeat(20_000)}\r\n\r\n`,
  ]) {
    assert.match(read(text), /^malformed/, JSON.stringify(text.slice(0, 30)));
  }
});

test("BodyReader: encoded bodies are read, and the result of any bytes does not depend on the cuts (property)", () => {
  const cuts = fc.array(fc.nat(), { maxLength: 12 });
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 40 }), { maxLength: 6 }), cuts, (payloads, at) => {
      const encoded = Buffer.concat([
        ...payloads.flatMap(encodeChunk),
        encodeLastChunk([{ name: "X", value: "y" }]),
        bytes("next"),
      ]);
      const payload = Buffer.concat(payloads).toString("latin1");
      assert.equal(readBody({ kind: "chunked" }, cut(encoded, at)), `done: ${payload} | X=y | next`);
    }),
  );
  const odd = fc.array(fc.constantFrom("5", "\r\n", "\n", "\r", "hello", "0", ";", "a", " ", "X: y", "\0", "ff"), {
    maxLength: 14,
  });
  const framings: BodyFraming[] = [
    { kind: "chunked" },
    { kind: "length", bytes: 7 },
    { kind: "close" },
    { kind: "none" },
  ];
  fc.assert(
    fc.property(odd, cuts, fc.constantFrom(...framings), (parts, at, framing) => {
      const data = bytes(parts.join(""));
      assert.equal(readBody(framing, cut(data, at)), readBody(framing, [data]));
    }),
    { numRuns: 2000 },
  );
});

test("ResponseHeadReader: the result of any bytes does not depend on the cuts (property)", () => {
  const verdict = (pieces: readonly Uint8Array[]): string => {
    const reader = new ResponseHeadReader();
    for (const [index, piece] of pieces.entries()) {
      const progress = reader.push(piece);
      if (progress.kind === "need-more") continue;
      if (progress.kind === "malformed") return progress.what;
      const rest = Buffer.concat([progress.rest, ...pieces.slice(index + 1)]).toString("latin1");
      return JSON.stringify([progress.head, rest]);
    }
    return "need-more";
  };
  const part = fc.constantFrom(
    "HTTP/1.1 200 OK",
    "HTTP/1.0 404",
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\r",
    "X: y",
    " z",
    "body",
    "\0",
  );
  fc.assert(
    fc.property(fc.array(part, { maxLength: 10 }), fc.array(fc.nat(), { maxLength: 8 }), (parts, at) => {
      const data = bytes(parts.join(""));
      assert.equal(verdict(cut(data, at)), verdict([data]));
    }),
    { numRuns: 2000 },
  );
  assert.match(verdict([bytes(`HTTP/1.1 200 OK\r\nX: ${"y".repeat(70_000)}`)]), /longer than/);
  assert.match(verdict([bytes(`HTTP/1.1 200 OK\r\n${"X: y\r\n".repeat(300)}`)]), /more than 256/);
});

test("ResponseHeadReader: a head that comes byte by byte is copied a few times, not once for each byte", () => {
  const head = bytes(`HTTP/1.1 200 OK\r\nX: ${"y".repeat(60_000)}\r\n\r\n`);
  const reader = new ResponseHeadReader();
  const { concat } = Buffer;
  let copied = 0;
  const { set } = Uint8Array.prototype;
  Uint8Array.prototype.set = function count(this: Uint8Array, source: ArrayLike<number>, at?: number): void {
    copied += source.length;
    set.call(this, source, at);
  };
  Buffer.concat = (list, length) => {
    const made = concat(list, length);
    copied += made.length;
    return made;
  };
  try {
    for (let at = 0; at < head.length - 1; at += 1)
      assert.equal(reader.push(head.subarray(at, at + 1)).kind, "need-more");
    assert.equal(reader.push(head.subarray(-1)).kind, "head");
  } finally {
    Uint8Array.prototype.set = set;
    Buffer.concat = concat;
  }
  assert.ok(copied < 4 * head.length, `${copied} bytes copied of ${head.length}`);
});
