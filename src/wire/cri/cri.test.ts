import assert from "node:assert/strict";
import { test } from "node:test";
import { seeded } from "#test/seeded";
import { ProtoWriter } from "#wire/protobuf";
import { CriError, decodeSandboxIds } from "./index.ts";

/** A PodSandbox as containerd writes it: id, metadata, state, created_at, labels. */
function sandbox(id: string): Uint8Array {
  const metadata = new ProtoWriter().string(1, "web-0").string(2, "uid").string(3, "default").uint(4, 1).finish();
  return new ProtoWriter().string(1, id).message(2, metadata).uint(3, 1).uint(4, 1_700_000_000).finish();
}

test("decodeSandboxIds: ids of all sandboxes, and none of an empty list; unknown fields are skipped", () => {
  const response = new ProtoWriter().message(1, sandbox("aa")).uint(9, 7).message(1, sandbox("bb")).finish();
  assert.deepEqual(decodeSandboxIds(response), ["aa", "bb"]);
  assert.deepEqual(decodeSandboxIds(new Uint8Array(0)), []);
});

test("decodeSandboxIds: a sandbox without an id, and bytes that are no message, are faults of the list", () => {
  const nameless = new ProtoWriter().message(1, sandbox("aa")).message(1, sandbox("")).finish();
  for (const bytes of [nameless, Uint8Array.of(0x0a, 0x7f, 1), Uint8Array.of(0xff)])
    assert.throws(() => decodeSandboxIds(bytes), CriError);
});

test("decodeSandboxIds: of 20,000 damaged lists each is read or refused", () => {
  const random = seeded(7);
  const whole = new ProtoWriter().message(1, sandbox("aa")).message(1, sandbox("bb")).finish();
  let read = 0;
  for (let round = 0; round < 20_000; round += 1) {
    const bytes = Uint8Array.from(whole.subarray(0, Math.ceil(random() * whole.length)));
    for (let hit = 0; hit < 2; hit += 1) bytes[Math.floor(random() * bytes.length)] = Math.floor(random() * 256);
    try {
      for (const id of decodeSandboxIds(bytes)) assert.notEqual(id, "");
      read += 1;
    } catch (error) {
      assert.ok(error instanceof CriError, String(error));
    }
  }
  assert.ok(read > 0 && read < 20_000, `${read} were read`);
});
