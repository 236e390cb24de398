import assert from "node:assert/strict";
import { test } from "node:test";
import { openKernel } from "#kernel/net";
import { fillAlternativeNames } from "#test/alternative-names";

test("links: one with as many alternative names as the kernel takes is got and listed, and so are those after it", () => {
  const kernel = openKernel();
  const name = `isk-large-${process.pid}`;
  using netns = kernel.createNetNs(name);
  try {
    using stack = kernel.openStack(netns);
    const { index } = stack.links.create({ kind: "veth", name: "large", peer: { name: "other" } });
    stack.links.create({ kind: "veth", name: "after", peer: { name: "last" } });
    const names = fillAlternativeNames(name, "large");
    assert.ok(names > 400, `${names} names`);
    assert.equal(stack.links.get({ name: "large" })?.index, index);
    assert.deepEqual(
      stack.links
        .list()
        .map((link) => link.name)
        .sort(),
      ["after", "large", "last", "lo", "other"],
    );
  } finally {
    kernel.deleteNetNs(name);
  }
});
