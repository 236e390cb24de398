import assert from "node:assert/strict";
import { test } from "node:test";
import type { NftTransaction } from "#kernel/nft";
import type { GuardPlan } from "./plan.ts";
import { type GuardPorts, GuardTable } from "./table.ts";

const PLAN: GuardPlan = {
  table: { family: "inet", name: "guard" },
  sets: [],
  chains: [{ name: "input", rules: [{ rule: "counter drop", reason: "all" }] }],
};

test("GuardTable: where there is no table nothing is deleted, since the end of the socket would wait for the kernel to free it; another one is replaced", async () => {
  for (const [structure, deletes] of [
    [[], 0],
    [["chain of another release"], 1],
  ] as const) {
    const run: NftTransaction[] = [];
    const ports = {
      nft: { run: (change: NftTransaction) => void run.push(change) },
      elements: { structure: () => structure, rules: () => [] },
    } as unknown as GuardPorts;
    assert.equal(await new GuardTable(ports, PLAN.table).sync(PLAN), 1);
    const changes = run.flatMap((change) => [...change]);
    assert.equal(changes.filter(({ op }) => op === "delete").length, deletes);
    assert.ok(changes.some(({ kind }) => kind === "rule"));
  }
});
