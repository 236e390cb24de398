import assert from "node:assert/strict";
import { test } from "node:test";
import type { VpcPort } from "#cloud/vpc";
import type { NicClaim, NicStatus } from "#kube/nic";
import { DEVICE_OWNER, describeOwner, portName } from "./identity.ts";
import { planGiveUp, planRelease } from "./plan-release.ts";
import { type ClaimRecord, recordOf } from "./record.ts";

const UID = "0a64ecb8-6f54-4d0f-9e42-7c8d7f8c3a10";
const MAC = "fa:16:3e:00:00:01";

function recordWith(...nics: readonly NicStatus[]): ClaimRecord {
  const claim: NicClaim = {
    metadata: { name: UID, namespace: "default", uid: "u", resourceVersion: "1" },
    spec: { podName: "p", podUID: UID, vpc: "v", provider: "n", nics: nics.map(({ name }) => ({ name })) },
    status: { nics: [...nics] },
  };
  return recordOf(claim, "default", true);
}

function port(
  id: string,
  { nic = "eth0", namespace = "default", ...change }: Partial<VpcPort> & { nic?: string; namespace?: string } = {},
): VpcPort {
  return {
    id,
    name: portName(UID, nic),
    networkId: "n",
    projectId: "p",
    status: "DOWN",
    mac: MAC,
    addresses: [],
    deviceId: UID,
    deviceOwner: DEVICE_OWNER,
    description: describeOwner({ cluster: "c", namespace, pod: "p", nic }),
    createdAt: "2026-01-01T00:00:00Z",
    revision: 1,
    securityGroups: [],
    binding: { host: "", vifType: "unbound" },
    ...change,
  };
}

const OWN: NicStatus = { name: "eth0", state: "Ready", portID: "own", mac: MAC, createdByController: true };
const LENT: NicStatus = { name: "eth1", state: "Ready", portID: "lent", mac: MAC, createdByController: false };
const lentPort = (change: Partial<VpcPort> = {}) => port("lent", { name: "mine", description: "", ...change });

const ROWS: readonly (readonly [
  claim: string,
  nics: readonly NicStatus[],
  found: readonly VpcPort[],
  expected: string,
  isHeld?: boolean,
])[] = [
  ["a recorded port is deleted, also if the provider does not list it under the pod", [OWN], [], "delete own"],
  ["ports that are not recorded are deleted too, second ones as well", [], [port("a"), port("b")], "delete a,b"],
  ["a user's port is given back and never deleted", [LENT], [lentPort()], "back lent"],
  [
    "a user's port that was made with the pod's identity is given back all the same",
    [{ ...LENT, name: "eth0" }],
    [port("lent")],
    "back lent",
  ],
  ["a user's port that has another device by now is somebody else's", [LENT], [lentPort({ deviceId: "other" })], ""],
  ["a user's port that another claim has stays with it", [LENT], [lentPort()], "", true],
  [
    "a port that was made for a pod of another namespace stays, recorded or not",
    [OWN],
    [port("own", { namespace: "other" }), port("b", { namespace: "other" })],
    "foreign own",
  ],
];

for (const [claim, nics, found, expected, isHeld = false] of ROWS) {
  test(`planRelease: ${claim}`, () => {
    const record = recordWith(...nics);
    const recorded = found.filter(({ id }) =>
      nics.some((nic) => nic.portID === id && nic.createdByController === true),
    );
    const { deletes, lent, foreign } = planRelease(record, { found, recorded, isHeld: () => isHeld });
    const parts = { delete: [...deletes], back: lent.map(({ portID }) => portID), foreign };
    const text = Object.entries(parts).flatMap(([what, ids]) => (ids.length === 0 ? [] : [`${what} ${ids.join(",")}`]));
    assert.equal(text.join("; "), expected);
  });
}

test("planGiveUp: of the named NICs alone, with their second ports; a user's port is given back", () => {
  const record = recordWith(OWN, LENT, { ...OWN, name: "eth2", portID: "stays" });
  const found = [
    port("own"),
    port("second", { createdAt: "2026-01-02T00:00:00Z" }),
    port("stays", { nic: "eth2" }),
    lentPort(),
  ];
  const plans = planGiveUp(record, ["eth0", "eth1", "gone"], found);
  assert.deepEqual(
    plans.map(({ nic, deletes, isLent }) => [nic.name, [...deletes], isLent]),
    [
      ["eth0", ["own", "second"], false],
      ["eth1", [], true],
    ],
  );
});
