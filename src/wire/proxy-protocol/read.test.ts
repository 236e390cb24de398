import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { IpAddress } from "#base/ip";
import { encodeProxyHeader, type HeaderProgress, ProxyHeaderReader } from "./index.ts";

const SIGNATURE = "0d0a0d0a000d0a515549540a";
const binary = (hex: string): Buffer => Buffer.from(`${SIGNATURE}${hex}`.replaceAll(" ", ""), "hex");
const read = (bytes: Uint8Array): HeaderProgress => new ProxyHeaderReader().push(bytes);

/** `SOURCE PORT DESTINATION PORT`, `own`, `more`, or why not. */
function outcome(progress: HeaderProgress): string {
  if (progress.kind !== "header") return progress.kind === "fault" ? progress.reason : "more";
  if (progress.connection === undefined) return "own";
  const { source, destination } = progress.connection;
  return `${source.address} ${source.port} ${destination.address} ${destination.port}`;
}

const LONGEST = `PROXY UNKNOWN ${"f".repeat(91)}\r\n`;
const NOT_TWO = "the line has not two addresses and ports of";

const lines: Readonly<Record<string, string>> = {
  "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n": "192.0.2.1 56324 198.51.100.2 443",
  "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n": "255.255.255.255 65535 255.255.255.255 65535",
  "PROXY TCP6 2001:db8::1 ::1 0 1\r\n": "2001:db8::1 0 ::1 1",
  "PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n": "192.0.2.1 1 ::1 2",
  "PROXY UNKNOWN\r\n": "own",
  "PROXY UNKNOWN whatever it says\r\n": "own",
  [LONGEST]: "own",
  [LONGEST.replace("ff", "fff")]: "the line does not end within 107 bytes",
  "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443": "more",
  "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r": "more",
  PRO: "more",
  "": "more",
  "PROXY\r\n": "the first bytes are no PROXY header",
  "GET / HTTP/1.1\r\n": "the first bytes are no PROXY header",
  "proxy TCP4": "the first bytes are no PROXY header",
  "PROXY TCP5 192.0.2.1 198.51.100.2 1 2\r\n": "the protocol is not TCP4, TCP6 or UNKNOWN",
  "PROXY TCP4 ::1 ::1 1 2\r\n": `${NOT_TWO} TCP4`,
  "PROXY TCP6 192.0.2.1 192.0.2.1 1 2\r\n": `${NOT_TWO} TCP6`,
  "PROXY TCP4 192.0.2.01 192.0.2.1 1 2\r\n": `${NOT_TWO} TCP4`,
  "PROXY TCP4 192.0.2.1 192.0.2.1 1\r\n": `${NOT_TWO} TCP4`,
  "PROXY TCP4 192.0.2.1 192.0.2.1 1 2 3\r\n": `${NOT_TWO} TCP4`,
  "PROXY TCP4  192.0.2.1 192.0.2.1 1 2\r\n": `${NOT_TWO} TCP4`,
};

for (const port of ["01", "65536", "-1", "+1", "1.5", "1e3", "0x1", "", "NaN", "1\n"])
  Object.assign(lines, { [`PROXY TCP4 192.0.2.1 192.0.2.1 ${port} 2\r\n`]: `${NOT_TWO} TCP4` });

test("ProxyHeaderReader: lines of version 1", () => {
  for (const [line, expected] of Object.entries(lines)) assert.equal(outcome(read(Buffer.from(line))), expected, line);
  assert.equal(LONGEST.length, 107);
});

