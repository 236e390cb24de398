import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { OwnAddresses } from "./own-addresses.ts";

test("OwnAddresses: the machine's own addresses, asked for once a second at the most", async () => {
  const clock = new FakeClock();
  let asked = 0;
  let all: Readonly<Record<string, readonly { readonly address: string }[]>> = { eth0: [{ address: "192.0.2.11" }] };
  const own = new OwnAddresses(clock, () => {
    asked += 1;
    return all;
  });
  const has = (text: string): boolean => own.has(IpAddress.parse(text));
  assert.deepEqual([has("192.0.2.11"), has("192.0.2.12"), has("2001:db8::1")], [true, false, false]);
  all = { eth0: [{ address: "192.0.2.12" }], eth1: [{ address: "2001:db8::1" }] };
  assert.equal(has("192.0.2.12"), false);
  assert.equal(asked, 1);
  await clock.advance(1000);
  assert.deepEqual([has("192.0.2.11"), has("192.0.2.12"), has("2001:db8:0::1")], [false, true, true]);
  assert.equal(asked, 2);
});

test("OwnAddresses: loopback of this machine is one", () => {
  assert.equal(new OwnAddresses(new FakeClock()).has(IpAddress.parse("127.0.0.1")), true);
});
