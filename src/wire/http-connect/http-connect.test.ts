import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  CONNECTION_ESTABLISHED,
  type ConnectProgress,
  ConnectReader,
  connectRequest,
  encodeReply,
  fieldValues,
  formatHostPort,
  type HeadLimits,
  parseHostPort,
  RequestHeadReader,
  statusOfDialError,
} from "./index.ts";

const bytes = (text: string): Buffer => Buffer.from(text, "latin1");

/** Pushes pieces until there is a verdict; what is left of the pieces belongs to `rest`. */
function read(pieces: readonly Uint8Array[], limits: HeadLimits = {}): ConnectProgress {
  const reader = new ConnectReader(limits);
  for (const [at, piece] of pieces.entries()) {
    const progress = reader.push(piece);
    if (progress.kind === "need-more") continue;
    if (progress.kind === "refused") return progress;
    return { ...progress, rest: Buffer.concat([progress.rest, ...pieces.slice(at + 1)]) };
  }
  return { kind: "need-more" };
}

const whole = (text: string, limits: HeadLimits = {}): ConnectProgress => read([bytes(text)], limits);

/** The verdict in short: the target, or the status. */
function verdict(progress: ConnectProgress): string {
  if (progress.kind === "connect") return formatHostPort(progress.target);
  return progress.kind === "refused" ? String(progress.status) : progress.kind;
}

/** As the API server of Kubernetes and curl send it. */
const KAS = "CONNECT 10.0.0.7:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: kube-apiserver\r\n\r\n";
const CURL =
  "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\nUser-Agent: curl/7.88.1\r\nProxy-Connection: Keep-Alive\r\n\r\n";

test("ConnectReader: the target is the request-target, never Host", () => {
  const progress = whole(KAS);
  assert.ok(progress.kind === "connect");
  assert.deepEqual(progress.target, { host: "10.0.0.7", port: 10250 });
  assert.equal(progress.version, "1.1");
  assert.equal(progress.rest.length, 0);
  assert.equal(verdict(whole(CURL)), "[2001:db8::1]:443");
  assert.equal(verdict(whole("CONNECT a:1 HTTP/1.0\r\n\r\n")), "a:1");
  assert.equal(verdict(whole("CONNECT a:1 HTTP/1.1\r\nContent-Length: 0\r\nX:\t y \r\n\r\n")), "a:1");
});

test("ConnectReader: the result and the bytes after the head do not depend on the cuts", () => {
  const inputs = [
    `${KAS}\x16\x03\x01 hello`,
    CURL,
    "GET / HTTP/1.1\r\n\r\n",
    "CONNECT a:1\r\nX HTTP/1.1\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\nA: b\n\n",
    "CONNECT a:1 HTTP/1.1\r\nA: b\rc\r\n\r\n",
  ];
  for (const text of inputs) {
    const expected = read([bytes(text)]);
    const input = bytes(text);
    for (let at = 0; at <= input.length; at += 1) {
      assert.deepEqual(clean(read([input.subarray(0, at), input.subarray(at)])), clean(expected), `${text} at ${at}`);
    }
    assert.deepEqual(clean(read(Array.from(input, (byte) => Buffer.of(byte)))), clean(expected), `${text} bytewise`);
  }
});

/** Views of different buffers are equal when their bytes are. */
function clean(progress: ConnectProgress): unknown {
  return progress.kind === "connect" ? { ...progress, rest: Buffer.from(progress.rest).toString("latin1") } : progress;
}

test("ConnectReader: other methods get 405 and Konnectivity's text", () => {
  for (const method of ["GET", "connect", "Connect", "POST", "CONNECTX"]) {
    const progress = whole(`${method} a:1 HTTP/1.1\r\nHost: a\r\n\r\n`);
    assert.deepEqual(progress, { kind: "refused", status: 405, body: "this proxy only supports CONNECT passthrough" });
  }
});

test("ConnectReader: smuggling and malformed heads get 400", () => {
  const heads = [
    "CONNECT a:1\r\nX HTTP/1.1\r\n\r\n",
    "CONNECT a:1\r\n\r\n",
    "CONNECT a:1 X HTTP/1.1\r\n\r\n",
    "CONNECT  a:1 HTTP/1.1\r\n\r\n",
    "CONNECT a:1  HTTP/1.1\r\n\r\n",
    "CONNECT\ta:1\tHTTP/1.1\r\n\r\n",
    "CONNECT a:1 HTTP/1.1 \r\n\r\n",
    "CONNECT a:1 http/1.1\r\n\r\n",
    "CONNECT a:1 HTTP/1.10\r\n\r\n",
    "CONNECT a:1 HTTP/1\r\n\r\n",
    "CONNECT a\0:1 HTTP/1.1\r\n\r\n",
    "CONNECT a:1\0 HTTP/1.1\r\n\r\n",
    "CONNECT a\r:1 HTTP/1.1\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\n\n",
    "CONNECT a:1 HTTP/1.1\r\n\n",
    "CONNECT a:1 HTTP/1.1\r\nA: b\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\n A: b\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\nA : b\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\n: b\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\nA\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\nA: \0\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\nA: \x7f\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    "CONNECT a:1 HTTP/1.1\r\nContent-Length: +0\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\nContent-Length: 0\r\nContent-length: 00\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\nContent-Length: 0, 0,\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n",
    "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    " CONNECT a:1 HTTP/1.1\r\n\r\n",
    "\r\nCONNECT a:1 HTTP/1.1\r\n\r\n",
    "\x16\x03\x01\x02\x00",
    "\x80",
    "\0",
  ];
  for (const head of heads) assert.equal(verdict(whole(head)), "400", JSON.stringify(head));
});

