import assert from "node:assert/strict";
import { test } from "node:test";
import type { NamedNic, NicStatus } from "#kube/nic";
import { CLAIM_ROWS, type ClaimStep, type ClaimView, phaseOf, planClaim } from "./plan-claim.ts";

const NOW = Date.UTC(2026, 0, 1);
const ETH0: NamedNic = { name: "eth0" };
const WEB: NamedNic = { name: "eth0", securityGroups: ["web"] };
const ETH1: NamedNic = { name: "eth1" };
const MINE: NamedNic = { name: "eth1", portID: "a2815656-76f7-46d4-9d11-057063db1a14" };
const NEW: NicStatus = { name: "eth0", state: "InProgress" };
const MADE: NicStatus = { ...NEW, portID: "p0", mac: "fa:16:3e:00:00:01", createdByController: true, host: "" };
const BOUND: NicStatus = { ...MADE, host: "node-1", vifType: "ovs" };
const READY: NicStatus = { ...BOUND, state: "Ready" };
const later = (ms: number, nic: NicStatus = NEW): NicStatus => ({
  ...nic,
  state: "Failed",
  nextRetryAt: new Date(NOW + ms).toISOString(),
});
const WAIT: ClaimStep = { do: "wait", untilMs: undefined };
const ON_NODE = { pod: { isOver: false, overForMs: 0, nodeName: "node-1" }, host: "node-1" };
const GONE = { pod: undefined, podIsGone: true };
const over = (overForMs: number) => ({ pod: { isOver: true, overForMs, nodeName: "node-1" }, host: "node-1" });
const OVER = { ...over(0), isPlugged: true };

