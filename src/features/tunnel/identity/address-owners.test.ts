import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { AddressOwners } from "./address-owners.ts";

const batch = (changes: Readonly<Record<string, readonly string[]>>): ReadonlyMap<string, ReadonlySet<string>> =>
  new Map(Object.entries(changes).map(([node, addresses]) => [node, new Set(addresses)]));

test("AddressOwners: an address stays with the Node that was known with it first, until it has it no longer", () => {
  const owners = new AddressOwners();
  assert.deepEqual(owners.apply(batch({ n1: ["a", "b"] })), { addresses: new Set(["a", "b"]), conflicts: [] });
  const { conflicts } = owners.apply(batch({ n2: ["a"] }));
  const [conflict] = conflicts;
  assert.deepEqual(conflict, { address: "a", nodes: ["n1", "n2"], before: "n1", owner: "n1" });
  assert.equal(owners.confirm("n2", "a"), undefined, "a connection decides nothing that is known");
  assert.equal(owners.ownerOf("a"), "n1");
  assert.deepEqual(owners.apply(batch({ n1: ["b"] })), {
    addresses: new Set(["a"]),
    conflicts: [{ address: "a", nodes: ["n2"], before: "n1", owner: "n2" }],
  });
  owners.apply(batch({ n1: ["a", "b"] }));
  assert.equal(owners.ownerOf("a"), "n2");
  owners.apply(batch({ n1: [], n2: [] }));
  assert.deepEqual([owners.ownerOf("a"), owners.size], [undefined, 0]);
});

test("AddressOwners: Nodes of the first list have no order: a connection from the address decides, else it is nobody's", () => {
  const owners = new AddressOwners();
  const { conflicts } = owners.apply(batch({ n1: ["a", "b"], n2: ["a", "b"] }));
  assert.deepEqual(conflicts[0], { address: "a", nodes: ["n1", "n2"], before: undefined, owner: undefined });
  owners.apply(batch({ n3: ["a"] }));
  assert.equal(owners.confirm("n3", "a"), undefined, "who came later has no say");
  assert.equal(owners.confirm("n9", "a"), undefined);
  assert.deepEqual(owners.confirm("n2", "a"), {
    ...{ address: "a", nodes: ["n1", "n2", "n3"], before: undefined, owner: "n2" },
  });
  assert.equal(owners.confirm("n1", "a"), undefined, "the first connection decides");
  assert.deepEqual([owners.ownerOf("a"), owners.ownerOf("b")], ["n2", undefined]);
  owners.apply(batch({ n2: [] }));
  assert.deepEqual([owners.ownerOf("a"), owners.ownerOf("b")], ["n1", "n1"]);
});

test("AddressOwners: an address that moves from one Node to another within a batch is in one Node", () => {
  const owners = new AddressOwners();
  owners.apply(batch({ n1: ["a", "x"] }));
  assert.deepEqual(owners.apply(batch({ n2: ["a"], n1: ["x"] })).conflicts, [
    { address: "a", nodes: ["n2"], before: "n1", owner: "n2" },
  ]);
});

test("AddressOwners: whatever Nodes claim, nobody takes an address from a Node that keeps it, and conflicts name every change", () => {
  const node = fc.constantFrom("n1", "n2", "n3");
  const address = fc.constantFrom("a", "b", "c");
  const step = fc.oneof(
    fc.record({ kind: fc.constant("batch" as const), changes: fc.dictionary(node, fc.uniqueArray(address)) }),
    fc.record({ kind: fc.constant("connect" as const), node, address }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      const owners = new AddressOwners();
      const has = new Map<string, ReadonlySet<string>>();
      for (const one of steps) {
        const before = new Map(["a", "b", "c"].map((each) => [each, owners.ownerOf(each)]));
        const conflicts =
          one.kind === "batch" ? owners.apply(batch(one.changes)).conflicts : [owners.confirm(one.node, one.address)];
        if (one.kind === "batch") for (const [each, all] of batch(one.changes)) has.set(each, all);
        for (const [each, owner] of before) {
          const now = owners.ownerOf(each);
          const nodes = [...has].flatMap(([name, all]) => (all.has(each) ? [name] : []));
          if (owner !== undefined && nodes.includes(owner)) assert.equal(now, owner);
          if (nodes.length === 1) assert.equal(now, nodes[0]);
          if (now !== undefined) assert.ok(nodes.includes(now));
          const isTold = conflicts.some((conflict) => conflict?.address === each && conflict.owner === now);
          if (owner !== undefined && now !== undefined && owner !== now) assert.ok(isTold);
        }
        assert.equal(owners.size, new Set([...has.values()].flatMap((all) => [...all])).size);
      }
    }),
  );
});
