import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { type TestContext, test } from "node:test";
import { type ConnectionOptions, connect } from "node:tls";
import fc from "fast-check";
import { ClientHelloReader, type HelloProgress, MAX_HELLO_BYTES } from "./index.ts";

const ascii = (text: string): Buffer => Buffer.from(text, "latin1");

/** A length-prefixed vector. */
function vector(size: 1 | 2 | 3, ...parts: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(parts);
  const length = Buffer.alloc(size);
  length.writeUIntBE(body.length, 0, size);
  return Buffer.concat([length, body]);
}

const extension = (type: number, data: Uint8Array): Buffer =>
  Buffer.concat([Buffer.of(type >> 8, type & 255), vector(2, data)]);
const hostName = (name: string): Buffer => Buffer.concat([Buffer.of(0), vector(2, ascii(name))]);
const sni = (name: string): Buffer => extension(0, vector(2, hostName(name)));
const alpn = (...names: readonly string[]): Buffer =>
  extension(16, vector(2, ...names.map((name) => vector(1, ascii(name)))));

/** A ClientHello message. `undefined` leaves the whole extensions block out. */
function message(extensions: readonly Uint8Array[] | undefined): Buffer {
  const body = [
    Buffer.of(3, 3),
    Buffer.alloc(32, 7),
    vector(1, Buffer.alloc(32, 9)),
    vector(2, Buffer.of(0x1a, 0x1a, 0x13, 0x01, 0xc0, 0x2f)),
    vector(1, Buffer.of(0)),
    ...(extensions === undefined ? [] : [vector(2, ...extensions)]),
  ];
  return Buffer.concat([Buffer.of(1), vector(3, ...body)]);
}

/** A handshake message in records of at most `perRecord` bytes. */
function records(handshake: Uint8Array, perRecord = 16_384): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; at < handshake.length; at += perRecord) {
    parts.push(Buffer.of(22, 3, 1), vector(2, handshake.subarray(at, at + perRecord)));
  }
  return Buffer.concat(parts);
}

/** Pushes pieces until there is a verdict. */
function read(pieces: readonly Uint8Array[], maxBytes?: number): HelloProgress {
  const reader = new ClientHelloReader(maxBytes === undefined ? {} : { maxBytes });
  for (const piece of pieces) {
    const progress = reader.push(piece);
    if (progress.kind !== "need-more") return progress;
  }
  return { kind: "need-more" };
}

const bytewise = (input: Uint8Array): Buffer[] => Array.from(input, (byte) => Buffer.of(byte));

test("ClientHelloReader: name and protocols are found beside GREASE, padding and Encrypted Client Hello", () => {
  const greased = [
    extension(0x0a0a, Buffer.alloc(0)),
    sni("public.example"),
    extension(0xfe0d, Buffer.alloc(220, 5)),
    alpn("\x1a\x1a", "konnectivity", "h2"),
    extension(0x2a2a, Buffer.of(0)),
    extension(21, Buffer.alloc(400)),
  ];
  const input = records(message(greased));
  const expected: HelloProgress = {
    kind: "hello",
    hello: { serverName: "public.example", alpn: ["\x1a\x1a", "konnectivity", "h2"] },
  };
  assert.deepEqual(read([input]), expected);
  assert.deepEqual(read(bytewise(input)), expected);
});

test("ClientHelloReader: without server_name, or without any extension, there is no name", () => {
  const nothing: HelloProgress = { kind: "hello", hello: { alpn: [] } };
  assert.deepEqual(read([records(message(undefined))]), nothing);
  assert.deepEqual(read([records(message([]))]), nothing);
  assert.deepEqual(read([records(message([extension(10, Buffer.of(0, 2, 0, 29))]))]), nothing);
});

