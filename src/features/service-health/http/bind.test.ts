import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { ListenAddress } from "#base/config";
import type { IpAddress } from "#base/ip";
import { KernelError } from "#kernel/errors";
import { ServiceHealthError } from "../errors.ts";
import { bindAddresses, listenAll } from "./bind.ts";
import type { Listener } from "./index.ts";

/** Errno numbers of Linux. */
const ERRNO = { EADDRINUSE: 98, EADDRNOTAVAIL: 99, EAFNOSUPPORT: 97 } as const;

/** A host on which listening on some addresses fails; `listeners` is what is listened on. */
function host(refused: Readonly<Record<string, keyof typeof ERRNO>>) {
  const listeners: string[] = [];
  const listen = (address: IpAddress, port: number): Listener => {
    const errno = refused[address.toString()];
    if (errno !== undefined) {
      const cause = KernelError.fromErrno(ERRNO[errno], `listen on ${address}`);
      throw new ServiceHealthError("cannot-listen", cause.message, { cause });
    }
    const text = `${address} ${port === 0 ? 4321 : port}`;
    listeners.push(text);
    const close = (): void => void listeners.splice(listeners.indexOf(text), 1);
    return { address, port: port === 0 ? 4321 : port, close };
  };
  return { listen, listeners };
}

const listened = (at: ListenAddress, refused: Parameters<typeof host>[0]): readonly string[] => {
  const { listen, listeners } = host(refused);
  listenAll({ listen }, at);
  return listeners;
};

test("bindAddresses: a wildcard means both families, an address itself, a name is refused", () => {
  const texts = (at: ListenAddress): string[] => bindAddresses(at).map(String);
  assert.deepEqual(texts({ host: "0.0.0.0", port: 1 }), ["0.0.0.0", "::"]);
  assert.deepEqual(texts({ host: "::", port: 1 }), ["0.0.0.0", "::"]);
  assert.deepEqual(texts({ port: 1 }), ["0.0.0.0", "::"]);
  assert.deepEqual(texts({ host: "fd00::1", port: 1 }), ["fd00::1"]);
  assert.throws(
    () => bindAddresses({ host: "node1", port: 10256 }),
    /Cannot listen on node1:10256: "node1" is not an IP/,
  );
});

test("bindAddresses: returns addresses or throws our error, whatever the text", () => {
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.ipV4(), fc.ipV6()), fc.nat(65_535), (text, port) => {
      try {
        assert.ok(bindAddresses({ host: text, port }).length > 0);
      } catch (error) {
        assert.ok(error instanceof ServiceHealthError && error.code === "invalid-address");
      }
    }),
  );
});

test("listenAll: one missing family is no error, two are; both have the same port", () => {
  const any = { host: "0.0.0.0", port: 0 };
  assert.deepEqual(listened(any, {}), ["0.0.0.0 4321", ":: 4321"]);
  assert.deepEqual(listened(any, { "::": "EAFNOSUPPORT" }), ["0.0.0.0 4321"]);
  assert.deepEqual(listened(any, { "0.0.0.0": "EAFNOSUPPORT" }), [":: 4321"]);
  assert.deepEqual(listened(any, { "::": "EADDRNOTAVAIL" }), ["0.0.0.0 4321"]);
  assert.throws(() => listened(any, { "0.0.0.0": "EAFNOSUPPORT", "::": "EAFNOSUPPORT" }), ServiceHealthError);
});

test("listenAll: a taken port in one family leaves no listener; a specific address has no other family", () => {
  for (const taken of ["0.0.0.0", "::"]) {
    const { listen, listeners } = host({ [taken]: "EADDRINUSE" });
    assert.throws(() => listenAll({ listen }, { port: 10_256 }), /in use/);
    assert.deepEqual(listeners, []);
  }
  assert.throws(() => listened({ host: "10.9.9.9", port: 1 }, { "10.9.9.9": "EADDRNOTAVAIL" }), ServiceHealthError);
});
