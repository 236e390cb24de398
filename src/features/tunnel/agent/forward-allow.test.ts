import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { systemClock } from "#base/clock";
import { ConfigError } from "#base/config";
import { IpAddress } from "#base/ip";
import { SystemNames } from "#base/names";
import { dialTcp } from "../local/dial-tcp.ts";
import { forwardFilter, parseForwardDestination } from "./forward-allow.ts";

test("forwardFilter: ranges and ports, IPv4-mapped addresses too; an empty list allows all", () => {
  const texts = ["10.0.0.0/8", "192.0.2.1/32:10250", "fd00::/8:443", "2001:db8::/32"];
  const allowed = forwardFilter(texts.map(parseForwardDestination));
  assert.ok(allowed !== undefined);
  const cases: readonly (readonly [string, number, boolean])[] = [
    ["10.1.2.3", 1, true],
    ["11.0.0.1", 1, false],
    ["192.0.2.1", 10_250, true],
    ["192.0.2.1", 22, false],
    ["192.0.2.2", 10_250, false],
    ["fd00::1", 443, true],
    ["fd00::1", 80, false],
    ["2001:db8::1", 9, true],
    ["::ffff:10.1.2.3", 1, true],
    ["::ffff:11.0.0.1", 1, false],
  ];
  for (const [address, port, expected] of cases) {
    assert.equal(allowed(IpAddress.parse(address), port), expected, `${address} ${port}`);
  }
  assert.equal(forwardFilter([]), undefined);
  const any6 = forwardFilter([parseForwardDestination("::/0")]);
  assert.equal(any6?.(IpAddress.parse("::ffff:10.0.0.1"), 1), false, "IPv6 does not let IPv4 in");
});

test("parseForwardDestination: anything else is refused with its text", () => {
  for (const text of [
    "",
    "10.0.0.1",
    "10.0.0.0/33",
    "10.0.0.0/8:0",
    "10.0.0.0/8:65536",
    "x/8",
    "10.0.0.0/8:http",
    "/8",
  ]) {
    assert.throws(() => parseForwardDestination(text), new RegExp(JSON.stringify(text).replaceAll("/", "\\/")), text);
  }
  fc.assert(
    fc.property(fc.string(), (text) => {
      try {
        parseForwardDestination(text);
      } catch (error) {
        assert.ok(error instanceof ConfigError, String(error));
      }
    }),
  );
});

test("dialTcp: the filter applies to the addresses of a name", async () => {
  const signal = AbortSignal.timeout(5000);
  const names = new SystemNames({ clock: systemClock });
  const allowed = forwardFilter([parseForwardDestination("10.0.0.0/8")]);
  assert.ok(allowed !== undefined);
  for (const host of ["localhost", "127.0.0.1", "::1"]) {
    await assert.rejects(
      dialTcp({ host, port: 9 }, { names, timeoutMs: 1000, signal, allowed }),
      /destination not allowed/,
    );
  }
});
