import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Header } from "./hpack.ts";
import { HpackDecoder } from "./hpack-decoder.ts";
import { HpackEncoder } from "./hpack-encoder.ts";

const decoder = (): HpackDecoder => new HpackDecoder({ maxTableBytes: 4096, maxListBytes: 1 << 24 });

function encoded(encoder: HpackEncoder, headers: readonly Header[]): Uint8Array {
  const out = new Uint8Array(encoder.maxBlockBytes(headers) + 3);
  const end = encoder.encode(headers, out, 3);
  assert.ok(end <= out.length, "a block is at most as long as promised");
  return out.subarray(3, end);
}

const GRPC: readonly Header[] = [
  [":method", "POST"],
  [":scheme", "https"],
  [":path", "/ProxyService/Proxy"],
  [":authority", "proxy:8091"],
  ["content-type", "application/grpc"],
  ["te", "trailers"],
];

test("HpackEncoder: repeated headers are a byte each", () => {
  const encoder = new HpackEncoder();
  const one = decoder();
  assert.deepEqual(one.decode(encoded(encoder, GRPC)), GRPC);
  const again = encoded(encoder, GRPC);
  assert.equal(again.length, GRPC.length);
  assert.deepEqual(one.decode(again), GRPC);
});

test("HpackEncoder: values of sensitive fields are never indexed (RFC 7541 section 7.1.3)", () => {
  const encoder = new HpackEncoder();
  for (const name of ["authorization", "proxy-authorization", "cookie", "set-cookie"]) {
    const header: readonly Header[] = [[name, "secret"]];
    const first = encoded(encoder, header);
    assert.equal((first[0] as number) & 0xf0, 0x10, "the pattern of a literal that is never indexed");
    assert.deepEqual(encoded(encoder, header), first);
    assert.deepEqual(decoder().decode(first), header);
  }
});

test("HpackEncoder: values that change do not push out those that do not", () => {
  const encoder = new HpackEncoder();
  const one = decoder();
  for (let call = 0; call < 1000; call += 1) {
    const headers: readonly Header[] = [
      ...GRPC,
      ["x-id", `call ${call} ${"y".repeat(80)}`],
      ["x-big", "z".repeat(3000)],
    ];
    assert.deepEqual(one.decode(encoded(encoder, headers)), headers);
  }
  assert.equal(encoded(encoder, GRPC).length, GRPC.length);
});

test("HpackEncoder: the authority of a CONNECT, which is another one each time, is not put into the table", () => {
  const encoder = new HpackEncoder();
  const one = decoder();
  for (const authority of ["10.0.0.1:80", "10.0.0.1:80"]) {
    const block = encoded(encoder, [
      [":method", "CONNECT"],
      [":authority", authority],
    ]);
    assert.ok(block.length > authority.length);
    one.decode(block);
  }
});

test("HpackEncoder: a table that shrinks and grows is told at the start of the next block (RFC 7541 section 4.2)", () => {
  const encoder = new HpackEncoder();
  const one = decoder();
  one.decode(encoded(encoder, GRPC));
  encoder.setMaxTableBytes(0);
  encoder.setMaxTableBytes(100);
  const block = encoded(encoder, GRPC);
  assert.deepEqual([block[0], block[1], block[2]], [0x20, 0x3f, 100 - 31]);
  assert.deepEqual(one.decode(block), GRPC);
  encoder.setMaxTableBytes(1 << 20);
  assert.deepEqual(
    [...encoded(encoder, []).subarray(0, 3)],
    [0x3f, 0xe1, 0x1f],
    "4096, which is the most that is used",
  );
  encoder.setMaxTableBytes(1 << 21);
  assert.equal(encoded(encoder, []).length, 0, "a limit that does not change is not told");
});

test("HpackEncoder: a character that is no byte is refused", () => {
  assert.throws(() => encoded(new HpackEncoder(), [["x", "\u0416"]]), /U\+416/);
});

test("HpackEncoder: whatever is encoded, with any sizes of the table, is decoded again", () => {
  const text = (maxLength: number) =>
    fc.array(fc.integer({ min: 0, max: 255 }), { maxLength }).map((bytes) => String.fromCharCode(...bytes));
  const name = fc.oneof(fc.constantFrom(":path", "te", "x-a", "x-b", "cookie", ":status", "accept-charset"), text(12));
  const value = fc.oneof(fc.constantFrom("", "200", "trailers", "v"), text(20), text(1500));
  const block = fc.array(fc.tuple(name, value), { maxLength: 12 });
  fc.assert(
    fc.property(fc.array(fc.oneof(block, fc.integer({ min: 0, max: 5000 })), { maxLength: 30 }), (steps) => {
      const encoder = new HpackEncoder();
      const one = decoder();
      for (const step of steps) {
        if (typeof step === "number") encoder.setMaxTableBytes(step);
        else assert.deepEqual(one.decode(encoded(encoder, step)), step);
      }
    }),
    { numRuns: 300 },
  );
});
