import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { OwnAddresses } from "./own-addresses.ts";

test("OwnAddresses: the machine's own addresses, asked for once a second at the most", async () => {
  const clock = new FakeClock();
  let asked = 0;
  let all: Readonly<Record<string, readonly { readonly address: string }[]>> = { eth0: [{ address: "192.0.2.11" }] };
  const faults: unknown[] = [];
  let isFull = false;
  const own = new OwnAddresses({ clock, onFault: (error) => faults.push(error) }, () => {
    asked += 1;
    if (isFull)
      throw Object.assign(new Error("uv_interface_addresses returned EMFILE"), { syscall: "uv_interface_addresses" });
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
  // Without a free descriptor the kernel cannot be asked.
  isFull = true;
  await clock.advance(1000);
  assert.deepEqual([has("192.0.2.12"), has("192.0.2.12"), has("192.0.2.11")], [true, true, false]);
  assert.deepEqual([asked, faults.length], [3, 1]);
});

test("OwnAddresses: loopback of this machine is one", () => {
  assert.equal(
    new OwnAddresses({ clock: new FakeClock(), onFault: (error) => assert.fail(String(error)) }).has(
      IpAddress.parse("127.0.0.1"),
    ),
    true,
  );
});
