/**
 * Messages of plain HTTP in both directions: each ends for the next reader where it ended for its sender. ISTHMUS_SOAK=full tries 100,000
 * messages.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type ByteStream, StreamListeners } from "#base/byte-stream";
import { RequestHeadReader } from "#wire/http-connect";
import { requestFraming } from "#wire/http1";
import { destinationOf } from "../policy/index.ts";
import { FrontBed, TIMEOUT } from "../testing/front-bed.ts";
import { serverFor, TestClient } from "../testing/proxy-fixtures.ts";
import { AnswerRelay } from "./answer-relay.ts";
import { Exchange } from "./exchange.ts";
import { encodeRequestHead } from "./hop.ts";
import { plainHttp } from "./index.ts";

/** Messages of each direction. */
const MESSAGES = process.env["ISTHMUS_SOAK"] === "full" ? 50_000 : 1500;
const DESTINATION = destinationOf({ host: "a.example", port: 80 });
const NEXT = "GET http://b.example/next HTTP/1.1\r\nHost: b\r\n\r\n";

type Field = readonly [name: string, value: string];

/** A message as its sender means it. */
interface Message {
  readonly fields: readonly Field[];
  /** The values of its Connection fields. */
  readonly connection: readonly string[];
  readonly body: "none" | "length" | "chunked" | "close";
  readonly chunks: readonly string[];
  readonly trailers: readonly Field[];
}

/** Fields that a Connection field cannot take away. */
const KEPT = ["Content-Length", "Host", "Authorization", "Cookie", "Set-Cookie", "Range", "Content-Type"];
const OWN = ["X-Own", "X-Other", "Trace"];
const HOP = ["Keep-Alive", "TE", "Proxy-Authorization", "Proxy-Connection"];

const name = (names: readonly string[]): fc.Arbitrary<string> =>
  fc
    .tuple(fc.constantFrom(...names), fc.constantFrom("as is", "upper", "lower"))
    .map(([text, how]) => (how === "upper" ? text.toUpperCase() : how === "lower" ? text.toLowerCase() : text));
const field = (names: readonly string[]): fc.Arbitrary<Field> =>
  fc.tuple(name(names), fc.constantFrom("1", "a=b; c", "bytes=0-9", "Basic eDp5", "\xe9", ""));
