import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { createLogger } from "#base/log";
import { CniFailure, cniHandlers } from "#features/cni";
import { resources } from "#kube/client";
import type { EventInput } from "#kube/events";
import type { CniResult } from "#wire/cni";
import { type CniArgs, type CniCaller, methodPath } from "#wire/cnirpc";
import { recordAttachments, recordCalls, recordPasses } from "./index.ts";

/** Processes of one machine, one after the other. */
function machine(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-recording-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const clock = new FakeClock();
  const events: EventInput[] = [];
  const lines: string[] = [];
  const log = createLogger({ name: "test", write: (line) => lines.push(line) });
  const start = (signal = new AbortController().signal) =>
    recordPasses({ folder, signal }, { events: { record: (event) => void events.push(event) }, log, clock }) ??
    assert.fail();
  return { clock, events, lines, start };
}

const metadata = { name: "web", namespace: "team", uid: "u", resourceVersion: "7" };

test("recording: an object whose step has thrown is set aside with an event and a line, once each time, and is tried again after it", async (t) => {
  const { events, lines, start, clock } = machine(t);
  const steps = start().stepsFor(resources.services);
  const broken = (): never => {
    throw new TypeError("x is not iterable");
  };
  for (let at = 0; at < 2; at += 1) {
    const done = steps.step({ metadata }, broken, {});
    assert.equal("value" in done ? done : done.waitMs, 60_000);
  }
  steps.step({ metadata }, () => "done", {});
  assert.equal(events.length, 1);
  const [{ reason, note, regarding } = assert.fail()] = events;
  assert.deepEqual(
    [reason, regarding.kind, regarding.name, regarding.namespace],
    ["SetAside", "Service", "web", "team"],
  );
  assert.match(note, /a fault of the program was met in this object \(x is not iterable\)/);
  assert.equal(lines.filter((line) => line.includes('"msg":"object set aside"')).length, 1);
  assert.match(lines.join(""), /x is not iterable.*because of a bug/);
  await clock.advance(60_000);
  assert.deepEqual(
    steps.step({ metadata }, () => "done", {}),
    { value: "done" },
  );
});

const callOf = (pod: string): CniArgs => ({
  containerId: `c-${pod}`,
  netns: "/run/netns/x",
  ifname: "eth0",
  args: { K8S_POD_NAMESPACE: "team", K8S_POD_NAME: pod, K8S_POD_UID: `uid-${pod}` },
  path: "",
  stdinData: new Uint8Array(0),
  ips: [],
  interfaces: {},
});

test("recording: an ADD during which the process was killed three times is refused for a time with an event of its pod; others are made, and its DEL too", async (t) => {
  const { events, start, clock } = machine(t);
  const { signal } = new AbortController();
  const never = new Promise<CniResult>(() => undefined);
  const answer: CniResult = { interfaces: [], ips: [] };
  const recordedWith = (add: () => Promise<CniResult>): CniCaller =>
    recordCalls(
      async ({ method }) => await (method === "Add" ? add() : answer),
      start(),
      (why) => new CniFailure("try-again", why),
    );
  for (let at = 0; at < 3; at += 1)
    void recordedWith(() => never)({ method: "Add", args: callOf("poison") }, { signal });
  const recorded = recordedWith(async () => answer);
  const call = (method: "Add" | "Del" | "Status", pod: string) => recorded({ method, args: callOf(pod) }, { signal });
  await assert.rejects(call("Add", "poison"), (error) => {
    assert.ok(error instanceof CniFailure);
    assert.equal(error.code, "try-again");
    assert.match(error.message, /^Add is not done now: 3 times within ten minutes/);
    return true;
  });
  assert.equal(await call("Add", "good"), answer);
  assert.equal(await call("Del", "poison"), answer);
  assert.equal(await call("Status", "poison"), answer);
  const bytes = cniHandlers(recorded)[methodPath("Add")] ?? assert.fail();
  await assert.rejects(bytes(new Uint8Array([255]), { signal }), { code: "invalid-arguments" });
  assert.deepEqual(
    events.map(({ reason, regarding: { kind, name, uid } }) => [reason, kind, name, uid]),
    [["SetAside", "Pod", "poison", "uid-poison"]],
  );
  await clock.advance(60_000);
  assert.equal(await call("Add", "poison"), answer);
});

test("recording: what is under way when the program is asked to end is no cause", async (t) => {
  const { start, clock } = machine(t);
  const work = { name: "hot-plug", key: "team/web", version: () => "1", about: () => undefined };
  for (let at = 0; at < 3; at += 1) {
    const controller = new AbortController();
    const recording = start(controller.signal);
    void recording.pass(work, () => new Promise(() => undefined), { signal: controller.signal });
    controller.abort();
  }
  const { signal } = new AbortController();
  assert.deepEqual(await start().pass(work, async () => "done", { signal }), { value: "done" });
  await clock.advance(50);
  assert.equal(clock.pending, 0);
});

test("recording: a pod's link that is set aside has an event of its Node, which names the link", (t) => {
  const { events, start } = machine(t);
  const recorded = recordAttachments(start(), { nodeName: "node-1" }) ?? assert.fail();
  const broken = (): never => {
    throw new TypeError("x is not iterable");
  };
  assert.equal(recorded("attachment-repairs", "veth1", broken), undefined);
  assert.deepEqual(
    recorded("attachment-repairs", "veth2", () => 2),
    { value: 2 },
  );
  const [{ reason, note, regarding } = assert.fail(), ...others] = events;
  assert.equal(others.length, 0);
  assert.deepEqual([reason, regarding.kind, regarding.name], ["SetAside", "Node", "node-1"]);
  assert.match(note, /^link veth1 of a pod, it is not made again meanwhile: a fault of the program was met/);
});
