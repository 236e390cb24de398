import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { eventsOf } from "./monitors.ts";

test("eventsOf: a datagram that is not understood asks for a listing, and no bytes end a watch (fuzz)", () => {
  // struct nlmsghdr of RTM_NEWLINK, and no ifinfomsg.
  const cut = Buffer.alloc(20);
  cut.writeUInt32LE(20, 0);
  cut.writeUInt16LE(16, 4);
  assert.deepEqual(eventsOf(cut), [{ kind: "resync" }]);
  assert.deepEqual(eventsOf(Buffer.alloc(0)), []);
  const types = fc.constantFrom(16, 17, 20, 21, 24, 25, 32, 33, 80);
  fc.assert(
    fc.property(types, fc.uint8Array({ maxLength: 200 }), (type, payload) => {
      const datagram = Buffer.concat([Buffer.alloc(16), payload]);
      datagram.writeUInt32LE(datagram.length, 0);
      datagram.writeUInt16LE(type, 4);
      assert.ok(Array.isArray(eventsOf(datagram)));
    }),
  );
});
