import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { HpackDecoder } from "./hpack-decoder.ts";
import { encodeHeaderBlock, Http2Error } from "./index.ts";

const decoder = (maxTableBytes = 4096, maxListBytes = 65_536) => new HpackDecoder({ maxTableBytes, maxListBytes });
const hex = (text: string): Uint8Array => Buffer.from(text.replaceAll(" ", ""), "hex");

test("HpackDecoder: RFC 7541 C.4, three requests with Huffman coding and the dynamic table", () => {
  const one = decoder();
  const base = [
    [":method", "GET"],
    [":scheme", "http"],
    [":path", "/"],
    [":authority", "www.example.com"],
  ];
  assert.deepEqual(one.decode(hex("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff")), base);
  assert.deepEqual(one.decode(hex("8286 84be 5886 a8eb 1064 9cbf")), [...base, ["cache-control", "no-cache"]]);
  assert.deepEqual(one.decode(hex("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf")), [
    [":method", "GET"],
    [":scheme", "https"],
    [":path", "/index.html"],
    [":authority", "www.example.com"],
    ["custom-key", "custom-value"],
  ]);
});

test("HpackDecoder: a full table drops its oldest entries, and all of them when its size is set to 0", () => {
  const one = decoder(100);
  // "a: 1" and "b: 2" with indexing count 34 bytes each; "c: 3" pushes the first one out.
  one.decode(hex("40 0161 0131 40 0162 0132 40 0163 0133"));
  assert.deepEqual(one.decode(hex("be bf")), [
    ["c", "3"],
    ["b", "2"],
  ]);
  assert.throws(() => one.decode(hex("c0")), Http2Error);
  const other = decoder();
  other.decode(hex("40 0161 0131"));
  assert.throws(() => other.decode(hex("20 be")), /index 62/);
});

test("HpackDecoder: a table above the allowed size, and headers above the bound, are refused", () => {
  assert.throws(() => decoder(4096).decode(hex("3f e2 1f")), /4097/);
  // One entry of 1,000 bytes, referred to a hundred times by a byte each.
  const bomb = decoder(4096, 50_000);
  const entry = Buffer.concat([hex("40 0161 7f e9 06"), Buffer.alloc(1000, 0x62)]);
  assert.throws(() => bomb.decode(Buffer.concat([entry, Buffer.alloc(100, 0xbe)])), { code: "too-large" });
});

test("HpackDecoder: every byte of a value is kept", () => {
  const value = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte)).join("");
  const block = encodeHeaderBlock([["x", value]], (text) => Buffer.from(text, "latin1"));
  assert.deepEqual(decoder().decode(block), [["x", value]]);
});

test("HpackDecoder: any bytes give headers or an Http2Error", () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 64 }), { maxLength: 8 }), (blocks) => {
      const one = decoder(200, 500);
      try {
        for (const block of blocks) one.decode(block);
      } catch (error) {
        assert.ok(error instanceof Http2Error);
      }
    }),
    { numRuns: 2000 },
  );
});