test("ClientHelloReader: the hello is found in records of any size, cut anywhere, with other bytes behind it", () => {
  const hello = message([sni("a.example"), alpn("h2")]);
  const expected: HelloProgress = { kind: "hello", hello: { serverName: "a.example", alpn: ["h2"] } };
  for (const perRecord of [1, 2, 3, 4, 5, 7, 64, hello.length - 1, hello.length]) {
    const input = records(hello, perRecord);
    assert.deepEqual(read([input]), expected);
    assert.deepEqual(read(bytewise(input)), expected);
    for (let at = 1; at < input.length; at += 1) {
      const pieces = [input.subarray(0, at), Buffer.alloc(0), input.subarray(at)];
      assert.deepEqual(read(pieces), expected, `records of ${perRecord}, cut at ${at}`);
    }
  }
  const early = Buffer.concat([records(hello), Buffer.of(20, 3, 3, 0, 1, 1), Buffer.alloc(30_000)]);
  assert.deepEqual(read([early]), expected);
  // The record goes on with another handshake message.
  assert.deepEqual(read([records(Buffer.concat([hello, Buffer.of(11, 0, 0, 1, 0)]))]), expected);
});

test("ClientHelloReader: only the last byte of the hello completes it", () => {
  const input = records(message([sni("a.example")]), 50);
  for (let length = 0; length < input.length; length += 1) {
    assert.equal(read([input.subarray(0, length)]).kind, "need-more", String(length));
  }
});

test("ClientHelloReader: a hello of exactly the limit is accepted, one byte more is too large", () => {
  const padded = (length: number, perRecord?: number): Buffer => {
    const bare = records(message([sni("a.example"), extension(21, Buffer.alloc(0))]), perRecord).length;
    return records(message([sni("a.example"), extension(21, Buffer.alloc(length - bare))]), perRecord);
  };
  assert.equal(padded(MAX_HELLO_BYTES).length, MAX_HELLO_BYTES);
  assert.equal(read([padded(MAX_HELLO_BYTES)]).kind, "hello");
  assert.equal(read(bytewise(padded(MAX_HELLO_BYTES))).kind, "hello");
  const long = padded(MAX_HELLO_BYTES + 1);
  assert.equal(read([long]).kind, "too-large");
  // Told as soon as the length is known, not after 16 KiB.
  assert.equal(read([long.subarray(0, 9)]).kind, "too-large");
  // The message would fit, but its record headers make it too much.
  const tiny = records(message([sni("a.example"), extension(21, Buffer.alloc(3000))]), 1);
  assert.ok(tiny.length > MAX_HELLO_BYTES);
  assert.equal(read([tiny]).kind, "too-large");
  assert.equal(read(bytewise(tiny)).kind, "too-large");
});

test("ClientHelloReader: a protocol other than TLS is refused at the first byte that shows it", () => {
  const cases: Readonly<Record<string, readonly [input: Uint8Array, decisive: number]>> = {
    http: [ascii("GET / HTTP/1.1\r\n\r\n"), 1],
    ssh: [ascii("SSH-2.0-x\r\n"), 1],
    "SSL 2": [Buffer.of(0x80, 0x2e, 1, 3, 1), 1],
    "application data": [Buffer.of(23, 3, 3, 0, 1, 0), 1],
    "another major version": [Buffer.of(22, 2, 0), 2],
    "an empty record": [Buffer.of(22, 3, 1, 0, 0), 5],
    "a record of 16 KiB and a byte": [Buffer.of(22, 3, 1, 0x40, 1), 5],
    "a server's hello": [Buffer.of(22, 3, 1, 0, 40, 2), 6],
    "an alert between two pieces": [Buffer.of(22, 3, 1, 0, 1, 1, 21), 7],
  };
  for (const [name, [input, decisive]] of Object.entries(cases)) {
    assert.equal(read([input]).kind, "not-tls", name);
    assert.equal(read([input.subarray(0, decisive)]).kind, "not-tls", name);
    assert.equal(read([input.subarray(0, decisive - 1)]).kind, "need-more", name);
  }
});

test("ClientHelloReader: a hello with early data is reported as such", () => {
  const early = extension(42, Buffer.alloc(0));
  const hello = read([records(message([early, sni("a")]))]);
  assert.deepEqual(hello, { kind: "hello", hello: { serverName: "a", alpn: [], hasEarlyData: true } });
});

