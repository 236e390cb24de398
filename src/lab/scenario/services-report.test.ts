import assert from "node:assert/strict";
import { test } from "node:test";
import { type ServicesReport, servicesLines, servicesWork } from "./services-report.ts";

const LOAD = { connections: 300, long: 6, failed: [] };
const TRY = { from: "node1", to: "web by cluster IP, 10.96.0.1 port 80", wanted: "one of a, b", got: "a", ok: true };
const ROLLOUT = { deployment: "web", externalTrafficPolicy: "Cluster", pods: 4, seconds: 6.14, ...LOAD } as const;
const GOOD: ServicesReport = {
  services: ["web", "edge"],
  tries: [TRY, TRY],
  drain: { node: "node1", through: 40, underWay: 2, outSeconds: 0.43, localOutSeconds: 0.4, backSeconds: 0.1, ...LOAD },
  rollouts: [ROLLOUT],
  seconds: 20,
};
const WORDS = "web, begun at 1.20 s, for 0.01 s, through node2: reset";

const BAD: readonly (readonly [string, Partial<ServicesReport>, RegExp])[] = [
  ["nothing was tried", { tries: [] }, /^FAIL services web, edge: 0 of 0 tries/],
  [
    "a try went astray",
    { tries: [TRY, { ...TRY, got: "10.0.0.9 answered", ok: false }] },
    /^FAIL .*: 1 of 2 tries .*\n {7}node1 -> web by cluster IP, .*: wanted one of a, b, got 10\.0\.0\.9 answered$/m,
  ],
  [
    "a client saw an error in the drain",
    { drain: { ...GOOD.drain, failed: [WORDS] } },
    /^FAIL drain of node1: 299 of 300 .*\n.*\n {7}web, begun at 1\.20 s, for 0\.01 s, through node2: reset$/m,
  ],
  ["nothing was under way", { drain: { ...GOOD.drain, underWay: 0 } }, /^FAIL drain/m],
  [
    "the balancer never let go",
    { drain: { ...GOOD.drain, outSeconds: null } },
    /^FAIL drain.*\n.*out never after the taint/m,
  ],
  [
    "a client saw an error in a rollout",
    { rollouts: [{ ...ROLLOUT, failed: [WORDS] }] },
    /^FAIL rolling update of web \(eTP Cluster/m,
  ],
  ["no client came in a rollout", { rollouts: [{ ...ROLLOUT, connections: 0 }] }, /^FAIL rolling update/m],
];

function linesOf(report: ServicesReport): string {
  return servicesLines(report, { mark: (good) => (good ? "ok  " : "FAIL"), cut: (lines) => lines }).join("\n");
}

test("services report: all tries as wanted, and no connection failed", () => {
  assert.equal(servicesWork(GOOD), true);
  assert.equal(
    linesOf(GOOD),
    [
      "ok   services web, edge: 2 of 2 tries from pods, nodes and outside had the expected result",
      "ok   drain of node1: 300 of 300 connections (6 long ones) answered whole; 40 went through it, 2 of them under way as it was tainted",
      "       balancers: out 0.43 s after the taint, eTP Local 0.40 s after the eviction; a new node is in after 0.10 s",
      "ok   rolling update of web (eTP Cluster, 4 pods, 6.1 s): 300 of 300 connections (6 long ones) answered whole",
    ].join("\n"),
  );
});

for (const [what, change, line] of BAD) {
  test(`services report: not well when ${what}`, () => {
    const report = { ...GOOD, ...change };
    assert.equal(servicesWork(report), false);
    assert.match(linesOf(report), line);
  });
}