test("ConnectReader: targets that are no host:port get 400", () => {
  const targets = [
    ...["a", "a:", ":1", ":", "a:0", "a:65536", "a:99999", "a:+1", "a:-1", "a:1x", "a:http", "a:000080", "a:1:2"],
    ...["http://a:1", "http://a:1/", "https://a", "a:1/", "/a:1", "*", "u@a:1", "u:p@a:1", "a:1?x", "a:1#x", "//a:1"],
    ...["[::1]", "[::1]:0", "::1:80", "[::1%25lo]:80", "[fe80::1%eth0]:1", "[]:1", "[a]:1", "[1.2.3.4]:1", "[::1:80"],
    ...["1.2.3:1", "1.2.3.4.:1", "01.2.3.4:1", "256.1.1.1:1", "127.1:1", "0x7f.1:1", "0x7f000001:1", "2130706433:1"],
    ...["0177.0.0.1:1", "a..b:1", ".a:1", "-a:1", "a%41:1", "a,b:1", "a\\b:1", "a;b:1", `${"a".repeat(64)}:1`],
    ...[`${"a.".repeat(127)}:1`.replace(".:", "aa:"), "a\x80:1"],
  ];
  for (const target of targets) {
    assert.equal(verdict(whole(`CONNECT ${target} HTTP/1.1\r\nHost: good:1\r\n\r\n`)), "400", target);
  }
});

test("ConnectReader: versions other than 1.0 and 1.1 get 505", () => {
  for (const version of ["HTTP/2.0", "HTTP/0.9", "HTTP/1.2", "HTTP/3.0"]) {
    assert.equal(verdict(whole(`CONNECT a:1 ${version}\r\n\r\n`)), "505");
  }
  assert.equal(verdict(whole("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")), "505");
});

test("ConnectReader: a head of exactly the limit is accepted, a byte more gets 431, in one chunk and bytewise", () => {
  const head = (length: number): string => {
    const frame = "CONNECT a:1 HTTP/1.1\r\nA: \r\n\r\n";
    return frame.replace("A: ", `A: ${"x".repeat(length - frame.length)}`);
  };
  assert.equal(verdict(whole(head(65_536))), "a:1");
  assert.equal(verdict(whole(head(65_537))), "431");
  assert.equal(verdict(whole(`CONNECT ${"a".repeat(65_536)}`)), "431");
  for (const [length, expected] of [
    [100, "a:1"],
    [101, "431"],
  ] as const) {
    const input = Array.from(bytes(head(length)), (byte) => Buffer.of(byte));
    assert.equal(verdict(read(input, { maxBytes: 100 })), expected);
  }
  assert.equal(verdict(whole("CONNECT a:1 HTTP/1.1\r\nA: 1\r\nB: 2\r\n\r\n", { maxFields: 1 })), "431");
  const line = "CONNECT a:1 HTTP/1.1";
  for (const pieces of [[bytes(`${line}\r\n\r\n`)], Array.from(bytes(`${line}\r\n\r\n`), (byte) => Buffer.of(byte))]) {
    assert.equal(verdict(read(pieces, { maxRequestLineBytes: line.length })), "a:1");
    assert.equal(verdict(read(pieces, { maxRequestLineBytes: line.length - 1 })), "431");
  }
});

test("ConnectReader: a push after the final result throws", () => {
  const reader = new ConnectReader();
  reader.push(bytes(KAS));
  assert.throws(() => reader.push(bytes("x")), /after the verdict/);
});

test("RequestHeadReader: other methods and forms of target are readable, for proxies that serve more", () => {
  const reader = new RequestHeadReader({ maxBytes: 16_384 });
  const progress = reader.push(
    bytes("GET http://h/healthz HTTP/1.0\r\nX-A: one\r\nx-a:  two\t\r\nHost: h\r\nContent-Length: 2\r\n\r\nhiGET"),
  );
  assert.ok(progress.kind === "head");
  const { head } = progress;
  assert.deepEqual([head.method, head.target, head.version, head.hasBody], ["GET", "http://h/healthz", "1.0", true]);
  assert.deepEqual(fieldValues(head, "X-a"), ["one", "two"]);
  assert.equal(Buffer.from(progress.rest).toString(), "hiGET");
  assert.equal(connectRequest(head).kind, "refused");
});

