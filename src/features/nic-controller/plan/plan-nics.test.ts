import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { NamedNic, NicStatus } from "#kube/nic";
import { planNics } from "./plan-nics.ts";

const ETH0: NamedNic = { name: "eth0" };
const ETH1: NamedNic = { name: "eth1", subnet: "subnet-1" };
const PORT = "a2815656-76f7-46d4-9d11-057063db1a14";
const shown = (...nics: readonly NamedNic[]): readonly NicStatus[] =>
  nics.map(({ name }) => ({ name, state: "Ready", portID: PORT }));

test("planNics: NICs come and go; one that needs another port goes first, and comes when that port is released", () => {
  const rows: readonly (readonly [
    claim: string,
    claimed: readonly NamedNic[],
    status: readonly NicStatus[],
    wanted: readonly NamedNic[],
    next: readonly NamedNic[] | undefined,
  ])[] = [
    ["nothing has changed", [ETH0, ETH1], shown(ETH0, ETH1), [ETH0, ETH1], undefined],
    ["a NIC is added", [ETH0], shown(ETH0), [ETH0, ETH1], [ETH0, ETH1]],
    ["a NIC is removed", [ETH0, ETH1], shown(ETH0, ETH1), [ETH0], [ETH0]],
    ["its port is not released yet, so it is not added again", [ETH0], shown(ETH0, ETH1), [ETH0, ETH1], undefined],
    ["of a NIC with another subnet the port goes", [ETH0, ETH1], shown(ETH0, ETH1), [ETH0, { name: "eth1" }], [ETH0]],
    [
      "groups and tag are changed where they are",
      [ETH0, ETH1],
      shown(ETH0, ETH1),
      [ETH0, { ...ETH1, securityGroups: ["web"], tag: "t" }],
      [ETH0, { ...ETH1, securityGroups: ["web"], tag: "t" }],
    ],
    ["a port that the user writes down is the same port", [ETH0], shown(ETH0), [{ ...ETH0, portID: PORT }], undefined],
    [
      "another port is another NIC",
      [ETH0, ETH1],
      shown(ETH0, ETH1),
      [ETH0, { ...ETH1, portID: "b2815656-76f7-46d4-9d11-057063db1a14" }],
      [ETH0],
    ],
    ["the order is that of the pod", [ETH0, ETH1], shown(ETH0, ETH1), [ETH1, ETH0], [ETH1, ETH0]],
  ];
  for (const [claim, claimed, status, wanted, next] of rows) {
    assert.deepEqual(planNics(claimed, status, wanted), next, claim);
  }
});

test("planNics: once every port of what was given up is released, a claim has what its pod wants, in two steps at most", () => {
  const nic = fc.record(
    { name: fc.constantFrom("eth1", "eth2"), subnet: fc.constantFrom("a", "b"), tag: fc.constantFrom("x", "y") },
    { requiredKeys: ["name"], noNullPrototype: true },
  );
  const nics = fc
    .uniqueArray(nic, { selector: ({ name }) => name, maxLength: 2 })
    .map((others): readonly NamedNic[] => [ETH0, ...others]);
  fc.assert(
    fc.property(nics, nics, (before, wanted) => {
      const first = planNics(before, shown(...before), wanted) ?? before;
      for (const one of first) {
        const old = before.find(({ name }) => name === one.name);
        assert.ok(old === undefined || old.subnet === one.subnet, "no NIC changes its subnet under its port");
      }
      const second = planNics(first, shown(...first), wanted) ?? first;
      assert.deepEqual(second, wanted);
      assert.equal(planNics(second, shown(...second), wanted), undefined);
    }),
  );
});
