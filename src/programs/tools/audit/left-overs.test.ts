import assert from "node:assert/strict";
import { test } from "node:test";
import { findingOf } from "./left-overs.ts";
import { auditText } from "./program.ts";

test("findingOf: a left-over is a finding of the machine that has it, and has the command that removes it", () => {
  const what = "2 IPv4 routes of table 216, protocol 30";
  const remedy = "ip route flush table 216 proto 30";
  const finding = findingOf({ program: "coild", what, remedy }, "worker-1");
  const checked = { nodes: 1, blocks: 0, pods: 0, links: 0, exportedRoutes: 0 };
  const [line = ""] = auditText({ findings: [finding], checked, notes: [] }).split("\n");
  assert.equal(
    line,
    `left-over  worker-1: ${what}: coild has made them with other numbers or has been removed; if nobody else needs them: ${remedy}`,
  );
});
