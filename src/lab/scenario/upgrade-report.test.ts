import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type LongConnection,
  type UpgradeReport,
  type UpgradeStep,
  upgradeLines,
  upgradeWorks,
} from "./upgrade-report.ts";

const step: UpgradeStep = {
  name: "node1 to 0.2.0",
  programs: { before: 6, after: 5 },
  pings: { sent: 240, lost: 0 },
  lostBy: [],
  made: ["dual/on-node1"],
  opened: 1,
  outages: [{ way: "through the tunnel", ms: 812 }],
  faults: [],
  findings: [],
  seconds: 2,
};
const connection: LongConnection = { name: "pod to pod", sent: 40, received: 41, longestGapMs: 52, fault: null };
const report: UpgradeReport = {
  from: "0.1.0",
  to: "0.2.0",
  steps: [step],
  connections: [connection],
  pods: 6,
  seconds: 2,
};
const linesOf = (one: UpgradeReport): string[] =>
  upgradeLines(one, { mark: (good) => (good ? "ok  " : "FAIL"), cut: (rows) => rows });

test("upgradeWorks: an upgrade under which every ping was answered and every connection lived is well", () => {
  assert.ok(upgradeWorks(report));
  assert.ok(linesOf(report).every((line) => !line.startsWith("FAIL")));
  assert.ok(linesOf(report).includes("       through the tunnel: no new connection for 812 ms"));
});

test("upgradeWorks: a lost ping, a fault, a finding, a step without pings and a connection that ended are failures, and have a line", () => {
  for (const [wrong, said] of [
    [{ ...step, pings: { sent: 240, lost: 1 }, lostBy: ["a -> b: 1 pings lost"] }, /a -> b: 1 pings lost/],
    [{ ...step, faults: ["pod x does not run"] }, /pod x does not run/],
    [{ ...step, findings: ["node1: a route is missing"] }, /a route is missing/],
    [{ ...step, pings: { sent: 0, lost: 0 } }, /0 of 0 pings/],
  ] as const) {
    const failed = { ...report, steps: [step, wrong] };
    assert.ok(!upgradeWorks(failed));
    assert.match(linesOf(failed).join("\n"), said);
    assert.equal(linesOf(failed).filter((line) => line.startsWith("FAIL")).length, 1);
  }
  const ended = { ...report, connections: [connection, { ...connection, fault: "it was closed" }] };
  assert.ok(!upgradeWorks(ended));
  assert.match(linesOf(ended).join("\n"), /FAIL connection pod to pod: it was closed/);
  for (const none of [
    { ...report, steps: [] },
    { ...report, connections: [] },
  ])
    assert.ok(!upgradeWorks(none));
});
