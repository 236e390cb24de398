import assert from "node:assert/strict";
import { test } from "node:test";
import type { NicClaim, NicStatus } from "#kube/nic";
import { changedNics, doubted, nicsOf, touched } from "../plan/record.ts";
import { ClaimLedger } from "./ledger.ts";

const FAILED: NicStatus = { name: "eth0", state: "Failed", reason: "IpInUse", nextRetryAt: "2026-01-01T00:00:00Z" };
const CLAIM: NicClaim = {
  metadata: { name: "u", namespace: "default", uid: "c1", resourceVersion: "1", generation: 1 },
  spec: { podName: "p", podUID: "u", vpc: "v", provider: "n", nics: [{ name: "eth0" }] },
  status: { nics: [FAILED], phase: "Failed" },
};

/** Freezes a value with all that it contains, so that a write into it throws. */
function frozen<T>(value: T): T {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const one of Object.values(value)) frozen(one);
  }
  return value;
}

test("ClaimLedger: a record is replaced, never changed; who holds the former one still has it", () => {
  const ledger = new ClaimLedger({ claim: () => CLAIM });
  const entry = ledger.add(CLAIM, "default");
  const before = frozen(entry.record);
  entry.update((record) => touched(record, 5));
  entry.update((record) => doubted(record, "eth0", 6));
  entry.update((record) => changedNics(record, (nic) => ({ ...nic, state: "Ready" })));
  ledger.current("default", "u");
  assert.deepEqual(
    ledger.tryAgain(() => true),
    ["default/u"],
  );
  assert.deepEqual([before.touchedAt, before.doubtful.size, nicsOf(before)[0]], [Number.NEGATIVE_INFINITY, 0, FAILED]);
  const { touchedAt, doubtful, isCached } = entry.record;
  assert.deepEqual([touchedAt, [...doubtful], isCached], [5, ["eth0"], true]);
  assert.deepEqual(nicsOf(entry.record), [{ name: "eth0", state: "Ready", reason: "IpInUse" }]);
  assert.deepEqual([...ledger.records()], [entry.record]);
});