/** Texts that often reveal the mistakes of a parser. */
const PIECES = ["CONNECT", "GET", " ", "a:1", "[::1]:2", "HTTP/1.1", "HTTP/2.0", "\r", "\n", "\r\n", "\r\n\r\n"];
const MORE = ["\0", "\t", ":", "A: b", "Host: x", "Content-Length: 1", "Transfer-Encoding: chunked", "\x80", "@", "/"];
const inputs = fc.oneof(
  fc.array(fc.constantFrom(...PIECES, ...MORE), { maxLength: 24 }).map((parts) => bytes(parts.join(""))),
  fc.array(fc.constantFrom(...PIECES, ...MORE), { maxLength: 12 }).map((parts) => {
    return bytes(`CONNECT a:1 HTTP/1.1\r\n${parts.join("")}\r\n\r\n`);
  }),
  fc.uint8Array({ maxLength: 200 }).map((array) => Buffer.from(array)),
);

test("ConnectReader: any bytes, cut anywhere, give the same result and never throw (fuzz)", () => {
  const limits = { maxBytes: 80, maxRequestLineBytes: 60, maxFields: 3 };
  fc.assert(
    fc.property(inputs, fc.array(fc.nat(200), { maxLength: 5 }), (input, cuts) => {
      const points = [0, ...cuts.filter((cut) => cut < input.length).sort((a, b) => a - b), input.length];
      const pieces = points.slice(1).map((end, at) => input.subarray(points[at], end));
      const expected = read([input], limits);
      assert.deepEqual(clean(read(pieces, limits)), clean(expected));
      if (expected.kind === "connect") {
        assert.deepEqual(parseHostPort(formatHostPort(expected.target)), expected.target);
        const head = input.subarray(0, input.length - expected.rest.length).toString("latin1");
        assert.ok(head.endsWith("\r\n\r\n"));
        // Nothing that another reader could take for the end of a line or of the head.
        assert.doesNotMatch(head, /[^\r]\n|\r[^\n]|\0|\r\n\r\n./s);
      }
    }),
    { numRuns: 3000 },
  );
});

test("parseHostPort: reads back what formatHostPort writes, for names and addresses", () => {
  const hosts = fc.oneof(
    fc.domain(),
    fc.ipV4(),
    fc.ipV6().filter((ip) => !ip.includes("%")),
    fc.constantFrom(
      "a_b",
      "kube-dns.kube-system.svc.cluster.local.",
      "node-1",
      "9.example",
      "1.2.3.4.example",
      "xn--a",
    ),
  );
  fc.assert(
    fc.property(hosts, fc.integer({ min: 1, max: 65_535 }), (host, port) => {
      assert.deepEqual(parseHostPort(formatHostPort({ host, port })), { host, port });
    }),
  );
  fc.assert(
    fc.property(fc.string({ maxLength: 40 }), (text) => {
      const parsed = parseHostPort(text);
      if (parsed !== undefined) assert.equal(parseHostPort(formatHostPort(parsed))?.host, parsed.host);
    }),
  );
});

test("RequestHeadReader: a field full of blanks takes linear time", () => {
  const head = (blanks: number): Buffer =>
    bytes(`CONNECT a:1 HTTP/1.1\r\nX: \t${" ".repeat(blanks)}b${" ".repeat(blanks)}c \t\r\n\r\n`);
  const timed = (input: Buffer): number => {
    const from = performance.now();
    const progress = new RequestHeadReader().push(input);
    assert.ok(progress.kind === "head");
    assert.match(progress.head.fields[0]?.value ?? "", /^b *c$/);
    return performance.now() - from;
  };
  timed(head(10));
  const least = (blanks: number): number => Math.min(...[1, 2, 3].map(() => timed(head(blanks))));
  // Eight times the blanks took 64 times as long, a second and more.
  assert.ok(least(32_000) < 24 * Math.max(0.05, least(4000)));
});

test("replies: golden bytes", () => {
  assert.equal(Buffer.from(CONNECTION_ESTABLISHED).toString(), "HTTP/1.1 200 Connection Established\r\n\r\n");
  assert.equal(
    Buffer.from(encodeReply(405, "this proxy only supports CONNECT passthrough")).toString(),
    "HTTP/1.1 405 Method Not Allowed\r\nAllow: CONNECT\r\nContent-Type: text/plain; charset=utf-8\r\n" +
      "Content-Length: 44\r\nConnection: close\r\n\r\nthis proxy only supports CONNECT passthrough",
  );
  assert.equal(
    Buffer.from(encodeReply(502, "d\u00e9s", { close: false, fields: { "Retry-After": "5" } })).toString(),
    "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 4\r\nRetry-After: 5\r\n\r\nd\u00e9s",
  );
  assert.throws(() => encodeReply(502, "", { fields: { A: "b\r\nC: d" } }), TypeError);
});

test("statusOfDialError: first match, whatever the case", () => {
  const cases: Readonly<Record<string, number>> = {
    "dial tcp 10.0.0.1:80: i/o timeout": 504,
    "context Deadline Exceeded": 504,
    "socket: too many open files": 503,
    "timeout: too many open files": 504,
    "dial tcp 10.0.0.1:80: connect: connection refused": 502,
    "lookup nope: no such host": 502,
    "": 502,
  };
  for (const [text, status] of Object.entries(cases)) assert.equal(statusOfDialError(text), status, text);
});
