import assert from "node:assert/strict";
import { test } from "node:test";
import { LAB_NAME_PATTERN } from "#lab/topology";
import { guestIdentity, hostIdentity, isOwn, newRun, ownLabels, ownSelector } from "./identity.ts";
import { isForLab, nodeTaints, podPlacement } from "./placement.ts";

const LONGEST = "a123456789-bcdef";

test("guestIdentity: names contain the lab's name and its run, and are valid names and label values", () => {
  assert.match(LONGEST, LAB_NAME_PATTERN);
  const { prefix } = guestIdentity(LONGEST, newRun());
  assert.match(prefix, /^isthmus-a123456789-bcdef-[a-z0-9]{6}-$/);
  // The longest name of a lab: the BlockRequest of its last node.
  assert.ok(`${prefix}node200`.length <= 63);
  assert.ok(`req-${prefix}services-${prefix}node200`.length <= 253);
  assert.equal(hostIdentity("lab", newRun()).prefix, "");
});

test("newRun: differs from run to run, and has only letters that names may have", () => {
  const runs = new Set(Array.from({ length: 1000 }, () => newRun()));
  assert.ok(runs.size > 990, `${runs.size} of 1000 differ`);
  for (const run of runs) assert.match(run, /^[a-z0-9]{6}$/);
});

test("isOwn: false for an object of another run of the same lab", () => {
  const identity = guestIdentity("lab", "aaaaaa");
  const of = (labels: Readonly<Record<string, string>>) => ({ metadata: { labels } });
  assert.equal(isOwn(identity, of(ownLabels(identity))), true);
  assert.equal(isOwn(identity, of(ownLabels(guestIdentity("lab", "bbbbbb")))), false);
  assert.equal(isOwn(identity, of(ownLabels(guestIdentity("other", "aaaaaa")))), false);
  assert.equal(isOwn(identity, { metadata: {} }), false);
  assert.equal(ownSelector(identity), "lab.isthmus.dev/lab=lab,lab.isthmus.dev/run=aaaaaa");
});

test("nodeTaints, podPlacement: a guest's nodes refuse pods of others and accept its own; on its own server a lab has no taints", () => {
  const guest = guestIdentity("lab", "aaaaaa");
  assert.deepEqual(nodeTaints(guest), [{ key: "lab.isthmus.dev/lab", value: "lab", effect: "NoSchedule" }]);
  const placement = podPlacement(guest, { app: "web" });
  assert.deepEqual(placement["nodeSelector"], { "lab.isthmus.dev/run": "aaaaaa" });
  const own = hostIdentity("lab", "aaaaaa");
  assert.deepEqual([nodeTaints(own), podPlacement(own, {})], [[], {}]);
});

test("isForLab: false for a pod that tolerates every taint without naming the lab's", () => {
  const guest = guestIdentity("lab", "aaaaaa");
  const pod = (tolerations: object[]) => ({ spec: { containers: [], tolerations } });
  assert.equal(isForLab(guest, pod([{ operator: "Exists" }])), false);
  assert.equal(isForLab(guest, { spec: { containers: [] } }), false);
  assert.equal(isForLab(guest, pod([{ key: "lab.isthmus.dev/lab", operator: "Exists" }])), true);
  assert.equal(isForLab(guest, { spec: { containers: [], ...podPlacement(guest, {}) } }), true);
  assert.equal(isForLab(hostIdentity("lab", "aaaaaa"), { spec: { containers: [] } }), true);
});
