import assert from "node:assert/strict";
import { test } from "node:test";
import type { NicClaim, NicStatus } from "#kube/nic";
import type { PodView } from "../world.ts";
import { newsOf, observed } from "./observe-claim.ts";
import { type ClaimRecord, nicsOf, recordOf } from "./record.ts";

const NOW = Date.UTC(2026, 0, 1);
const MOMENT = { now: NOW, monotonic: 5000, random: 0.5 };
const LATER = new Date(NOW + 30_000).toISOString();
const MADE: NicStatus = {
  name: "eth0",
  state: "InProgress",
  portID: "p0",
  mac: "m",
  createdByController: true,
  host: "",
};
const NODE = { notReadySince: undefined };

function recordWith(
  nic: NicStatus,
  change: Partial<ClaimRecord> = {},
  status: Partial<NicClaim["status"]> = {},
): ClaimRecord {
  const claim: NicClaim = {
    metadata: { name: "u", namespace: "default", uid: "c", resourceVersion: "1" },
    spec: { podName: "p", podUID: "u", vpc: "v", provider: "n", nics: [{ name: "eth0" }] },
    status: { nics: [nic], ...status },
  };
  return { ...recordOf(claim, "default", true), isLookedUp: true, ...change };
}

function podWith(nodeName: string | undefined, phase = "Pending"): PodView {
  return {
    metadata: { name: "p", namespace: "default", uid: "u", resourceVersion: "1" },
    spec: { nodeName },
    status: { phase },
  };
}

test("observed: with its first host a NIC that has failed is tried at once; with the same host it keeps its pause", () => {
  const failed: NicStatus = { ...MADE, state: "Failed", reason: "BindingFailed", nextRetryAt: LATER };
  const world = { pod: podWith("node-1"), node: NODE };
  const first = observed(recordWith(failed), world, MOMENT);
  assert.deepEqual([first.host, nicsOf(first)[0]?.nextRetryAt], ["node-1", undefined]);
  const same = observed(recordWith(failed, { host: "node-1" }), world, MOMENT);
  assert.equal(nicsOf(same)[0]?.nextRetryAt, LATER);
  // A leader before has had the node already.
  const inherited = observed(recordWith(failed, {}, { nodeName: "node-1" }), world, MOMENT);
  assert.equal(nicsOf(inherited)[0]?.nextRetryAt, LATER);
});

test("observed: a port that somebody has deleted is looked up before it is made again; the poll is taken in once", () => {
  const observation = { ports: new Map(), missing: new Set(["p0"]), downSince: new Map([["p0", NOW]]) };
  const record = recordWith(MADE, { observation, surplus: ["p9"] });
  const after = observed(record, { pod: podWith(undefined), node: undefined }, MOMENT);
  assert.deepEqual(
    [nicsOf(after)[0]?.portID, nicsOf(after)[0]?.reason, after.isLookedUp],
    [undefined, "PortLost", false],
  );
  assert.deepEqual([after.observation.missing.size, after.observation.downSince.size, after.surplus], [0, 1, []]);
  assert.equal(nicsOf(record)[0]?.portID, "p0", "the record before stays as it was");
});

test("observed: the time at which a pod was over first stays", () => {
  const over = { pod: podWith("node-1", "Succeeded"), node: NODE };
  const first = observed(recordWith(MADE), over, MOMENT);
  assert.equal(first.overSince, 5000);
  assert.equal(observed(first, over, { ...MOMENT, monotonic: 9000 }).overSince, 5000);
  assert.equal(observed(recordWith(MADE), { ...over, pod: podWith("node-1") }, MOMENT).overSince, undefined);
});

test("newsOf: a failure is news once for each state and reason, and so is a NIC that became ready", () => {
  const failed: NicStatus = { ...MADE, state: "Failed", reason: "IpInUse" };
  const names = (before: readonly NicStatus[], after: readonly NicStatus[]) => {
    const { ready, failed: bad } = newsOf(before, after);
    return [ready.length, bad.map(({ reason }) => reason).join()];
  };
  assert.deepEqual(names([MADE], [failed]), [0, "IpInUse"]);
  assert.deepEqual(names([failed], [failed]), [0, ""]);
  assert.deepEqual(names([failed], [{ ...failed, reason: "MacInUse" }]), [0, "MacInUse"]);
  assert.deepEqual(names([MADE], [{ ...MADE, reason: "PortDown" }]), [0, "PortDown"]);
  assert.deepEqual(names([MADE], [{ ...MADE, state: "Ready" }]), [1, ""]);
  assert.deepEqual(names([{ ...MADE, state: "Ready" }], [{ ...MADE, state: "Ready" }]), [0, ""]);
});
