import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { character } from "#test/characters";
import {
  decodeGrpcMessage,
  decodeStatus,
  encodeGrpcMessage,
  encodeStatus,
  frameMessage,
  GrpcWireError,
  parseGrpcTimeout,
  unframeUnary,
} from "./index.ts";

const wellFormed = fc.string({ unit: character });

test("frameMessage: a byte of flags and four of length, as PROTOCOL-HTTP2 says", () => {
  assert.deepEqual(frameMessage(Uint8Array.of(7, 8)), Uint8Array.of(0, 0, 0, 0, 2, 7, 8));
  fc.assert(
    fc.property(fc.uint8Array(), (message) =>
      assert.deepEqual(Uint8Array.from(unframeUnary(frameMessage(message), 1024)), message),
    ),
  );
});

test("unframeUnary: cut, doubled, compressed and too large bodies are refused, each with its code", () => {
  const two = Buffer.concat([frameMessage(Uint8Array.of(1)), frameMessage(Uint8Array.of(2))]);
  const cases: [Uint8Array, string][] = [
    [new Uint8Array(4), "malformed"],
    [two, "malformed"],
    [frameMessage(Uint8Array.of(1, 2)).subarray(0, 6), "malformed"],
    [Uint8Array.of(1, 0, 0, 0, 0), "compressed"],
    [Uint8Array.of(0, 0xff, 0xff, 0xff, 0xff), "too-large"],
  ];
  for (const [body, code] of cases) assert.throws(() => unframeUnary(body, 100), { name: "GrpcWireError", code });
});

test("encodeStatus: google.rpc.Status as unpadded base64; padded text is read too", () => {
  const status = { code: 3, message: "bad", details: [{ typeUrl: "t/x", value: Uint8Array.of(8, 4) }] };
  // 08 03 | 12 03 "bad" | 1a 09 (0a 03 "t/x" | 12 02 08 04)
  assert.equal(
    encodeStatus(status),
    Buffer.from("080312036261641a090a03742f7812020804", "hex").toString("base64").replaceAll("=", ""),
  );
  const padded = Buffer.from("0803", "hex").toString("base64");
  assert.ok(padded.endsWith("="));
  assert.deepEqual(decodeStatus(padded), { code: 3, message: "", details: [] });
});

test("encodeStatus: round trips", () => {
  const detail = fc.record({ typeUrl: wellFormed, value: fc.uint8Array() }, { noNullPrototype: true });
  const status = fc.record(
    { code: fc.nat(), message: wellFormed, details: fc.array(detail, { maxLength: 3 }) },
    { noNullPrototype: true },
  );
  fc.assert(
    fc.property(status, (one) => {
      const read = decodeStatus(encodeStatus(one));
      assert.deepEqual(
        { ...read, details: read.details.map((any) => ({ ...any, value: Uint8Array.from(any.value) })) },
        one,
      );
    }),
  );
});

test("decodeStatus: arbitrary headers are a status or a GrpcWireError", () => {
  const header = fc.oneof(
    fc.string(),
    fc.uint8Array().map((bytes) => Buffer.from(bytes).toString("base64")),
  );
  fc.assert(
    fc.property(header, (text) => {
      try {
        decodeStatus(text);
      } catch (error) {
        assert.ok(error instanceof GrpcWireError, String(error));
      }
    }),
    { numRuns: 2000 },
  );
});

test("encodeGrpcMessage: printable ASCII stays, the rest is percent-encoded, and it round trips", () => {
  assert.equal(encodeGrpcMessage("100% na\u00efve\n"), "100%25 na%C3%AFve%0A");
  fc.assert(
    fc.property(wellFormed, (message) => {
      const encoded = encodeGrpcMessage(message);
      assert.match(encoded, /^[\x20-\x7e]*$/);
      assert.equal(decodeGrpcMessage(encoded), message);
    }),
  );
});

test("decodeGrpcMessage: invalid escapes stay as they are", () => {
  for (const text of ["100%", "%zz", "%4", "\u{1f600} raw", "\ufeffx"]) assert.equal(decodeGrpcMessage(text), text);
  fc.assert(
    fc.property(fc.string({ unit: character }), (text) => assert.equal(typeof decodeGrpcMessage(text), "string")),
  );
});

test("parseGrpcTimeout: six units, at most eight digits", () => {
  const cases: [string, number | undefined][] = [
    ["1H", 3_600_000],
    ["2M", 120_000],
    ["5S", 5000],
    ["100m", 100],
    ["5u", 0.005],
    ["1000000n", 1],
    ["123456789S", undefined],
    ["5", undefined],
    ["S", undefined],
    ["-5S", undefined],
    ["5s", undefined],
    ["", undefined],
  ];
  for (const [header, ms] of cases) assert.equal(parseGrpcTimeout(header), ms, header);
});
