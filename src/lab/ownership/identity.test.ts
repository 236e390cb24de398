import assert from "node:assert/strict";
import { test } from "node:test";
import { LAB_NAME_PATTERN } from "#lab/topology";
import { guestIdentity, hostIdentity, isOwn, newRun, ownLabels, ownSelector } from "./identity.ts";
import { isForLab, nodeTaints, podPlacement } from "./placement.ts";

const LONGEST = "a123456789-bcdef";

test("guestIdentity: names have the lab's name and its run, and fit where Kubernetes wants names and label values", () => {
  assert.match(LONGEST, LAB_NAME_PATTERN);
  const { prefix } = guestIdentity(LONGEST, newRun());
  assert.match(prefix, /^isthmus-a123456789-bcdef-[a-z0-9]{6}-$/);
  // The longest name that a lab makes: the request of its last node for blocks of a pool.
  assert.ok(`${prefix}node200`.length <= 63);
  assert.ok(`req-${prefix}services-${prefix}node200`.length <= 253);
  assert.equal(hostIdentity("lab", newRun()).prefix, "");
});

test("newRun: differs from run to run, and has no letter that is none of a name", () => {
  const runs = new Set(Array.from({ length: 1000 }, () => newRun()));
  assert.ok(runs.size > 990, `${runs.size} of 1000 differ`);
  for (const run of runs) assert.match(run, /^[a-z0-9]{6}$/);
});

test("isOwn: an object of another run of the same lab is not this run's", () => {
  const identity = guestIdentity("lab", "aaaaaa");
  const of = (labels: Readonly<Record<string, string>>) => ({ metadata: { labels } });
  assert.equal(isOwn(identity, of(ownLabels(identity))), true);
  assert.equal(isOwn(identity, of(ownLabels(guestIdentity("lab", "bbbbbb")))), false);
  assert.equal(isOwn(identity, of(ownLabels(guestIdentity("other", "aaaaaa")))), false);
  assert.equal(isOwn(identity, { metadata: {} }), false);
  assert.equal(ownSelector(identity), "lab.isthmus.dev/lab=lab,lab.isthmus.dev/run=aaaaaa");
});

test("nodeTaints, podPlacement: a guest's nodes keep others' pods off and take its own; on its own server a lab has neither", () => {
  const guest = guestIdentity("lab", "aaaaaa");
  assert.deepEqual(nodeTaints(guest), [{ key: "lab.isthmus.dev/lab", value: "lab", effect: "NoSchedule" }]);
  const placement = podPlacement(guest, { app: "web" });
  assert.deepEqual(placement["nodeSelector"], { "lab.isthmus.dev/run": "aaaaaa" });
  const own = hostIdentity("lab", "aaaaaa");
  assert.deepEqual([nodeTaints(own), podPlacement(own, {})], [[], {}]);
});

test("isForLab: a pod that tolerates everything without naming the lab is not the lab's to run", () => {
  const guest = guestIdentity("lab", "aaaaaa");
  const pod = (tolerations: object[]) => ({ spec: { containers: [], tolerations } });
  assert.equal(isForLab(guest, pod([{ operator: "Exists" }])), false);
  assert.equal(isForLab(guest, { spec: { containers: [] } }), false);
  assert.equal(isForLab(guest, pod([{ key: "lab.isthmus.dev/lab", operator: "Exists" }])), true);
  assert.equal(isForLab(guest, { spec: { containers: [], ...podPlacement(guest, {}) } }), true);
  assert.equal(isForLab(hostIdentity("lab", "aaaaaa"), { spec: { containers: [] } }), true);
});
