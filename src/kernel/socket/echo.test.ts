import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { checksum, decodeEchoReply, encodeEchoRequest } from "./echo.ts";

/** RFC 1071 section 3: the example's bytes sum to ddf2, so the checksum is 220d. */
test("checksum: agrees with the example of RFC 1071", () => {
  assert.equal(checksum(Uint8Array.of(0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7)), 0x220d);
});

test("encodeEchoRequest: an IPv4 request with its checksum sums to zero, also with an odd payload", () => {
  for (const payload of [Buffer.from("abcd"), Buffer.from("abc"), Buffer.alloc(0)]) {
    assert.equal(checksum(encodeEchoRequest(4, 77, 1, payload)), 0);
  }
});

test("decodeEchoReply: reads back what a host answers, in both families", () => {
  for (const family of [4, 6] as const) {
    const reply = encodeEchoRequest(family, 0x1234, 9, Buffer.from("hello"));
    reply.writeUInt8(family === 4 ? 0 : 129, 0);
    const ipHeader = family === 4 ? Buffer.concat([Buffer.of(0x46), Buffer.alloc(23)]) : Buffer.alloc(0); // 24 bytes: with options
    const echo = decodeEchoReply(family, Buffer.concat([ipHeader, reply]));
    assert.deepEqual(echo, { id: 0x1234, sequence: 9, payload: Buffer.from("hello") });
  }
});

test("decodeEchoReply: other packets, cut or random, are no replies and no errors", () => {
  assert.equal(decodeEchoReply(4, encodeEchoRequest(4, 1, 1, Buffer.alloc(0))), undefined);
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), fc.constantFrom(4 as const, 6 as const), (bytes, family) => {
      const echo = decodeEchoReply(family, Buffer.from(bytes));
      assert.ok(echo === undefined || echo.payload.length <= bytes.length - 8);
    }),
  );
});
