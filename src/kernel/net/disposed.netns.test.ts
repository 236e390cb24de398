import assert from "node:assert/strict";
import { test } from "node:test";
import { createAnonymousNetNs } from "#kernel/netns";
import { type NetStack, openKernel } from "./index.ts";

test("openStack: what still waits when a stack is disposed changes nothing, though its descriptor is another namespace's by then", async () => {
  const kernel = openKernel();
  using ns = createAnonymousNetNs();
  using other = createAnonymousNetNs();
  using otherStack = kernel.openStack(other);
  const names = ["a", "b", "c", "d"];
  const make = (stack: NetStack): number[] => names.map((name) => stack.links.create({ kind: "bridge", name }).index);
  const stack = kernel.openStack(ns);
  const indexes = make(stack);
  assert.deepEqual(make(otherStack), indexes, "both namespaces have links of these numbers");
  const outcomes = Promise.allSettled(indexes.map((index) => stack.links.deleteAsync(index)));
  stack[Symbol.dispose]();
  // These take the numbers that are free now.
  const taken = Array.from({ length: 8 }, () => kernel.openNetNs({ path: `/proc/self/fd/${other.fd}` }));
  try {
    for (const { status } of await outcomes) assert.equal(status, "rejected");
    const disposed = { code: "failed" };
    assert.throws(() => stack.sysctl.set("net.ipv4.ip_forward", 1), disposed);
    assert.throws(() => stack.fou.list(4), disposed);
    assert.throws(() => stack.offloads.active(1), disposed);
    assert.throws(() => stack.links.create({ kind: "tun", name: "t", mode: "tun" }), disposed);
  } finally {
    for (const handle of taken) handle[Symbol.dispose]();
  }
  const left = otherStack.links.list().map(({ name }) => name);
  assert.deepEqual(left.sort(), [...names, "lo"].sort());
  assert.equal(otherStack.sysctl.get("net.ipv4.ip_forward"), "0");
});