const anyName = name([...KEPT, "Transfer-Encoding", "Connection", ...OWN, ...HOP, "close", "", " "]);
const connection = fc.array(
  fc
    .array(fc.tuple(fc.constantFrom("", " ", "\t", " \t "), anyName), { minLength: 1, maxLength: 5 })
    .map((words) => words.map(([blank, word]) => `${blank}${word}${blank}`).join(",")),
  { maxLength: 2 },
);
/** Payload that looks like messages itself. */
const chunks = fc.array(
  fc.constantFrom("x", "0\r\n\r\n", "GET /smuggled HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "\0\xff"),
  {
    maxLength: 4,
  },
);
const message = (bodies: readonly Message["body"][]): fc.Arbitrary<Message> =>
  fc.record({
    fields: fc.array(field([...KEPT.slice(2), ...OWN, ...HOP]), { maxLength: 6 }),
    connection,
    body: fc.constantFrom(...bodies),
    chunks,
    trailers: fc.array(field([...KEPT, ...OWN, ...HOP, "Transfer-Encoding"]), { maxLength: 2 }),
  });
const cuts = fc.array(fc.nat(400), { maxLength: 4 });

const bytes = (text: string): Buffer => Buffer.from(text, "latin1");
const lines = (fields: readonly Field[]): string => fields.map(([key, value]) => `${key}: ${value}\r\n`).join("");

/** The message on the wire, below its first line, with its Connection fields before or behind the others. */
function encodeMessage({ fields, connection: named, body, chunks: parts, trailers }: Message): string {
  const whole = parts.join("");
  const options = named.map((value): Field => ["Connection", value]);
  const framing: readonly Field[] =
    body === "length"
      ? [["Content-Length", String(whole.length)]]
      : body === "chunked"
        ? [["Transfer-Encoding", "chunked"]]
        : [];
  const head = lines([...options.slice(0, 1), ...fields, ...framing, ...options.slice(1)]);
  if (body === "none") return `${head}\r\n`;
  if (body !== "chunked") return `${head}\r\n${whole}`;
  const encoded = parts.filter((part) => part !== "").map((part) => `${part.length.toString(16)};x=y\r\n${part}\r\n`);
  return `${head}\r\n${encoded.join("")}0\r\n${lines(trailers)}\r\n`;
}

/** The fields of a message that are for its recipient, in order, without those of its framing. */
function endToEndOf({ fields, connection: named }: Message): Field[] {
  const words = new Set(
    named.flatMap((value) =>
      value
        .toLowerCase()
        .split(",")
        .map((word) => word.trim()),
    ),
  );
  const kept = new Set(KEPT.map((one) => one.toLowerCase()));
  const hop = new Set(HOP.map((one) => one.toLowerCase()));
  return fields.filter(([key]) => {
    const lower = key.toLowerCase();
    return !hop.has(lower) && (!words.has(lower) || kept.has(lower));
  });
}

interface Read {
  readonly firstLine: string;
  readonly fields: readonly Field[];
  readonly body: string;
  readonly rest: string;
}

/** Reads one message as its next recipient would: by the fields that it has now. `upTo`: what ends a message without a length. */
function readMessage(text: string, upTo: "connection" | "head"): Read {
  const end = text.indexOf("\r\n\r\n");
  const [firstLine = "", ...fieldLines] = text.slice(0, end).split("\r\n");
  const fields = fieldLines.map((line): Field => {
    const colon = line.indexOf(":");
    return [line.slice(0, colon), line.slice(colon + 2)];
  });
  const valuesOf = (wanted: string): string[] =>
    fields.filter(([key]) => key.toLowerCase() === wanted).map(([, value]) => value);
  const left = text.slice(end + 4);
  const [lengths, codings] = [valuesOf("content-length"), valuesOf("transfer-encoding")];
  assert.ok(lengths.length + codings.length <= 1, text);
  const without = fields.filter(
    ([key]) => !["content-length", "transfer-encoding", "connection"].includes(key.toLowerCase()),
  );
  if (codings.length > 0) return { firstLine, fields: without, ...readChunks(left) };
  const whole = upTo === "connection" ? left.length : 0;
  const length = lengths[0] === undefined ? whole : Number(lengths[0]);
  assert.ok(left.length >= length, "the body is incomplete");
  return { firstLine, fields: without, body: left.slice(0, length), rest: left.slice(length) };
}

function readChunks(text: string): { readonly body: string; readonly rest: string } {
  let body = "";
  let left = text;
  for (;;) {
    const end = left.indexOf("\r\n");
    const size = Number.parseInt(left.slice(0, end), 16);
    left = left.slice(end + 2);
    if (size === 0) break;
    body += left.slice(0, size);
    assert.equal(left.slice(size, size + 2), "\r\n");
    left = left.slice(size + 2);
  }
  const trailer = left.startsWith("\r\n") ? "" : left.slice(0, left.indexOf("\r\n\r\n") + 2);
  for (const line of trailer.split("\r\n").filter((one) => one !== "")) {
    const key = line.slice(0, line.indexOf(":"));
    assert.ok(
      OWN.some((one) => one.toLowerCase() === key.toLowerCase()),
      `the trailer has ${key}`,
    );
  }
  return { body, rest: left.slice(trailer.length + 2) };
}

/** A client whose bytes the test gives. */
class FakeStream extends StreamListeners implements ByteStream {
  readonly closed = false;
  readonly destroyed = false;
  readonly errored = undefined;
  readonly readableEnded = false;
  readonly writableFinished = false;
  readonly writableLength = 0;
  readonly writableNeedDrain = false;
  readonly remoteAddress = "127.0.0.1";
  readonly remotePort = 1;
  readonly localAddress = "127.0.0.1";
  readonly localPort = 1;
  readonly write = (): boolean => true;
  readonly end = (): void => undefined;
  readonly pause = (): void => undefined;
  readonly resume = (): void => undefined;
  readonly destroy = (): void => undefined;
  readonly reset = (): void => undefined;
  readonly limitReads = (): void => undefined;
  readonly keepAlive = (): void => undefined;

  give(chunk: Uint8Array): void {
    this.emit("data", chunk);
  }
}

/** Pieces of the bytes, cut at the places. */
function cut(data: Buffer, at: readonly number[]): Buffer[] {
  const places = [...new Set(at.filter((place) => place < data.length)), data.length].sort((a, b) => a - b);
  return places.map((end, index) => data.subarray(places[index - 1] ?? 0, end));
}

/** Returns the bytes of a request that the origin gets, and those that are kept for the next one. */
function sent(text: string, at: readonly number[]): { readonly out: string; readonly held: string } {
  const reader = new RequestHeadReader();
  const client = new FakeStream();
  const pieces = cut(bytes(text), at);
  for (const [index, piece] of pieces.entries()) {
    const progress = reader.push(piece);
    if (progress.kind === "need-more") continue;
    assert.ok(progress.kind === "head", JSON.stringify(progress));
    const framing = requestFraming(progress.head);
    assert.ok(framing.kind !== "malformed", JSON.stringify(framing));
    const answer = new AnswerRelay({ method: "GET", version: "1.1", wantsUpgrade: false, mayStayOpen: () => true });
    const exchange = new Exchange(client, framing, answer);
    const out: Uint8Array[] = [encodeRequestHead(progress.head, { destination: DESTINATION, path: "/x" }, framing)];
    out.push(exchange.takeFirst(progress.rest));
    exchange.on("data", (chunk) => void out.push(Buffer.from(chunk)));
    for (const more of pieces.slice(index + 1)) client.give(more);
    return { out: Buffer.concat(out).toString("latin1"), held: Buffer.from(exchange.release()).toString("latin1") };
  }
  assert.fail("the head is incomplete");
}

test("plain HTTP: a request has its method, target, end-to-end fields and body at the origin, and ends where the client ended it, whatever Connection names (property)", () => {
  const method = fc.constantFrom("GET", "POST", "PUT", "OPTIONS", "X-1");
  fc.assert(
    fc.property(message(["none", "length", "chunked"]), method, cuts, (asked, verb, at) => {
      const text = `${verb} http://a.example/x HTTP/1.1\r\nHost: other\r\n${encodeMessage(asked)}`;
      const { out, held } = sent(text + NEXT, at);
      const read = readMessage(out, "head");
      const whole = asked.body === "none" ? "" : asked.chunks.join("");
      assert.deepEqual(read, {
        firstLine: `${verb} /x HTTP/1.1`,
        fields: [["Host", "a.example"], ...endToEndOf(asked)],
        body: whole,
        rest: "",
      });
      assert.equal(held, NEXT);
    }),
    { numRuns: MESSAGES },
  );
});

test("plain HTTP: an answer has its status, end-to-end fields and body at the client, and ends where the origin ended it, whatever Connection names (property)", () => {
  const status = fc.constantFrom("200 OK", "206 Partial Content", "404 ", "204 No Content", "304 Not Modified");
  const method = fc.constantFrom("GET", "HEAD");
  fc.assert(
    fc.property(
      message(["length", "chunked", "close"]),
      status,
      method,
      fc.nat(2),
      cuts,
      (said, line, verb, hints, at) => {
        const isBodiless = verb === "HEAD" || /^[23]04 (No|Not)/.test(line);
        const encoded = encodeMessage(said);
        const head = `HTTP/1.1 ${line}\r\n${isBodiless ? encoded.slice(0, encoded.indexOf("\r\n\r\n") + 4) : encoded}`;
        // With a body that the connection ends there are no bytes behind the answer.
        const isClosed = said.body === "close" && !isBodiless;
        const interim = "HTTP/1.1 103 Early\r\nConnection: Content-Length\r\nContent-Length: 9\r\n\r\n".repeat(hints);
        const relay = new AnswerRelay({ method: verb, version: "1.1", wantsUpgrade: false, mayStayOpen: () => true });
        const pieces = cut(bytes(interim + head + (isClosed ? "" : "HTTP/1.1 200 OK\r\n\r\nstolen")), at);
        const out = pieces.flatMap((piece) => relay.push(piece).map((part) => Buffer.from(part)));
        out.push(...relay.end().map((part) => Buffer.from(part)));
        assert.equal(relay.state, "done");
        let left = Buffer.concat(out).toString("latin1");
        for (let passed = 0; passed < hints; passed += 1) {
          const read = readMessage(left, "head");
          assert.equal(read.firstLine, "HTTP/1.1 103 Early");
          left = read.rest;
        }
        if (isBodiless) assert.ok(left.endsWith("\r\n\r\n") && left.indexOf("\r\n\r\n") === left.length - 4, left);
        // A length of a body that is not sent is no length of this message.
        const read = readMessage(
          isBodiless ? left.replace(/^content-length: .*\r\n/im, "") : left,
          isClosed ? "connection" : "head",
        );
        assert.deepEqual(read, {
          firstLine: `HTTP/1.1 ${line}`,
          fields: endToEndOf(said),
          body: isBodiless ? "" : said.chunks.join(""),
          rest: "",
        });
        assert.equal(relay.closes, isClosed);
        if (isBodiless && said.body === "length") assert.equal(/^content-length/im.test(left), !line.startsWith("204"));
      },
    ),
    { numRuns: MESSAGES },
  );
});

test(
  "HttpConnection: a length that Connection names stays, so no other message is read in a body",
  TIMEOUT,
  async (t) => {
    const asked: string[] = [];
    const body = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    const answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen";
    const origin = await serverFor(t, (socket) => {
      const at = asked.push("") - 1;
      socket.on("data", (chunk: Buffer) => {
        asked[at] += chunk.toString("latin1");
        if (!asked[at]?.endsWith(body)) return;
        socket.write(
          `HTTP/1.1 200 OK\r\nConnection: content-length\r\nContent-Length: ${answer.length}\r\n\r\n${answer}`,
        );
      });
    });
    const bed = await FrontBed.open(t, { plainHttp: true }, {}, { plainHttp });
    bed.dial = () => bed.connected(origin.port, "eth0");
    const client = await TestClient.to(t, bed.port);
    client.write(
      "POST http://a.example/ HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Content-Length, authorization\r\n" +
        `Authorization: own\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    await client.read("stolen");
    const [request = ""] = asked;
    assert.ok(request.includes(`\r\nContent-Length: ${body.length}\r\n`), request);
    assert.match(request, /\r\nAuthorization: own\r\n/);
    assert.equal(asked.length, 1);
    assert.deepEqual(readMessage(client.text, "head").body, answer);
  },
);

test("AnswerRelay: an origin that goes on with interim answers is a fault after 256, or 256 KiB of them", () => {
  const relayOf = (version: "1.0" | "1.1"): AnswerRelay =>
    new AnswerRelay({ method: "GET", version, wantsUpgrade: false, mayStayOpen: () => true });
  const interim = bytes("HTTP/1.1 102 Processing\r\n\r\n");
  for (const version of ["1.0", "1.1"] as const) {
    const relay = relayOf(version);
    for (let passed = 0; passed < 256; passed += 1) relay.push(interim);
    assert.equal(relay.state, "more");
    relay.push(interim);
    assert.equal(relay.state, "malformed");
  }
  const flood = relayOf("1.1");
  const passed = flood.push(Buffer.concat(Array.from({ length: 200_000 }, () => interim)));
  assert.deepEqual([flood.state, passed.length], ["malformed", 256]);
  const large = relayOf("1.1");
  const long = bytes(`HTTP/1.1 103 Early\r\nLink: ${"x".repeat(60_000)}\r\n\r\n`);
  for (let answers = 0; answers < 4; answers += 1) large.push(long);
  assert.equal(large.state, "more");
  large.push(long);
  assert.match(large.fault, /interim answers/);
  const fine = relayOf("1.1");
  for (let answers = 0; answers < 256; answers += 1) fine.push(interim);
  fine.push(bytes("HTTP/1.1 204 No Content\r\n\r\n"));
  assert.equal(fine.state, "done");
});
