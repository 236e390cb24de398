import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ProtoWriter } from "#wire/protobuf";
import {
  decodeAuthenticateResponse,
  decodeRangeResponse,
  EtcdWireError,
  encodeAuthenticateRequest,
  encodeRangeRequest,
  keyAfter,
  prefixEnd,
} from "./index.ts";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const hex = (value: Uint8Array): string => Buffer.from(value).toString("hex");

test("etcd: a RangeRequest has the bytes of rpc.proto; the newest revision and no limit are left out", () => {
  const request = { key: bytes("a"), rangeEnd: bytes("b"), limit: 500, revision: 7 };
  assert.equal(hex(encodeRangeRequest(request)), "0a0161120162" + "18f403" + "2007");
  assert.equal(hex(encodeRangeRequest({ ...request, limit: 0, revision: 0 })), "0a0161120162");
  assert.equal(hex(encodeAuthenticateRequest("u", "p")), "0a0175120170");
});

test("etcd: a RangeResponse gives keys, values, revision and whether there is more", () => {
  const header = new ProtoWriter()
    .uint(1, 2 ** 50 + 3)
    .uint(3, 42)
    .uint(4, 2)
    .finish();
  const kv = (key: string, value: string): Uint8Array =>
    new ProtoWriter().string(1, key).uint(2, 4).uint(3, 5).uint(4, 1).string(5, value).finish();
  const message = new ProtoWriter()
    .message(1, header)
    .message(2, kv("/coil/a", "1"))
    .message(2, kv("/coil/b", ""))
    .uint(3, 1)
    .uint(4, 9)
    .finish();
  const { revision, kvs, more } = decodeRangeResponse(message);
  assert.deepEqual({ revision, more }, { revision: 42, more: true });
  const text = (value: Uint8Array): string => new TextDecoder().decode(value);
  assert.deepEqual(
    kvs.map(({ key, value }) => [text(key), text(value)]),
    [
      ["/coil/a", "1"],
      ["/coil/b", ""],
    ],
  );
  assert.deepEqual(decodeRangeResponse(new Uint8Array(0)), { revision: 0, kvs: [], more: false });
  assert.equal(decodeAuthenticateResponse(new ProtoWriter().message(1, header).string(2, "tok.7").finish()), "tok.7");
});

test("etcd: a prefix and its end hold exactly the keys with the prefix", () => {
  assert.equal(hex(prefixEnd(bytes("/coil/"))), hex(bytes("/coil0")));
  assert.equal(hex(prefixEnd(Uint8Array.of(1, 0xff))), "02");
  assert.equal(hex(prefixEnd(Uint8Array.of(0xff))), "00");
  const key = fc.uint8Array({ minLength: 1, maxLength: 4 });
  fc.assert(
    fc.property(key, fc.uint8Array({ maxLength: 4 }), (prefix, other) => {
      const [start, end] = [Buffer.from(prefix), Buffer.from(prefixEnd(prefix))];
      const one = Buffer.from(other);
      const isInside = one.compare(start) >= 0 && (hex(end) === "00" || one.compare(end) < 0);
      assert.equal(isInside, one.subarray(0, start.length).equals(start));
      assert.ok(Buffer.from(keyAfter(prefix)).compare(start) > 0);
    }),
    { numRuns: 2000 },
  );
});

test("etcd: arbitrary bytes are a message or an EtcdWireError", () => {
  const chunk = fc.oneof(
    fc.uint8Array({ maxLength: 60 }),
    fc.uint8Array({ maxLength: 20 }).map((part) => new ProtoWriter().message(1, part).message(2, part).finish()),
  );
  fc.assert(
    fc.property(chunk, (message) => {
      for (const decode of [decodeRangeResponse, decodeAuthenticateResponse]) {
        try {
          decode(message);
        } catch (error) {
          assert.ok(error instanceof EtcdWireError, String(error));
        }
      }
    }),
    { numRuns: 5000 },
  );
});
