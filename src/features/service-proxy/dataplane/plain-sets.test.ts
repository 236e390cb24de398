import assert from "node:assert/strict";
import { test } from "node:test";
import { ElementBatch } from "#kernel/nft-elements";
import { WantedTable } from "../plan/index.ts";
import { SETS } from "../rules/index.ts";
import { changeSets } from "./plain-sets.ts";

interface Case {
  /** Keys of `nodeport-ips` in the kernel, at the last successful sync, and wanted now. */
  readonly observed: readonly string[];
  readonly before: readonly string[];
  readonly wanted: readonly string[];
}

/** Numbers of added, removed and drifted keys, and the keys afterwards. */
function change({ observed, before, wanted }: Case): readonly [number, number, number, string] {
  const batch = (): ElementBatch => new ElementBatch({ family: "ip", name: "t" }, { record: true });
  const { add, remove, drift, next } = changeSets(
    { sets: new Map([[SETS.nodePortIps, new Set(observed)]]) },
    { services: new WantedTable(), nodePortIPs: new Set(wanted), serviceCIDRs: [] },
    { frontEnds: new Set(), clusterIPs: new Set(), hairpinEndpoints: new Set(), nodePortIPs: new Set(before) },
    { full: true, add: batch(), remove: batch() },
  );
  return [add.count, remove.count, drift, [...(next.get(SETS.nodePortIps) ?? [])].sort().join("")];
}

const ROWS: readonly (readonly [string, Case, readonly [number, number, number, string]])[] = [
  ["the kernel has what is wanted", { observed: ["a"], before: ["a"], wanted: ["a"] }, [0, 0, 0, "a"]],
  ["a requested key is added", { observed: ["a"], before: ["a"], wanted: ["a", "b"] }, [1, 0, 0, "ab"]],
  [
    "a key that is no longer requested is removed",
    { observed: ["a", "b"], before: ["a", "b"], wanted: ["a"] },
    [0, 1, 0, "a"],
  ],
  ["a missing key that nothing requested is drift", { observed: [], before: ["a"], wanted: ["a"] }, [1, 0, 1, "a"]],
  ["an unowned key is drift", { observed: ["a", "x"], before: ["a"], wanted: ["a"] }, [0, 1, 1, "a"]],
];

for (const [name, given, expected] of ROWS) {
  test(`changeSets: ${name}`, () => assert.deepEqual(change(given), expected));
}
