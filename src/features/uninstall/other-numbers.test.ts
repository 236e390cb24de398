import assert from "node:assert/strict";
import { test } from "node:test";
import type { KernelClaim } from "#base/estate";
import { Cidr } from "#base/ip";
import type { Route } from "#kernel/route";
import type { Rule } from "#kernel/rule";
import { otherNumbers } from "./other-numbers.ts";

const CLAIMS: readonly KernelClaim[] = [
  { id: "pod-routes", kind: "routes", table: 116, protocol: 30 },
  { id: "pod-rule", kind: "rules", priority: 2000, table: 116 },
  { id: "export-routes", kind: "routes", table: 119, protocol: 30 },
];
const POD_LINK = 7;
const route = (dst: string, table: number, protocol: number, linkIndex = 1): Route => ({
  ...{ family: 4, dst: Cidr.parse(dst), table, protocol, scope: "link", type: "unicast", linkIndex },
});
const rule = (priority: number, table: number, more: Partial<Rule> = {}): Rule => ({
  ...{ family: 4, priority, table, action: "lookup" },
  ...more,
});

test("otherNumbers: what a coild with other numbers left is named with the flags that take it; the rest is not", () => {
  const found = (rules: readonly Rule[], routes: readonly Route[]): string[] =>
    otherNumbers({ rules, routes, podLinks: new Set([POD_LINK]) }, CLAIMS);
  const rows: readonly [rules: readonly Rule[], routes: readonly Route[], lines: readonly string[]][] = [
    [
      [rule(2000, 116), rule(0, 255), rule(32_766, 254), rule(32_767, 253)],
      [route("10.0.0.1/32", 116, 30, POD_LINK)],
      [],
    ],
    [[], [route("10.0.0.0/24", 119, 30), route("10.0.0.0/24", 254, 31), route("10.0.0.1/32", 255, 2, POD_LINK)], []],
    [
      [rule(1500, 116)],
      [],
      ["IPv4 rule 1500: lookup 116: if it was coild's, give --pod-table-id=116 --pod-rule-prio=1500"],
    ],
    [
      [rule(2000, 200)],
      [],
      ["IPv4 rule 2000: lookup 200: if it was coild's, give --pod-table-id=200 --pod-rule-prio=2000"],
    ],
    [
      [rule(1500, 200), rule(1600, 300)],
      [route("10.0.0.1/32", 200, 40, POD_LINK), route("10.0.0.2/32", 200, 40, POD_LINK), route("10.0.0.0/8", 300, 40)],
      [
        "IPv4 rule 1500: lookup 200: if it was coild's, give --pod-table-id=200 --pod-rule-prio=1500",
        "2 routes of table 200 and protocol 40 to links of pods: if they were coild's, give --pod-table-id=200 --protocol-id=40",
      ],
    ],
    [
      [],
      [route("10.0.0.0/24", 219, 30)],
      ["1 routes of table 219 and protocol 30: if they were coild's, give --export-table-id=219"],
    ],
    [[], [route("10.0.0.0/24", 119, 40)], []],
    [[rule(2000, 200, { from: Cidr.parse("10.0.0.0/8") })], [], []],
  ];
  for (const [rules, routes, lines] of rows) assert.deepEqual(found(rules, routes), lines);
});
