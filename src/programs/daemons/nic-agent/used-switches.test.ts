import assert from "node:assert/strict";
import { test } from "node:test";
import type { NicPlan } from "#features/nic-cni";
import type { NicClaim, NicStatus } from "#kube/nic";
import { usedSwitches } from "./used-switches.ts";

const OWN = "/run/openvswitch/db.sock";
const plan = (place: object) => ({ nics: [{ place } as unknown as NicPlan] });
const claim = (nic: Partial<NicStatus>, metadata: object = {}): NicClaim => ({
  metadata: { name: "u", namespace: "n", uid: "u", resourceVersion: "1", ...metadata },
  spec: { podName: "p", podUID: "u", vpc: "v", provider: "n", nics: [{ name: "eth0" }] },
  status: { nics: [{ name: "eth0", state: "InProgress", ...nic }] },
});

test("usedSwitches: a node needs a switch for NICs that it has, and for those that are bound to it by Open vSwitch, and else none", () => {
  const rows: readonly (readonly [
    string,
    Parameters<typeof usedSwitches>[0],
    readonly NicClaim[],
    readonly string[],
  ])[] = [
    ["no pod has NICs", [], [], []],
    ["NICs of Neutron", [plan({ kind: "neutron", ovsdb: "/other.sock" })], [], ["/other.sock"]],
    ["NICs of Alcor", [plan({ kind: "alcor" })], [claim({ vifType: "alcor", vethName: "v" })], []],
    ["a port that is not bound yet", [], [claim({})], []],
    ["a port that cannot be bound", [], [claim({ vifType: "binding_failed" })], []],
    ["a port to be plugged", [], [claim({ vifType: "ovs" })], [OWN]],
    ["a claim at its end", [], [claim({ vifType: "ovs" }, { deletionTimestamp: "2026-01-01T00:00:00Z" })], []],
  ];
  for (const [what, plans, claims, wanted] of rows)
    assert.deepEqual([...usedSwitches(plans, claims, OWN)], wanted, what);
});