test("ClientHelloReader: a malformed hello is refused, as is one that a server could read in another way", () => {
  const bad: Readonly<Record<string, Uint8Array>> = {
    "no body": Buffer.of(1, 0, 0, 0),
    "two server names of a type": message([extension(0, vector(2, hostName("a"), hostName("b")))]),
    "two server_name extensions": message([sni("a"), sni("b")]),
    "an extension twice": message([alpn("h2"), alpn("h2")]),
    "an empty name": message([sni("")]),
    "an empty server_name": message([extension(0, Buffer.alloc(0))]),
    "an empty list of names": message([extension(0, vector(2))]),
    "a name with NUL": message([sni("a\0.example")]),
    "a name with a space": message([sni("a .example")]),
    "a name with bytes above ASCII": message([sni("\xe4.example")]),
    "bytes behind the names": message([extension(0, Buffer.concat([vector(2, hostName("a")), Buffer.of(0)]))]),
    "a name longer than its list": message([extension(0, Buffer.of(0, 4, 0, 0, 9, 97))]),
    "a name of 256 bytes": message([sni("a".repeat(256))]),
    "no protocols": message([alpn()]),
    "an empty protocol": message([alpn("h2", "")]),
    "a protocol longer than its list": message([extension(16, Buffer.of(0, 3, 9, 104, 50))]),
    "bytes behind the extensions": Buffer.concat([Buffer.of(1), vector(3, message([]).subarray(4), Buffer.of(0))]),
    "extensions longer than the hello": Buffer.concat([message([]).subarray(0, -1), Buffer.of(9)]),
    "an extension longer than the block": message([Buffer.of(0, 10, 0, 9, 1)]),
    "a session id of 33 bytes": Buffer.concat([
      Buffer.of(1),
      vector(3, Buffer.of(3, 3), Buffer.alloc(32), Buffer.of(33), Buffer.alloc(60)),
    ]),
    "no cipher suites": Buffer.concat([
      Buffer.of(1),
      vector(3, Buffer.of(3, 3), Buffer.alloc(32), Buffer.of(0, 0, 0, 1, 0)),
    ]),
    "a version that is no TLS": message([]).fill(2, 4, 5),
  };
  for (const [name, handshake] of Object.entries(bad)) {
    const progress = read([records(handshake)]);
    assert.equal(progress.kind, "not-tls", name);
    assert.deepEqual(read(bytewise(records(handshake))), progress, name);
  }
  // A name type that nobody has defined is passed over.
  const odd = Buffer.concat([Buffer.of(7), vector(2, ascii("x"))]);
  const hello = read([records(message([extension(0, vector(2, odd, hostName("a")))]))]);
  assert.deepEqual(hello, { kind: "hello", hello: { serverName: "a", alpn: [] } });
});

test("ClientHelloReader: a push after the final result throws", () => {
  const reader = new ClientHelloReader();
  reader.push(ascii("x"));
  assert.throws(() => reader.push(ascii("x")), /after the verdict/);
});

test("ClientHelloReader: any bytes, cut anywhere, give the same result and never throw (fuzz)", () => {
  const name = fc.domain();
  const valid = fc
    .tuple(fc.option(name, { nil: undefined }), fc.array(fc.domain(), { minLength: 1, maxLength: 3 }), fc.nat(300))
    .map(([host, protocols, padding]) =>
      message([...(host === undefined ? [] : [sni(host)]), alpn(...protocols), extension(21, Buffer.alloc(padding))]),
    );
  const changed = fc
    .tuple(valid, fc.array(fc.tuple(fc.nat(600), fc.nat(255)), { maxLength: 4 }), fc.integer({ min: 1, max: 200 }))
    .map(([hello, changes, perRecord]) => {
      const input = records(hello, perRecord);
      for (const [at, byte] of changes) if (at < input.length) input[at] = byte;
      return input;
    });
  const inputs = fc.oneof(
    changed,
    fc.uint8Array({ maxLength: 100 }).map((array) => Buffer.from(array)),
  );
  fc.assert(
    fc.property(inputs, fc.array(fc.nat(700), { maxLength: 5 }), (input, cuts) => {
      const points = [0, ...cuts.filter((cut) => cut < input.length).sort((a, b) => a - b), input.length];
      const pieces = points.slice(1).map((end, at) => input.subarray(points[at], end));
      assert.deepEqual(read(pieces, 500), read([input], 500));
      assert.deepEqual(read(bytewise(input), 500), read([input], 500));
    }),
    { numRuns: 2000 },
  );
});

