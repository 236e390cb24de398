import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr } from "#base/ip";
import { MetricsClients } from "./index.ts";

function clients(...ranges: readonly string[]) {
  let refused = 0;
  const all = new MetricsClients(
    ranges.map((range) => Cidr.parse(range)),
    { onRefused: () => (refused += 1) },
  );
  const admits = (from: string | undefined, to = "192.0.2.1"): boolean => all.admits({ from, to });
  return { admits, refused: () => refused };
}

test("MetricsClients: without ranges everybody is admitted, and nobody counted", () => {
  const { admits, refused } = clients();
  for (const from of ["203.0.113.9", "2001:db8::9", undefined]) assert.equal(admits(from), true, from);
  assert.equal(refused(), 0);
});

test("MetricsClients: clients of the ranges, of loopback and of the address that they connect to are admitted, and the others counted", () => {
  const { admits, refused } = clients("198.51.100.0/24", "2001:db8:1::/48");
  const known = ["198.51.100.7", "2001:db8:1::7", "127.0.0.1", "127.9.9.9", "::1"];
  for (const from of known) assert.equal(admits(from), true, from);
  assert.equal(admits("192.0.2.1", "192.0.2.1"), true);
  assert.equal(admits("fe80::1%eth0", "fe80::1%eth0"), true);
  assert.equal(refused(), 0);
  const strangers = ["198.51.101.7", "192.0.2.2", "2001:db8:2::7", "fe80::2%eth0", "::", "", undefined];
  for (const from of strangers) assert.equal(admits(from), false, from);
  assert.equal(admits("192.0.2.2", undefined), false);
  assert.equal(refused(), strangers.length + 1);
});

test("MetricsClients: an IPv4-mapped address is an IPv4 one, as a client, as the own address and as a range", () => {
  const { admits } = clients("198.51.100.0/24", "::ffff:203.0.113.0/120", "::/0");
  assert.equal(admits("::ffff:198.51.100.7"), true);
  assert.equal(admits("203.0.113.7"), true);
  assert.equal(admits("::ffff:127.0.0.1"), true);
  assert.equal(admits("::ffff:192.0.2.1", "::ffff:192.0.2.1"), true);
  assert.equal(admits("::ffff:192.0.2.2", "::ffff:192.0.2.1"), false, "all of IPv6 has no IPv4 in it");
  assert.equal(clients("::ffff:0:0/96").admits("192.0.2.9"), true);
  assert.equal(clients("0.0.0.0/0").admits("::ffff:192.0.2.9"), true);
  assert.equal(clients("0.0.0.0/0").admits("2001:db8::1"), false);
});
