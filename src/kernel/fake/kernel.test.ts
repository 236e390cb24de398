import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import { FakeKernel } from "./index.ts";

test("FakeKernel: an injected fault fails its operations, up to its limit", () => {
  const kernel = new FakeKernel();
  using own = kernel.openNetNs("own");
  using stack = kernel.openStack(own);
  kernel.fail("links.create", "busy", { about: "br1" });
  stack.links.create({ kind: "bridge", name: "br0" });
  assert.throws(
    () => stack.links.create({ kind: "bridge", name: "br1" }),
    (error) => isKernelError(error, "busy"),
  );
  stack.links.create({ kind: "bridge", name: "br1" });
  kernel.fail("*", "timeout", { times: Number.POSITIVE_INFINITY });
  assert.throws(
    () => stack.routes.list({ family: 4 }),
    (error) => isKernelError(error, "timeout"),
  );
  assert.throws(
    () => stack.rules.list(4),
    (error) => isKernelError(error, "timeout"),
  );
  kernel.heal();
  assert.equal(stack.rules.list(4).length, 3);
});

test("FakeKernel: the dump reads like ip(8) and is the same for the same state", () => {
  const make = (): string => {
    const kernel = new FakeKernel();
    using pod = kernel.createNetNs("pod");
    using own = kernel.openNetNs("own");
    using stack = kernel.openStack(own);
    const link = stack.links.create({
      kind: "veth",
      name: "veth0",
      alias: "COIL:a:b:c",
      up: true,
      peer: { name: "eth0", netns: pod, up: true },
    });
    stack.addresses.add({ linkIndex: link.index, address: IpAddress.parse("192.0.2.1") });
    stack.routes.add({ dst: Cidr.parse("10.0.0.5/32"), linkIndex: link.index, table: 116, protocol: 30 });
    stack.rules.add({ family: 4, priority: 2000, table: 116 });
    return kernel.dump("own");
  };
  const dump = make();
  assert.equal(make(), dump);
  assert.match(dump, /^link veth0 veth mtu 1500 up peer eth0 alias COIL:a:b:c$/m);
  assert.match(dump, /^ {2}address 192\.0\.2\.1\/32 scope global$/m);
  assert.match(dump, /^route 10\.0\.0\.5\/32 dev veth0 table 116 proto 30$/m);
  assert.match(dump, /^rule inet4 2000 lookup 116$/m);
});

test("FakeKernel: a namespace ends with its name and its last holder, and takes the veths of others along", () => {
  const kernel = new FakeKernel();
  using own = kernel.openNetNs("own");
  using stack = kernel.openStack(own);
  const pod = kernel.createNetNs("pod");
  stack.links.create({ kind: "veth", name: "veth0", peer: { name: "eth0", netns: pod } });
  kernel.deleteNetNs("pod");
  assert.ok(stack.links.get({ name: "veth0" }) !== undefined, "the handle holds it");
  pod[Symbol.dispose]();
  assert.equal(stack.links.get({ name: "veth0" }), undefined);
  assert.throws(
    () => kernel.openStack(pod),
    (error) => isKernelError(error, "invalid"),
  );
});

test("FakeKernel: duplicate address detection is pending until it is finished", () => {
  const kernel = new FakeKernel();
  using own = kernel.openNetNs("own");
  using stack = kernel.openStack(own);
  const { index } = stack.links.create({ kind: "bridge", name: "br0", up: true });
  stack.addresses.add({ linkIndex: index, address: IpAddress.parse("fd00::1") });
  const tentative = (): boolean[] => stack.addresses.list({ linkIndex: index, family: 6 }).map((own) => own.tentative);
  assert.deepEqual(tentative(), [true, true]);
  kernel.finishDad();
  assert.deepEqual(tentative(), [false, false]);
});
