import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import { ANCHOR_PROTOCOL, type Anchored, type AnchorListing, planAnchors } from "./anchor-plan.ts";
import { Anchors, flushAnchors } from "./index.ts";

const ANCHOR = IpAddress.parse("169.254.100.1");
const LISTENER: Anchored = { address: ANCHOR, interface: "cni0", assignAddress: true };

function bridge(): { readonly stack: NetStack; readonly index: number } {
  const kernel = new FakeKernel();
  const stack = kernel.openStack(kernel.createNetNs("node"));
  return { stack, index: stack.links.create({ kind: "bridge", name: "cni0", up: true }).index };
}

/** As a kernel before 5.18 lists it. */
function forgetful({ links, addresses }: Pick<NetStack, "links" | "addresses">): AnchorListing {
  return { links: links.list(), addresses: addresses.list().map(({ protocol: _, ...address }) => address) };
}

const run = (pieces: readonly (() => number)[]): number => pieces.reduce((sum, apply) => sum + apply(), 0);

test("planAnchors: a second plan is empty, only ours is removed, and wanted anchors are there, whatever was before", () => {
  const address = fc.constantFrom("169.254.100.1", "169.254.100.2", "fd00:100::1").map((text) => IpAddress.parse(text));
  const listener = fc.record({
    address,
    interface: fc.constantFrom("cni0", "cni1", "cni9"),
    assignAddress: fc.constantFrom(true, true, false),
  });
  const before = fc.record({ address, link: fc.nat(1), protocol: fc.constantFrom(undefined, 4, ANCHOR_PROTOCOL) });
  fc.assert(
    fc.property(fc.array(before, { maxLength: 6 }), fc.array(listener, { maxLength: 4 }), (there, wanted) => {
      const kernel = new FakeKernel();
      const stack = kernel.openStack(kernel.createNetNs("node"));
      const indices = ["cni0", "cni1"].map((name) => stack.links.create({ kind: "bridge", name, up: true }).index);
      for (const { address: own, link, protocol } of there) {
        const linkIndex = indices[link] ?? 0;
        const isNew = !stack.addresses.list({ linkIndex }).some((one) => one.address.equals(own));
        if (isNew) stack.addresses.add({ linkIndex, address: own, noDad: true, protocol });
      }
      const list = (): AnchorListing => ({ links: stack.links.list(), addresses: stack.addresses.list() });
      const foreign = (): string[] =>
        list()
          .addresses.filter(({ protocol }) => protocol !== ANCHOR_PROTOCOL)
          .map(({ linkIndex, address: own }) => `${linkIndex} ${own}`);
      const untouched = foreign();
      const anchors = new Anchors(stack, { log: nullLogger });
      run(anchors.plan(list(), wanted));
      assert.deepEqual(planAnchors(list(), wanted, []), []);
      assert.deepEqual(foreign(), untouched);
      for (const one of wanted) {
        const link = stack.links.list().find(({ name }) => name === one.interface);
        if (link === undefined || !one.assignAddress) continue;
        assert.ok(stack.addresses.list({ linkIndex: link.index }).some((own) => own.address.equals(one.address)));
      }
      run(flushAnchors(stack, list(), wanted));
      assert.deepEqual(foreign(), untouched);
      assert.ok(!list().addresses.some(({ protocol }) => protocol === ANCHOR_PROTOCOL));
    }),
    { numRuns: 200 },
  );
});

test("Anchors: where the kernel forgets whose an address is, this run remembers, and a flush goes by the settings", () => {
  const { stack, index } = bridge();
  const count = (): number => stack.addresses.list({ linkIndex: index, family: 4 }).length;
  const anchors = new Anchors(stack, { log: nullLogger });
  assert.equal(run(anchors.plan(forgetful(stack), [LISTENER])), 1);
  assert.equal(run(anchors.plan(forgetful(stack), [LISTENER])), 0);
  assert.equal(run(anchors.plan(forgetful(stack), [])), 1);
  assert.equal(count(), 0);
  stack.addresses.add({ linkIndex: index, address: ANCHOR });
  assert.equal(run(anchors.plan(forgetful(stack), [])), 0, "somebody else has put it there since");
  stack.addresses.delete({ linkIndex: index, address: ANCHOR });
  assert.equal(run(anchors.plan(forgetful(stack), [LISTENER])), 1);
  stack.addresses.delete({ linkIndex: index, address: ANCHOR });
  assert.equal(run(anchors.plan(forgetful(stack), [])), 0, "it has gone without us");
  stack.addresses.add({ linkIndex: index, address: ANCHOR });
  assert.equal(run(anchors.plan(forgetful(stack), [])), 0, "and is somebody else's now");
  assert.equal(run(flushAnchors(stack, forgetful(stack), [LISTENER])), 1);
  assert.equal(count(), 0);
});

test("Anchors: an address or a bridge that goes, or comes, between the listing and the change is no fault", () => {
  const { stack, index } = bridge();
  const list = (): AnchorListing => ({ links: stack.links.list(), addresses: stack.addresses.list() });
  const anchors = new Anchors(stack, { log: nullLogger });
  const assign = anchors.plan(list(), [LISTENER]);
  stack.addresses.add({ linkIndex: index, address: ANCHOR, protocol: ANCHOR_PROTOCOL });
  assert.equal(run(assign), 0);
  const remove = anchors.plan(list(), []);
  stack.addresses.delete({ linkIndex: index, address: ANCHOR });
  assert.equal(run(remove), 0);
  const late = anchors.plan(list(), [LISTENER]);
  stack.links.delete(index);
  assert.equal(run(late), 0);
});
