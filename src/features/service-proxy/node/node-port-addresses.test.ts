import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import { nodePortAddressesOf, PRIMARY_ADDRESSES } from "./node-port-addresses.ts";

const LOCAL = ["127.0.0.1", "192.0.2.1", "192.0.2.1", "198.51.100.1", "::1", "2001:db8::1", "fe80::1"].map((text) =>
  IpAddress.parse(text),
);
const PRIMARY = { 4: IpAddress.parse("192.0.2.1"), 6: IpAddress.parse("2001:db8::1") };

/** `set 192.0.2.1`; ranges that were left out come after `!`. */
function places(text: string, family: IpFamily, primary: IpAddress | undefined = PRIMARY[family]): string {
  const words = text.split(",");
  const ranges = words.filter((one) => /[.:]/.test(one)).map((one) => Cidr.parse(one));
  const [hasPrimary, hasLocalhost] = [words.includes("primary"), words.includes("localhost")];
  const nodePortAddresses = { hasPrimary, hasLocalhost, ranges };
  const { mode, addresses, loopback } = nodePortAddressesOf({ nodePortAddresses }, family, LOCAL, primary);
  const skipped = loopback.length === 0 ? "" : ` !${loopback.join(" ")}`;
  return `${[mode, ...addresses.map(String)].join(" ")}${skipped}`;
}

test("nodePortAddressesOf: the primary address, those in the ranges, or all: never loopback (docs/spec/service-proxy.md#2.10)", () => {
  const rows: readonly (readonly [flag: string, family: IpFamily, expected: string])[] = [
    ["primary", 4, "set 192.0.2.1"],
    ["primary", 6, "set 2001:db8::1"],
    ["192.0.2.0/24", 4, "set 192.0.2.1"],
    ["192.0.2.0/24,198.51.100.0/24", 4, "set 192.0.2.1 198.51.100.1"],
    ["203.0.113.0/24", 4, "set"],
    // Of a mixed list a family without a range has the primary address alone.
    ["primary,198.51.100.0/24", 4, "set 192.0.2.1 198.51.100.1"],
    ["primary,192.0.2.0/24", 4, "set 192.0.2.1"],
    ["primary,198.51.100.0/24", 6, "set 2001:db8::1"],
    ["primary,0.0.0.0/0", 4, "all-local 192.0.2.1 198.51.100.1"],
    ["localhost", 4, "set"],
    ["localhost,primary", 4, "set 192.0.2.1"],
    ["localhost,192.0.2.0/24", 4, "set 192.0.2.1"],
    ["localhost,192.0.2.0/24", 6, "all-local 2001:db8::1 fe80::1"],
    // A family without a range takes them everywhere, and so does a range of all.
    ["192.0.2.0/24", 6, "all-local 2001:db8::1 fe80::1"],
    ["0.0.0.0/0", 4, "all-local 192.0.2.1 198.51.100.1"],
    ["127.0.0.0/8", 4, "set !127.0.0.0/8"],
    ["127.0.0.0/8,192.0.2.0/24", 4, "set 192.0.2.1 !127.0.0.0/8"],
    ["::1/128", 6, "set !::1/128"],
  ];
  for (const [flag, family, expected] of rows) assert.equal(places(flag, family), expected, `${flag} IPv${family}`);
});

test("nodePortAddressesOf: a Node without an address of the family takes no NodePorts in it", () => {
  const { mode, addresses } = nodePortAddressesOf({ nodePortAddresses: PRIMARY_ADDRESSES }, 6, LOCAL, undefined);
  assert.deepEqual([mode, addresses], ["set", []]);
});
