import assert from "node:assert/strict";
import { test } from "node:test";
import type { NicClaim, NicStatus } from "#kube/nic";
import { afterPoll, planPolls } from "./pace.ts";
import { type ClaimRecord, recordOf } from "./record.ts";

const NOW = 1_000_000;
const NEW: NicStatus = { name: "eth0", state: "InProgress" };
const MADE: NicStatus = { ...NEW, portID: "p0", mac: "fa:16:3e:00:00:01", host: "" };
const BOUND: NicStatus = { ...MADE, host: "node-1", vifType: "ovs" };
const READY: NicStatus = { ...BOUND, state: "Ready" };

function recordWith(nic: NicStatus, { isPlugged = false, ...change }: Partial<ClaimRecord> & { isPlugged?: boolean }) {
  const claim: NicClaim = {
    metadata: { name: "u", namespace: "default", uid: "c", resourceVersion: "1" },
    spec: { podName: "p", podUID: "u", vpc: "v", provider: "n", nics: [{ name: "eth0" }] },
    status: { nics: [nic], ...(isPlugged ? { conditions: [{ type: "Plugged", status: "True" }] } : {}) },
  };
  return { ...recordOf(claim, "default", true), touchedAt: 0, ...change };
}

const ROWS: readonly (readonly [
  claim: string,
  nic: NicStatus,
  change: Parameters<typeof recordWith>[1],
  next: { readonly inMs: number | undefined; readonly everyMs?: number },
])[] = [
  ["without a port nothing is polled", NEW, { pollAt: NOW + 5 }, { inMs: undefined }],
  ["nor once no request can make one any more", NEW, { doubtUntil: NOW, pollAt: NOW + 5 }, { inMs: undefined }],
  ["while a request may still make a port, each 3 s", NEW, { doubtUntil: NOW + 1 }, { inMs: 3000, everyMs: 3000 }],
  ["a port that waits to be plugged, each 5 s", BOUND, {}, { inMs: 5000, everyMs: 5000 }],
  ["a port that is plugged and not active, at once", BOUND, { isPlugged: true }, { inMs: 0, everyMs: 250 }],
  ["a port that is active, each minute", READY, { isPlugged: true }, { inMs: 60_000, everyMs: 60_000 }],
  [
    "a port that is down, when that matters",
    READY,
    { observation: { ports: new Map(), missing: new Set(), downSince: new Map([["p0", 1]]) } },
    { inMs: 31_000, everyMs: 31_000 },
  ],
  [
    "ports of a leader before, at once: what it stored may be old",
    READY,
    { touchedAt: Number.NEGATIVE_INFINITY },
    { inMs: 0, everyMs: 60_000 },
  ],
  ["a pace that is the same goes on", READY, { pollAt: NOW + 7, pollEveryMs: 60_000 }, { inMs: 7, everyMs: 60_000 }],
  [
    "a quick pace that has slowed down goes on",
    BOUND,
    { isPlugged: true, awaited: 1, pollAt: NOW + 7, pollEveryMs: 2000 },
    { inMs: 7, everyMs: 2000 },
  ],
  [
    "with a NIC that was plugged just now it begins anew",
    BOUND,
    { isPlugged: true, awaited: 0, pollAt: NOW + 7, pollEveryMs: 2000 },
    { inMs: 0, everyMs: 250 },
  ],
];

for (const [claim, nic, change, { inMs, everyMs }] of ROWS) {
  test(`planPolls: ${claim}`, () => {
    const record = recordWith(nic, change);
    const { pollAt, pollEveryMs } = { ...record, ...planPolls(record, NOW) };
    assert.equal(pollAt, inMs === undefined ? undefined : NOW + inMs);
    if (everyMs !== undefined) assert.equal(pollEveryMs, everyMs);
  });
}

test("afterPoll: the pause of a quick pace grows by half, to 2 s, once its first seconds are over; others stay", () => {
  let record = recordWith(BOUND, { pollEveryMs: 250, quickUntil: NOW });
  const pauses = [NOW - 1, NOW, NOW, NOW, NOW, NOW, NOW].map((now) => {
    record = { ...record, ...afterPoll(record, now) };
    assert.equal(record.pollAt, now + record.pollEveryMs);
    return record.pollEveryMs;
  });
  assert.deepEqual(pauses, [250, 375, 562.5, 843.75, 1265.625, 1898.4375, 2000]);
  assert.equal(afterPoll(recordWith(READY, { pollEveryMs: 60_000 }), NOW).pollEveryMs, 60_000);
});
