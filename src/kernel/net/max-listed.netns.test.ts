import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { openKernel } from "./index.ts";

test("openStack: a list of more objects than maxListed ends with an error; the stack serves on, and lists as many", () => {
  const kernel = openKernel();
  using netns = kernel.createAnonymousNetNs();
  using all = kernel.openStack(netns);
  all.links.set(1, { up: true });
  const base = IpAddress.parse("192.0.2.1");
  for (let at = 0; at < 20; at += 1) all.addresses.add({ linkIndex: 1, address: base.plus(BigInt(at)) });
  const count = all.addresses.list({ family: 4 }).length;
  assert.equal(count, 21);
  const descriptors = (): number => readdirSync("/proc/self/fd").length;
  const before = descriptors();
  {
    using few = kernel.openStack(netns, { maxListed: count - 1 });
    for (let tries = 0; tries < 3; tries += 1) {
      assert.throws(() => few.addresses.list({ family: 4 }), {
        name: "KernelError",
        code: "failed",
        message: "Cannot list addresses: there are more than 20",
      });
      assert.equal(few.links.list().length, 1);
      assert.equal(few.links.get({ name: "lo" })?.index, 1);
    }
    using same = kernel.openStack(netns, { maxListed: count });
    assert.equal(same.addresses.list({ family: 4 }).length, count);
  }
  assert.equal(descriptors(), before);
});
