import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ApiError } from "../errors.ts";
import { decodeProtobuf } from "./protobuf.ts";

function field(number: number, value: Buffer | string): Buffer {
  const bytes = Buffer.from(value);
  assert.ok(bytes.length < 128);
  return Buffer.concat([Buffer.from([number * 8 + 2, bytes.length]), bytes]);
}

function body(kind: string, raw: Buffer): Buffer {
  return Buffer.concat([
    Buffer.from("k8s\0"),
    field(1, Buffer.concat([field(1, "v1"), field(2, kind)])),
    field(2, raw),
  ]);
}

test("protobuf: a ConfigMap is read, empty members are absent", () => {
  const metadata = Buffer.concat([
    field(1, "a"),
    field(2, ""),
    field(11, Buffer.concat([field(1, "k"), field(2, "v")])),
  ]);
  const raw = Buffer.concat([
    field(1, metadata),
    field(2, Buffer.concat([field(1, "x"), field(2, "1")])),
    Buffer.from([4 * 8, 1]),
  ]);
  assert.deepEqual(decodeProtobuf(body("ConfigMap", raw)), {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name: "a", labels: { k: "v" } },
    data: { x: "1" },
    immutable: true,
  });
});

test("protobuf: a message with an unknown field is refused, and the field is named", () => {
  assert.throws(
    () => decodeProtobuf(body("Pod", Buffer.alloc(0))),
    (error) => error instanceof ApiError && error.httpStatus === 415 && /Pod/.test(error.message),
  );
  assert.throws(() => decodeProtobuf(body("ConfigMap", field(9, "x"))), /ConfigMap, field 9/);
});

test("protobuf: nothing but ApiError escapes the decoder", () => {
  const kind = fc.constantFrom("ConfigMap", "Secret", "Deployment", "SelfSubjectAccessReview", "constructor");
  fc.assert(
    fc.property(kind, fc.uint8Array({ maxLength: 90 }), fc.uint8Array(), (name, raw, loose) => {
      for (const bytes of [
        body(name, Buffer.from(raw)),
        Buffer.from(loose),
        Buffer.concat([Buffer.from("k8s\0"), loose]),
      ]) {
        try {
          decodeProtobuf(bytes);
        } catch (error) {
          if (!(error instanceof ApiError)) throw error;
        }
      }
    }),
    { numRuns: 500 },
  );
});
