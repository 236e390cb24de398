import assert from "node:assert/strict";
import { test } from "node:test";
import { type EgressReport, egressLines, egressWorks } from "./egress-report.ts";

const TRY = { from: "client1", to: "site both 198.18.1.9", wanted: "a router of both", got: "10.103.0.0", ok: true };
const LOSS = { router: "pair-1", streams: 50, own: 20, othersEnded: 0, connects: 900, failed: [] };
const GOOD: EgressReport = {
  driver: "vxlan",
  routers: [{ name: "both-1", node: "node1", addresses: ["10.103.0.0", "fd10:103::"] }],
  tries: [TRY, { ...TRY, from: "plain1", wanted: "no answer", got: "no answer" }],
  inCluster: [TRY],
  live: { egress: "both", destination: "198.18.3.0/24", seconds: 0.12, streamRanOn: true },
  kill: { ...LOSS, ownEnded: 20, routersOfOne: 2, failoverSeconds: 0.21 },
  drain: { ...LOSS, ownEnded: 0, stillThrough: 7, failedAtEnd: 1, seconds: 4.1 },
  scale: {
    ...{ streams: 100, own: 33, ownEnded: 33, othersEnded: 0, endedEarly: 0, connects: 3000, failed: [] },
    ...{ routersOfNew: 3, failedAtEnd: 2, upSeconds: 1.24, downSeconds: 5.12, left: [] },
  },
  seconds: 20,
};

const BAD: readonly (readonly [string, Partial<EgressReport>, RegExp])[] = [
  ["nothing was tried", { tries: [] }, /^FAIL egress by vxlan/],
  [
    "a source was another one",
    { tries: [{ ...TRY, got: "10.101.0.3", ok: false }] },
    /^FAIL egress .* in 0 of 1 tries\n.*\n {7}client1 -> site both 198\.18\.1\.9: wanted a router of both, got 10\.101\.0\.3$/m,
  ],
  [
    "a router had traffic of the cluster",
    { inCluster: [{ ...TRY, ok: false }] },
    /^FAIL traffic in the cluster passed no router: 0 of 1/m,
  ],
  ["a change took too long", { live: { ...GOOD.live, seconds: 1.2 } }, /^FAIL 198\.18\.3\.0\/24, .* after 1\.20 s/m],
  ["a change never worked", { live: { ...GOOD.live, seconds: null } }, /^FAIL 198\.18\.3\.0\/24, .* never worked/m],
  ["a change ended a stream", { live: { ...GOOD.live, streamRanOn: false } }, /^FAIL 198.*destination ended$/m],
  ["a failover took too long", { kill: { ...GOOD.kill, failoverSeconds: 1.1 } }, /^FAIL router .* after 1\.10 s/m],
  ["another router's stream ended", { kill: { ...GOOD.kill, othersEnded: 1 } }, /^FAIL router .* and 1 others$/m],
  ["the router had no stream", { kill: { ...GOOD.kill, own: 0 } }, /^FAIL router pair-1 lost/m],
  ["a drain ended a stream", { drain: { ...GOOD.drain, ownEnded: 1 } }, /^FAIL router pair-1 was drained/m],
  [
    "a drain cost a connect",
    { drain: { ...GOOD.drain, failed: ["started 4.1 s after the router went"] } },
    /^FAIL router pair-1 was drained in 4\.1 s: 1 of 900 .*\n.*\n {7}started 4\.1 s after the router went$/m,
  ],
  [
    "more connects failed at its end than were under way",
    { drain: { ...GOOD.drain, failedAtEnd: 4 } },
    /^FAIL .* drained.*\n.* and 4 failed when it ended$/m,
  ],
  ["a stream ended before its router", { scale: { ...GOOD.scale, endedEarly: 1 } }, /^FAIL Egress pair was scaled/m],
  ["not all routers were used", { scale: { ...GOOD.scale, routersOfNew: 2 } }, /^FAIL .*\n.*through 2 of 3 routers/m],
  [
    "something of a router is left",
    { scale: { ...GOOD.scale, left: ["node1: route to 10.103.0.2/32 in 116"] } },
    /^FAIL Egress pair was scaled .*\n.*\n {7}node1: route to 10\.103\.0\.2\/32 in 116$/m,
  ],
  ["nobody connected in a drain", { drain: { ...GOOD.drain, connects: 0 } }, /^FAIL router pair-1 was drained/m],
];

function linesOf(report: EgressReport): string {
  return egressLines(report, { mark: (good) => (good ? "ok  " : "FAIL"), cut: (lines) => lines }).join("\n");
}

test("egress report: each pod's sources, and what routers that went cost", () => {
  assert.equal(egressWorks(GOOD), true);
  assert.equal(
    linesOf(GOOD),
    [
      "ok   egress by vxlan, routers both-1 (10.103.0.0 fd10:103::): the outside saw the expected source in 2 of 2 tries",
      "       client1: site both 198.18.1.9 as 10.103.0.0",
      "       plain1: reaches none",
      "ok   traffic in the cluster passed no router: 1 of 1 tries showed the client's own address",
      "ok   198.18.3.0/24, added to the live Egress both, worked after 0.12 s; a stream to another destination ran on",
      "ok   router pair-1 lost its power: new connects worked after 0.21 s; 0 of 900 connects failed; of 50 streams 20 were its own, of which 20 ended, and 0 others",
      "ok   router pair-1 was drained in 4.1 s: 0 of 900 connects failed; of 50 streams 20 were its own, of which 0 ended, and 0 others",
      "       7 later connects were through it, by the source port of an earlier one, and 1 failed when it ended",
      "ok   Egress pair was scaled to three routers in 1.2 s and back to one in 5.1 s: 0 of 3000 connects failed; of 100 streams 33 were its own, of which 33 ended, and 0 others",
      "       new connects were through 3 of 3 routers, 0 streams ended before their router, and 2 connects failed when routers ended",
    ].join("\n"),
  );
});

for (const [what, change, line] of BAD) {
  test(`egress report: not all is well if ${what}`, () => {
    const report = { ...GOOD, ...change };
    assert.equal(egressWorks(report), false);
    assert.match(linesOf(report), line);
  });
}