const ROWS: readonly (readonly [claim: string, change: Partial<ClaimView>, step: ClaimStep])[] = [
  ["a new claim looks for ports of an earlier process", {}, { do: "look-up" }],
  [
    "a NIC that was refused what its own port may have is looked up before its pause is over",
    { nics: [later(30_000)], mayHavePort: new Set(["eth0"]) },
    { do: "look-up" },
  ],
  ["after that look-up it waits for its pause", { nics: [later(30_000)] }, { do: "wait", untilMs: NOW + 30_000 }],
  [
    "then it makes its ports, before the pod has a node",
    { isLookedUp: true },
    { do: "make", create: [ETH0], take: [] },
  ],
  [
    "ports of the user are taken, which needs no look-up",
    { wishes: [{ ...MINE, name: "eth0" }] },
    { do: "make", create: [], take: [{ ...MINE, name: "eth0" }] },
  ],
  [
    "a user's port whose device was saved and not changed yet is taken",
    { wishes: [{ ...MINE, name: "eth0" }], nics: [{ ...NEW, portID: MINE.portID ?? "", createdByController: false }] },
    { do: "make", create: [], take: [{ ...MINE, name: "eth0" }] },
  ],
  [
    "of several NICs each gets its port in its way",
    { wishes: [ETH0, MINE], nics: [NEW, { name: "eth1", state: "InProgress" }], isLookedUp: true },
    { do: "make", create: [ETH0], take: [MINE] },
  ],
  [
    "a pause that a clock which was wrong by a year has left is over",
    { nics: [later(365 * 86_400_000)], isLookedUp: true },
    { do: "make", create: [ETH0], take: [] },
  ],
  ["a pod without a node waits for it", { nics: [MADE] }, WAIT],
  ["a port is bound to the pod's node", { nics: [MADE], ...ON_NODE }, { do: "bind", nics: [ETH0], host: "node-1" }],
  [
    "a port whose device was lost loses its binding",
    { nics: [READY], ...ON_NODE, lostAt: "2026-01-01T00:00:00Z" },
    { do: "unbind", nics: [ETH0] },
  ],
  [
    "then it is bound again",
    { nics: [{ ...BOUND, host: "", vifType: "unbound" }], ...ON_NODE, lostAt: "2026-01-01T00:00:00Z" },
    { do: "bind", nics: [ETH0], host: "node-1" },
  ],
  [
    "a port that was bound since its device was lost stays",
    { nics: [{ ...BOUND, lostAt: "2026-01-01T00:00:00Z" }], ...ON_NODE, lostAt: "2026-01-01T00:00:00Z" },
    WAIT,
  ],
  [
    "a failed binding is tried again",
    { nics: [{ ...BOUND, vifType: "binding_failed" }], ...ON_NODE },
    { do: "bind", nics: [ETH0], host: "node-1" },
  ],
  [
    "a port of another host is bound",
    { nics: [{ ...BOUND, host: "x" }], ...ON_NODE },
    { do: "bind", nics: [ETH0], host: "node-1" },
  ],
  ["what is bound waits for the node's agent", { nics: [BOUND], ...ON_NODE }, WAIT],
  ["what is ready waits", { nics: [READY], ...ON_NODE }, WAIT],
  ["a port that is lost is not bound", { nics: [{ ...MADE, reason: "PortLost" }], ...ON_NODE }, WAIT],
  [
    "a NIC that has failed waits for its time",
    { nics: [later(5000)], isLookedUp: true },
    { do: "wait", untilMs: NOW + 5000 },
  ],
  [
    "a NIC whose time has come is tried",
    { nics: [later(0)], isLookedUp: true },
    { do: "make", create: [ETH0], take: [] },
  ],
  [
    "other NICs are bound while one waits",
    { wishes: [ETH0, ETH1], nics: [MADE, later(9000, { ...NEW, name: "eth1" })], ...ON_NODE },
    { do: "bind", nics: [ETH0], host: "node-1" },
  ],
  [
    "and the one that waits is made at its time",
    { wishes: [ETH0, ETH1], nics: [BOUND, later(9000, { ...NEW, name: "eth1" })], ...ON_NODE },
    { do: "wait", untilMs: NOW + 9000 },
  ],
  [
    "a NIC that is wanted no more waits until its node has unplugged it",
    { ...ON_NODE, nics: [READY], leaving: [{ nic: { ...READY, name: "eth1" }, isUnplugged: false }] },
    { do: "wait", untilMs: NOW + 60_000 },
  ],
  [
    "unplugged it loses its port",
    { ...ON_NODE, nics: [READY], leaving: [{ nic: { ...READY, name: "eth1" }, isUnplugged: true }] },
    { do: "give-up", names: ["eth1"] },
  ],
  [
    "also while others have no port yet, which may wait for its address",
    { leaving: [{ nic: { ...READY, name: "eth1" }, isUnplugged: true }] },
    { do: "give-up", names: ["eth1"] },
  ],
  [
    "after a failure it loses its port at the time of the next attempt",
    { ...ON_NODE, nics: [READY], leaving: [{ nic: later(4000, { ...NEW, name: "eth1" }), isUnplugged: true }] },
    { do: "wait", untilMs: NOW + 4000 },
  ],
  [
    "with the pod all is released together",
    { ...GONE, leaving: [{ nic: READY, isUnplugged: false }] },
    { do: "release" },
  ],
  [
    "a port gets the groups that its NIC names by now",
    { ...ON_NODE, wishes: [WEB], nics: [{ ...READY, securityGroups: ["db"] }] },
    { do: "regroup", nics: [WEB] },
  ],
  [
    "a port whose groups nobody has recorded has those of its NIC if the claim never changed",
    { ...ON_NODE, wishes: [WEB], nics: [READY] },
    WAIT,
  ],
  [
    "and gets them if it did",
    { ...ON_NODE, wishes: [WEB], nics: [READY], isOriginal: false },
    { do: "regroup", nics: [WEB] },
  ],
  [
    "the groups of a user's port are the user's",
    { ...ON_NODE, nics: [{ ...READY, createdByController: false }], isOriginal: false },
    WAIT,
  ],
  ["a quota that is used up refuses", { quota: "too many" }, { do: "refuse", why: "too many" }],
  [
    "once, and then at the time of the next attempt",
    { quota: "too many", nics: [later(10_000)] },
    { do: "wait", untilMs: NOW + 10_000 },
  ],
  ["a pod that is gone has its ports released", { ...GONE, nics: [READY] }, { do: "release" }],
  ["also before anything was made", GONE, { do: "release" }],
  ["also above a quota", { ...GONE, quota: "too many" }, { do: "release" }],
  ["a pod that only the cache lacks is looked for", { pod: undefined, nics: [READY] }, { do: "look-for-pod" }],
  [
    "also if its claim is deleted, or its node has unplugged it",
    { pod: undefined, nics: [READY], isDeleted: true, isUnplugged: true },
    { do: "look-for-pod" },
  ],
  [
    "a pod that the cache has is there, whatever the API server has told",
    { ...ON_NODE, podIsGone: true, nics: [READY] },
    WAIT,
  ],
  [
    "a claim that is deleted under a running pod keeps its ports",
    { isDeleted: true, ...ON_NODE, nics: [READY] },
    { do: "wait", untilMs: NOW + 60_000 },
  ],
  ["under a pod without a node it is released", { isDeleted: true, nics: [MADE] }, { do: "release" }],
  [
    "a pod that has ended and is plugged keeps its ports",
    { ...OVER, nics: [READY] },
    { do: "wait", untilMs: NOW + 60_000 },
  ],
  ["unplugged it loses them", { ...over(0), isUnplugged: true, nics: [READY] }, { do: "release" }],
  [
    "a pod that has ended and was never plugged keeps its ports as long as an ADD may be at work",
    { ...over(30_000), nics: [BOUND] },
    { do: "wait", untilMs: NOW + 60_000 },
  ],
  ["it is looked at again right after that", { ...over(80_000), nics: [BOUND] }, { do: "wait", untilMs: NOW + 10_000 }],
  ["then nobody would tell of it, and it loses them", { ...over(90_000), nics: [BOUND] }, { do: "release" }],
  [
    "one that is plugged keeps them until its node has unplugged it, however long that takes",
    { ...over(9_000_000), isPlugged: true, nics: [READY] },
    { do: "wait", untilMs: NOW + 60_000 },
  ],
  [
    "a claim that is deleted under a pod that has not ended waits for the node, however long that takes",
    { ...ON_NODE, isDeleted: true, nics: [BOUND] },
    { do: "wait", untilMs: NOW + 60_000 },
  ],
  ["on a node that is lost as well", { ...OVER, nodeIsLost: true, nics: [READY] }, { do: "release" }],
  ["a running pod on a lost node keeps them", { ...ON_NODE, nodeIsLost: true, nics: [READY] }, WAIT],
  [
    "a running pod whose sandbox was unplugged keeps them for the next one",
    { ...ON_NODE, isUnplugged: true, nics: [READY] },
    WAIT,
  ],
];

