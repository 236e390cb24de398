import assert from "node:assert/strict";
import { test } from "node:test";
import type { NamedNic, NicClaim, NicStatus } from "#kube/nic";
import type { PodView, PodWish } from "../world.ts";
import { type FollowRules, followed, mayFollow, planFollow } from "./follow.ts";
import { type ClaimRecord, recordOf } from "./record.ts";

const ETH0: NamedNic = { name: "eth0" };
const ETH1: NamedNic = { name: "eth1" };
const ETH2: NamedNic = { name: "eth2" };

function recordWith(nics: readonly NamedNic[], shown: readonly NicStatus[] = [], metadata = {}): ClaimRecord {
  const claim: NicClaim = {
    metadata: { name: "u", namespace: "default", uid: "c", resourceVersion: "1", ...metadata },
    spec: { podName: "p", podUID: "u", vpc: "v", provider: "n", nics: [...nics] },
    status: { nics: [...shown] },
  };
  return recordOf(claim, "default", true);
}

const wanted = (nics: readonly NamedNic[], vpc = "v"): PodWish => ({ kind: "wanted", vpc, nics });
const ALLOWED: Omit<FollowRules, "wish"> = { change: () => [], refused: () => undefined, quota: () => undefined };

const ROWS: readonly (readonly [claim: string, rules: Partial<FollowRules> & { wish: PodWish }, next: string])[] = [
  ["the same NICs are no change", { wish: wanted([ETH0, ETH1]) }, "-"],
  ["a NIC is added", { wish: wanted([ETH0, ETH1, ETH2]) }, "eth0,eth1,eth2"],
  ["a NIC is taken away", { wish: wanted([ETH0]) }, "eth0"],
  ["another VPC is refused", { wish: wanted([ETH0], "w") }, "- vpc: may not change"],
  ["no wish any more changes nothing", { wish: { kind: "none" } }, "-"],
  [
    "a faulty wish is refused with its faults",
    { wish: { kind: "faulty", faults: [{ field: "nics[0].ip", message: "Invalid" }] } },
    "- nics[0].ip: Invalid",
  ],
  ["a rule of changes refuses all", { wish: wanted([ETH0]), change: () => ["nics: immutable"] }, "- nics: immutable"],
  [
    "what the quota forbids is not added, and what is taken away is taken away all the same",
    { wish: wanted([ETH0, ETH2]), quota: (ports) => `${ports} ports are too many` },
    "eth0 2 ports are too many",
  ],
  [
    "what the policy forbids is not added; the quota is not asked",
    { wish: wanted([ETH0, ETH1, ETH2]), refused: () => "not here", quota: () => assert.fail("asked") },
    "- not here",
  ],
  ["the quota is asked only for what is added", { wish: wanted([ETH0]), quota: () => assert.fail("asked") }, "eth0"],
];

for (const [claim, rules, expected] of ROWS) {
  test(`planFollow: ${claim}`, () => {
    const { next, refusal } = planFollow(recordWith([ETH0, ETH1]), { ...ALLOWED, ...rules });
    assert.equal(`${next?.map(({ name }) => name).join() ?? "-"} ${refusal}`.trim(), expected);
  });
}

test("mayFollow: a claim follows a pod that goes on, and asks once for each version of it that is behind", () => {
  const pod = (metadata = {}, phase = "Running"): PodView => ({
    metadata: { name: "p", namespace: "default", uid: "u", resourceVersion: "7", ...metadata },
    spec: {},
    status: { phase },
  });
  const record = recordWith([ETH0]);
  assert.deepEqual(
    [
      mayFollow(record, pod()),
      mayFollow(record, undefined),
      mayFollow(record, pod({ deletionTimestamp: "t" })),
      mayFollow(record, pod({}, "Succeeded")),
      mayFollow(recordWith([ETH0], [], { deletionTimestamp: "t" }), pod()),
      mayFollow({ ...record, staleAs: "7" }, pod()),
      mayFollow({ ...record, staleAs: "6" }, pod()),
    ],
    [true, false, false, false, false, false, true],
  );
});

test("followed: a NIC that is gone, or has other groups, ends its pause; one that is added is looked up", () => {
  const failed = (name: string): NicStatus => ({ name, state: "Failed", reason: "IpInUse", nextRetryAt: "t" });
  const before = { ...recordWith([ETH0, ETH1, ETH2], ["eth0", "eth1", "eth2"].map(failed)), isLookedUp: true };
  const next = [ETH0, { ...ETH1, securityGroups: ["web"] }];
  const { status, isLookedUp } = followed(before, before, next);
  assert.deepEqual(status?.nics, [
    failed("eth0"),
    { name: "eth1", state: "Failed", reason: "IpInUse" },
    { name: "eth2", state: "InProgress" },
  ]);
  assert.equal(isLookedUp, true);
  assert.equal(followed(before, before, [...before.claim.spec.nics, { name: "eth3" }]).isLookedUp, false);
});