/** A server that never answers and tells what it was sent first. */
async function capture(t: TestContext): Promise<{ readonly port: number; readonly next: () => Promise<Buffer> }> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const next = async (): Promise<Buffer> => {
    const [socket] = await once(server, "connection");
    const chunks: Buffer[] = [];
    while (read(chunks).kind === "need-more") chunks.push((await once(socket, "data"))[0]);
    socket.destroy();
    return Buffer.concat(chunks);
  };
  return { port: (server.address() as AddressInfo).port, next };
}

test("ClientHelloReader: reads the hello of Node's TLS, for each version, with and without name and ALPN", async (t) => {
  const { port, next } = await capture(t);
  const cases: readonly (readonly [ConnectionOptions, string | undefined, readonly string[]])[] = [
    [{ servername: "a.example" }, "a.example", []],
    [{ servername: "a.example", ALPNProtocols: ["konnectivity", "h2"] }, "a.example", ["konnectivity", "h2"]],
    [{ servername: "a.example", minVersion: "TLSv1.3" }, "a.example", []],
    [{ servername: "A.Example", maxVersion: "TLSv1.2" }, "A.Example", []],
    [{ minVersion: "TLSv1", maxVersion: "TLSv1.1", ciphers: "DEFAULT@SECLEVEL=0", servername: "old" }, "old", []],
    [{ ALPNProtocols: ["h2", "http/1.1"] }, undefined, ["h2", "http/1.1"]],
    [{}, undefined, []],
  ];
  for (const [options, serverName, protocols] of cases) {
    const captured = next();
    const client = connect({ ...options, port, host: "127.0.0.1" });
    // The server leaves without a word.
    client.on("error", () => client.destroy());
    const expected = { kind: "hello", hello: { ...(serverName === undefined ? {} : { serverName }), alpn: protocols } };
    const input = await captured;
    assert.deepEqual(read([input]), expected);
    assert.deepEqual(read(bytewise(input)), expected);
    client.destroy();
  }
});

const hasOpenssl = ((): boolean => {
  try {
    execFileSync("openssl", ["version"]);
    return true;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return false;
    throw error;
  }
})();

test("ClientHelloReader: reads the hello of openssl, also cut into small records", {
  skip: !hasOpenssl && "package: openssl",
}, async (t) => {
  const { port, next } = await capture(t);
  const many = Array.from({ length: 60 }, (_, at) => `protocol-number-${at}`);
  const cases: readonly (readonly [readonly string[], string | undefined, readonly string[]])[] = [
    [["-servername", "a.example"], "a.example", []],
    [["-servername", "a.example", "-tls1_2", "-alpn", "konnectivity,h2"], "a.example", ["konnectivity", "h2"]],
    [["-noservername", "-tls1_3"], undefined, []],
    [["-servername", "a.example", "-max_send_frag", "512", "-alpn", many.join(",")], "a.example", many],
  ];
  for (const [args, serverName, protocols] of cases) {
    const captured = next();
    const client = spawn("openssl", ["s_client", "-connect", `127.0.0.1:${port}`, ...args], { stdio: "ignore" });
    const ended = once(client, "close");
    const expected = { kind: "hello", hello: { ...(serverName === undefined ? {} : { serverName }), alpn: protocols } };
    const input = await captured;
    assert.deepEqual(read([input]), expected);
    assert.deepEqual(read(bytewise(input)), expected);
    if (args.includes("-max_send_frag")) assert.equal(input.readUInt16BE(3), 512);
    await ended;
  }
});
