import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { clientHello } from "../testing/proxy-fixtures.ts";
import { wantedName } from "./wanted-name.ts";

const text = (each: string): Uint8Array => Buffer.from(each, "latin1");

test("wantedName: the name in a ClientHello or a Host field, as destinations are spelled", () => {
  const hello = clientHello("Registry.Example");
  assert.equal(wantedName([hello]), "registry.example");
  assert.equal(wantedName([hello.subarray(0, 9), hello.subarray(9)]), "registry.example");
  assert.equal(wantedName([hello.subarray(0, 40)]), "pending");
  assert.equal(wantedName([text("GET / HTTP/1.1\r\nHost: A.Example:80\r\n\r\n")]), "a.example");
  assert.equal(wantedName([text("GET / HT")]), "pending");
  assert.equal(wantedName([]), "pending");
  for (const none of ["SSH-2.0-x\r\n", "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"]) {
    assert.equal(wantedName([text(none)]), undefined, none);
  }
});

test("wantedName: any bytes give a name that is one, or none (fuzz)", () => {
  const hello = fc.tuple(fc.string({ maxLength: 20 }), fc.nat(80), fc.nat(255)).map(([name, at, byte]) => {
    const bytes = clientHello(name);
    if (at < bytes.length) bytes[at] = byte;
    return bytes;
  });
  const bytes = fc.oneof(
    hello,
    fc.uint8Array({ maxLength: 60 }),
    fc.string().map((host) => text(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`)),
  );
  fc.assert(
    fc.property(bytes, fc.nat(60), (input, cut) => {
      const name = wantedName([input.subarray(0, cut), input.subarray(cut)].filter(({ length }) => length > 0));
      if (name !== undefined) assert.match(name, /^[a-z0-9_.:-]+$/);
    }),
  );
});
