import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { character } from "#test/characters";
import { fieldBytes, fieldText, ProtoError, ProtoWriter, readFields } from "./index.ts";

test("ProtoWriter: the bytes of protobuf.dev's examples", () => {
  // https://protobuf.dev/programming-guides/encoding/: Test1 { a: 150 }, Test2 { b: "testing" }, Test3 { c: Test1 }.
  assert.deepEqual(new ProtoWriter().uint(1, 150).finish(), Uint8Array.of(0x08, 0x96, 0x01));
  assert.equal(Buffer.from(new ProtoWriter().string(2, "testing").finish()).toString("hex"), "120774657374696e67");
  const inner = new ProtoWriter().uint(1, 150).finish();
  assert.deepEqual(new ProtoWriter().message(3, inner).finish(), Uint8Array.of(0x1a, 0x03, 0x08, 0x96, 0x01));
});

test("ProtoWriter: defaults are left out, empty messages are not", () => {
  assert.equal(new ProtoWriter().string(1, "").bytes(2, new Uint8Array(0)).uint(3, 0).finish().length, 0);
  assert.deepEqual(new ProtoWriter().message(1, new Uint8Array(0)).finish(), Uint8Array.of(0x0a, 0x00));
});

test("readFields: reads back what was written, in order", () => {
  const field = fc.tuple(
    fc.integer({ min: 1, max: 2 ** 29 - 1 }),
    fc.oneof(
      fc.maxSafeNat().filter((n) => n > 0),
      fc.string({ unit: character, minLength: 1 }),
      fc.uint8Array({ minLength: 1 }),
    ),
  );
  fc.assert(
    fc.property(fc.array(field, { maxLength: 10 }), (fields) => {
      const writer = new ProtoWriter();
      for (const [number, value] of fields) {
        if (typeof value === "number") writer.uint(number, value);
        else if (typeof value === "string") writer.string(number, value);
        else writer.bytes(number, value);
      }
      const found = [...readFields(writer.finish())];
      assert.equal(found.length, fields.length);
      for (const [at, one] of found.entries()) {
        const [number, value] = fields[at] ?? [0, 0];
        assert.equal(one.number, number);
        if (typeof value === "number") assert.equal(one.value, value);
        else if (typeof value === "string") assert.equal(fieldText(one), value);
        else assert.deepEqual(Uint8Array.from(fieldBytes(one)), value);
      }
    }),
  );
});

test("readFields: fixed-width fields are skipped, groups and cut messages refused", () => {
  const fixed = Uint8Array.of(0x09, 1, 2, 3, 4, 5, 6, 7, 8, 0x15, 1, 2, 3, 4, 0x18, 7);
  assert.deepEqual(
    Array.from(readFields(fixed), ({ number, value }) => [number, value]),
    [
      [1, 0],
      [2, 0],
      [3, 7],
    ],
  );
  for (const hex of ["0b", "00", "0a05ff", "08", "08ffffffffffffffffffff01", "09010203", "0affffffff0f"]) {
    assert.throws(() => [...readFields(Buffer.from(hex, "hex"))], { name: "ProtoError", code: "malformed" }, hex);
  }
});

test("fieldText: text must be length-delimited UTF-8; a byte order mark is part of it", () => {
  const [bad] = readFields(Uint8Array.of(0x0a, 2, 0xc3, 0x28));
  const [number] = readFields(Uint8Array.of(0x08, 1));
  assert.ok(bad !== undefined && number !== undefined);
  assert.throws(() => fieldText(bad), { name: "ProtoError", message: "protobuf field 1 is not UTF-8" });
  assert.throws(() => fieldText(number), { name: "ProtoError", message: /wire type 0 instead of 2/ });
  const [marked] = readFields(new ProtoWriter().string(1, "\ufeffx").finish());
  assert.ok(marked !== undefined);
  assert.equal(fieldText(marked), "\ufeffx");
});

test("readFields: arbitrary bytes are fields or a ProtoError", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
      try {
        for (const field of readFields(bytes)) {
          assert.ok(field.bytes.length <= bytes.length);
          if (field.wireType === 2) fieldText(field);
        }
      } catch (error) {
        assert.ok(error instanceof ProtoError, String(error));
      }
    }),
    { numRuns: 3000 },
  );
});