test("ProxyHeaderReader: headers of version 2, with TLVs, which are not read", () => {
  const ends = "c0000201 c6336402 dc04 01bb";
  const text = "192.0.2.1 56324 198.51.100.2 443";
  const mapped = `${"00".repeat(10)}ffff`;
  const cases = {
    [`21 11 000c ${ends}`]: text,
    [`21 11 0010 ${ends} 04 0001 ff`]: text,
    [`21 21 0024 20010db8${"00".repeat(11)}01 ${"00".repeat(15)}01 0001 ffff`]: "2001:db8::1 1 ::1 65535",
    [`21 21 0024 ${mapped}c0000201 ${mapped}c6336402 dc04 01bb`]: text,
    "20 00 0000": "own",
    [`20 11 000c ${ends}`]: "own",
    "20 31 0001 00": "own",
    "21 00 0000": "own",
    "21 00 0002 ffff": "own",
    "21 11 000b": "more",
    "21 11 000c c0000201 c6336402 dc04 01": "more",
    [`21 11 000b ${ends.slice(0, -2)}`]: "11 bytes are too few for the addresses",
    [`21 21 000c ${ends}`]: "12 bytes are too few for the addresses",
    "21 12 0000": "the client's connection is not TCP over IP",
    "21 31 0000": "the client's connection is not TCP over IP",
    "21 13 0000": "the client's connection is not TCP over IP",
    "21 11 1001": "the header has 4097 bytes, more than 4096",
    "21 11 1000": "more",
    "22 11 000c": "command 2 is unknown",
    "11 11 000c": "the version is 1, not 2",
    "31": "the version is 3, not 2",
    "21": "more",
    "": "more",
  };
  for (const [hex, expected] of Object.entries(cases)) assert.equal(outcome(read(binary(hex))), expected, hex);
  assert.equal(outcome(read(Buffer.from(SIGNATURE.replace("51", "50"), "hex"))), "the first bytes are no PROXY header");
});

const endpoint = fc
  .record({
    bytes: fc.oneof(fc.uint8Array({ minLength: 4, maxLength: 4 }), fc.uint8Array({ minLength: 16, maxLength: 16 })),
    port: fc.nat(65_535),
  })
  .map(({ bytes, port }) => ({ address: IpAddress.fromBytes(bytes), port }));

test("ProxyHeaderReader: however a header is cut, it is the one that was written, and nothing after it is taken (fuzz)", () => {
  const pieces = fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 1, maxLength: 200 });
  fc.assert(
    fc.property(
      endpoint,
      endpoint,
      fc.boolean(),
      fc.uint8Array({ maxLength: 50 }),
      pieces,
      (source, destination, isLine, after, cuts) => {
        const isSame = source.address.family === destination.address.family;
        const line = `PROXY TCP${source.address.family} ${source.address} ${destination.address} ${source.port} ${destination.port}\r\n`;
        const header = isLine && isSame ? Buffer.from(line) : encodeProxyHeader({ source, destination });
        const sent = Buffer.concat([header, after]);
        const reader = new ProxyHeaderReader();
        let at = 0;
        for (let turn = 0; ; turn += 1) {
          const piece = sent.subarray(at, at + (cuts[turn % cuts.length] ?? 1));
          at += piece.length;
          const progress = reader.push(piece);
          if (progress.kind === "more") {
            assert.ok(at < header.length);
            continue;
          }
          const expected = outcome(read(encodeProxyHeader({ source, destination })));
          assert.equal(outcome(progress), expected);
          assert.ok(progress.kind === "header" && sent.subarray(header.length, at).equals(progress.rest));
          return;
        }
      },
    ),
  );
});

test("ProxyHeaderReader: any bytes come to a header or a fault within 4,112 bytes (fuzz)", () => {
  const start = fc.constantFrom("", "PROXY ", "PROXY TCP4 1.2.3.4 ").map((text) => Buffer.from(text));
  const signed = fc.constantFrom("", "21", "2111", "20", "2121").map((hex) => binary(hex));
  const bytes = fc.uint8Array({ maxLength: 5000, size: "max" });
  fc.assert(
    fc.property(fc.oneof(start, signed), bytes, (head, tail) => {
      const sent = Buffer.concat([head, tail]);
      const { kind } = read(sent);
      assert.ok(kind !== "more" || sent.length < 4112);
    }),
  );
});
