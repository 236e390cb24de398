import assert from "node:assert/strict";
import { test } from "node:test";
import type { NicStatus } from "#kube/nic";
import type { ClaimView } from "./plan-claim.ts";
import { type PassStep, type PassView, planPass } from "./plan-pass.ts";

const NOW = Date.UTC(2026, 0, 1);
const NEW: NicStatus = { name: "eth0", state: "InProgress" };
const MADE: NicStatus = { ...NEW, portID: "p0", mac: "fa:16:3e:00:00:01", createdByController: true, host: "" };
const LEAVING: NicStatus = { ...MADE, name: "eth1", portID: "p1" };
const LATER = new Date(NOW + 30_000).toISOString();

const CLAIM: ClaimView = {
  wishes: [{ name: "eth0" }],
  nics: [NEW],
  leaving: [],
  isOriginal: true,
  phase: "Creating",
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
  isLookedUp: true,
  now: NOW,
};
const VIEW: PassView = {
  surplus: [],
  label: undefined,
  refusal: undefined,
  follow: undefined,
  claim: CLAIM,
  isAllowed: true,
  isGated: false,
};

/** A step in words: what it does, and the data that it has. */
function text(step: PassStep): string {
  const { do: what, ...data } = step;
  if (step.do === "ask") return `ask ${step.step.do}`;
  if (step.do === "store") return step.mayHavePorts ? "store" : "store without ports";
  if (step.do === "wait") return step.untilMs === undefined ? "wait" : `wait ${step.untilMs - NOW}`;
  return [what, ...Object.values(data).map((value) => JSON.stringify(value))].join(" ");
}

const ROWS: readonly (readonly [claim: string, change: Partial<PassView>, of: Partial<ClaimView>, steps: string])[] = [
  [
    "while one of several ports is missing, the gate stays",
    { isGated: true },
    { wishes: [{ name: "eth0" }, { name: "eth1" }], nics: [MADE, { ...NEW, name: "eth1", nextRetryAt: LATER }] },
    "observe; store; publish; schedule-polls; wait 30000",
  ],
  ["a NIC without a port gets one, and the port is stored", {}, {}, "observe; ask make; store"],
  [
    "the first request for ports takes the claim's place in the quota before anything is awaited",
    { isAllowed: false },
    { isLookedUp: false },
    "observe; reserve; ask look-up; store",
  ],
  [
    "a claim that the quota refuses takes no place and shows why",
    { isAllowed: false },
    { quota: "too many" },
    "observe; ask refuse; store without ports",
  ],
  [
    "a refused claim waits for its pause, and its polls are planned as well",
    { isAllowed: false },
    { quota: "too many", nics: [{ ...NEW, nextRetryAt: LATER }] },
    "observe; store without ports; publish; schedule-polls; wait 30000",
  ],
  ["a claim at rest is stored and shown", {}, { nics: [MADE] }, "observe; store; publish; schedule-polls; wait"],
  [
    "a pod that waits for its ports may be scheduled once all are there",
    { isGated: true },
    { nics: [MADE] },
    "observe; store; publish; remove-gate; schedule-polls; wait",
  ],
  [
    "while a port is missing, the gate stays",
    { isGated: true },
    { nics: [{ ...NEW, nextRetryAt: LATER }] },
    "observe; store; publish; schedule-polls; wait 30000",
  ],
  [
    "a NIC that the node has unplugged gives its port back, for which others may wait",
    {},
    { nics: [MADE], leaving: [{ nic: LEAVING, isUnplugged: true }] },
    "observe; ask give-up; store; wake-waiting",
  ],
  ["the node is known, so the port is bound", {}, { nics: [MADE], host: "node-1" }, "observe; ask bind; store"],
  ["the pod is gone", {}, { pod: undefined, podIsGone: true }, "observe; release"],
  ["the cache does not have the pod", {}, { pod: undefined }, "observe; look-for-pod"],
  ["a second port is deleted before anything else", { surplus: ["p9"] }, {}, 'delete-surplus ["p9"]'],
  [
    "the claim itself comes first: its label, and its NICs, which decide about the ports",
    { label: "node-1", refusal: "eth2: quota", follow: [{ name: "eth0" }] },
    { podIsGone: true, pod: undefined },
    'label "node-1"; refuse-change "eth2: quota"; follow [{"name":"eth0"}]',
  ],
  ["a refusal that has ended is news too", { refusal: "" }, {}, 'refuse-change ""'],
];

for (const [claim, change, of, steps] of ROWS) {
  test(`planPass: ${claim}`, () => {
    const view: PassView = { ...VIEW, ...change, claim: { ...CLAIM, ...of } };
    assert.equal(planPass(view).map(text).join("; "), steps);
  });
}