function view(change: Partial<ClaimView>): ClaimView {
  return {
    wishes: [ETH0],
    nics: [NEW],
    leaving: [],
    isOriginal: true,
    phase: "Pending",
    isDeleted: false,
    pod: { isOver: false, overForMs: 0, nodeName: undefined },
    podIsGone: false,
    host: undefined,
    isPlugged: false,
    isUnplugged: false,
    lostAt: undefined,
    nodeIsLost: false,
    quota: undefined,
    mayHavePort: new Set(),
    isLookedUp: false,
    now: NOW,
    ...change,
  };
}

test("T-8: planClaim: each state has its step", () => {
  for (const [claim, change, step] of ROWS) assert.deepEqual(planClaim(view(change)), step, claim);
});

test("T-8: planClaim: every row of the table is the first one for some state", () => {
  const firsts = ROWS.map(([, change]) => CLAIM_ROWS.find(({ step }) => step(view(change)) !== undefined)?.name);
  assert.deepEqual(new Set(firsts), new Set(CLAIM_ROWS.map(({ name }) => name)));
});

test("T-8: phaseOf: the phase follows from the NICs", () => {
  const phase = (nics: readonly NicStatus[], host?: string, quota?: string, isAllowed = true) =>
    phaseOf({ nics, host, quota }, isAllowed);
  assert.deepEqual(
    [
      phase([NEW], undefined, undefined, false),
      phase([later(1)], undefined, "too many"),
      phase([NEW]),
      phase([MADE]),
      phase([MADE, later(1)]),
      phase([MADE], "node-1"),
      phase([BOUND], "node-1"),
      phase([BOUND], "node-2"),
      phase([READY, BOUND], "node-1"),
      phase([READY, READY], "node-1"),
    ],
    ["Pending", "Pending", "Creating", "Created", "Failed", "Binding", "Plumbable", "Binding", "Plumbable", "Active"],
  );
});
