import assert from "node:assert/strict";
import { test } from "node:test";
import { sleep } from "#base/async";
import { InsideError } from "#lab/inside";
import { type TunnelReport, tunnelLines, tunnelWorks } from "./tunnel-report.ts";
import { tryAll } from "./tunnel-tries.ts";

const GOOD: TunnelReport = {
  agents: { connected: 2, wanted: 2 },
  direct: { tried: 6, refused: 6, open: [] },
  reverse: { tried: 4, answered: 4, failures: [], connections: 20 },
  programs: { wanted: 5, connected: 5, missing: [] },
  forward: {
    pods: { tried: 3, answered: 3, failures: [] },
    nodePorts: { tried: 8, answered: 8, failures: [] },
    connections: 11,
  },
  seconds: 1.5,
};
const { forward } = GOOD;
const NONE = { tried: 0, answered: 0, failures: [] };
const failing = (tries: { readonly tried: number }) => ({
  tried: tries.tried,
  answered: tries.tried - 1,
  failures: ["x -> y: no"],
});

const BAD: readonly (readonly [string, Partial<TunnelReport>, RegExp])[] = [
  ["an agent is away", { agents: { connected: 1, wanted: 2 } }, /^FAIL tunnel: 1 of 2 agents connected$/m],
  [
    "a way past it is open",
    { direct: { tried: 6, refused: 5, open: ["node1 -> 172.31.0.2 port 6443 is open"] } },
    /^FAIL 5 of 6 connections that bypass the tunnel refused, both ways\n +node1 -> 172\.31\.0\.2 port 6443 is open$/m,
  ],
  ["no way past it was tried", { direct: { tried: 0, refused: 0, open: [] } }, /^FAIL 0 of 0 connections that bypass/m],
  [
    "a node gets no answer",
    { reverse: { ...failing(GOOD.reverse), connections: 9 } },
    /^FAIL nodes and pods .* 3 of 4.*\n +x -> y: no$/m,
  ],
  ["nobody was asked", { reverse: { ...NONE, connections: 9 } }, /^FAIL nodes and pods/m],
  [
    "a program goes another way",
    { programs: { wanted: 5, connected: 4, missing: ["coild-node2"] } },
    /^FAIL 4 of 5 programs .*\n +coild-node2$/m,
  ],
  [
    "a pod is not reached",
    { forward: { ...forward, pods: failing(forward.pods) } },
    /^FAIL control plane to nodes: 2 of 3/m,
  ],
  [
    "a node's port is not reached",
    { forward: { ...forward, nodePorts: failing(forward.nodePorts) } },
    /^FAIL .* 7 of 8 ports/m,
  ],
  ["no node's port was tried", { forward: { ...forward, nodePorts: NONE } }, /^FAIL control plane to nodes/m],
];

function linesOf(report: TunnelReport): string {
  const mark = (good: boolean): string => (good ? "ok  " : "FAIL");
  return tunnelLines(report, { mark, cut: (lines) => lines }).join("\n");
}

test("tunnelWorks: true if every try through the tunnel and none without it was answered, also without pods", () => {
  assert.equal(tunnelWorks(GOOD), true);
  assert.equal(tunnelWorks({ ...GOOD, forward: { ...forward, pods: NONE } }), true);
  assert.doesNotMatch(linesOf(GOOD), /FAIL/);
});

for (const [what, change, line] of BAD) {
  test(`tunnelWorks: not when ${what}, and the report says so`, () => {
    const report = { ...GOOD, ...change };
    assert.equal(tunnelWorks(report), false);
    assert.match(linesOf(report), line);
  });
}

test("tryAll: tries all, some at once, and reports the failures; a bug is not a failed try", async () => {
  let [now, most] = [0, 0];
  const run = async (): Promise<void> => {
    now += 1;
    most = Math.max(most, now);
    await sleep(0);
    now -= 1;
  };
  const refuse = async (): Promise<void> => {
    throw new InsideError("failed", "connection refused");
  };
  const tries = Array.from({ length: 100 }, (_, at) => ({ name: `try ${at}`, run: at === 7 ? refuse : run }));
  assert.deepEqual(await tryAll(tries), { tried: 100, answered: 99, failures: ["try 7: connection refused"] });
  assert.ok(most > 1 && most <= 32, `${most} at once`);
  const bug = new Error("a bug");
  await assert.rejects(tryAll([{ name: "one", run: () => Promise.reject(bug) }]), bug);
});
