import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { TlsRecords } from "./tls-records.ts";

test("TlsRecords: the same verdict however the stream is cut (property)", () => {
  const records = fc
    .array(fc.tuple(fc.integer({ min: 20, max: 23 }), fc.nat(600)), { maxLength: 5 })
    .map((each) =>
      Buffer.concat(
        each.map(([type, length]) =>
          Buffer.concat([Buffer.of(type, 3, 3, length >> 8, length & 255), Buffer.alloc(length)]),
        ),
      ),
    );
  fc.assert(
    fc.property(records, fc.nat(3000), fc.array(fc.nat(700), { maxLength: 6 }), (stream, cut, sizes) => {
      const part = stream.subarray(0, cut);
      const [whole, pieces] = [new TlsRecords(), new TlsRecords()];
      whole.push(part);
      let at = 0;
      for (const size of [...sizes, part.length]) {
        pieces.push(part.subarray(at, at + size));
        at += size;
      }
      assert.equal(pieces.isWithinRecord, whole.isWithinRecord);
      if (cut >= stream.length) assert.equal(whole.isWithinRecord, false);
    }),
  );
  const plain = new TlsRecords();
  plain.push(Buffer.from("HTTP/1.1 200 OK\r\n\r\n"));
  assert.equal(plain.isWithinRecord, true);
});
