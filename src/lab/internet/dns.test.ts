import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { IpAddress } from "#base/ip";
import { answerQuery, readQuestion } from "./dns.ts";
import { DnsQueryError } from "./errors.ts";

const A = 1;
const AAAA = 28;
const ZONE = { "files.example": [IpAddress.parse("203.0.113.80"), IpAddress.parse("2001:db8:80::80")] };

function query(name: string, type: number): Buffer {
  const labels = name.split(".").map((label) => Buffer.concat([Buffer.of(label.length), Buffer.from(label, "latin1")]));
  const tail = Buffer.of(0, 0, type, 0, 1);
  return Buffer.concat([Buffer.of(0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0), ...labels, tail]);
}

test("dns: each family has its answers, with the id and the name of the query, in any case", () => {
  for (const [type, bytes] of [
    [A, [203, 0, 113, 80]],
    [AAAA, [0x20, 1, 0xd, 0xb8, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80]],
  ] as const) {
    const asked = query("Files.EXAMPLE", type);
    const answer = answerQuery(asked, ZONE);
    assert.equal(answer.readUInt16BE(0), 0xabcd);
    assert.equal(answer.readUInt16BE(2), 0x8580);
    assert.equal(answer.readUInt16BE(6), 1);
    assert.deepEqual(answer.subarray(12, asked.length), asked.subarray(12));
    assert.deepEqual([...answer.subarray(-bytes.length)], [...bytes]);
  }
});

test("dns: NXDOMAIN for an unknown name; no answers for a known name without that type", () => {
  const missing = answerQuery(query("other.example", A), ZONE);
  assert.deepEqual([missing.readUInt16BE(2) & 15, missing.readUInt16BE(6)], [3, 0]);
  const other = answerQuery(query("files.example", 15), ZONE);
  assert.deepEqual([other.readUInt16BE(2) & 15, other.readUInt16BE(6)], [0, 0]);
  // Inherited properties of an object are no names.
  assert.equal(answerQuery(query("constructor", A), ZONE).readUInt16BE(2) & 15, 3);
});

test("dns: for any bytes only DnsQueryError is thrown; a question reads as it was written", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 80 }), (bytes) => {
      try {
        answerQuery(bytes, ZONE);
      } catch (error) {
        assert.ok(error instanceof DnsQueryError);
      }
    }),
  );
  const label = fc.stringMatching(/^[a-z0-9-]{1,63}$/);
  fc.assert(
    fc.property(fc.array(label, { minLength: 1, maxLength: 4 }), fc.integer({ min: 1, max: 255 }), (labels, type) => {
      const asked = query(labels.join("."), type);
      assert.deepEqual(readQuestion(asked), { name: labels.join("."), type, end: asked.length });
      for (let cut = 0; cut < asked.length; cut += 1)
        assert.throws(() => readQuestion(asked.subarray(0, cut)), DnsQueryError);
    }),
    { numRuns: 50 },
  );
});
