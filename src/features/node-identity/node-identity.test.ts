import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { dependsOnTime, describeIdentity, type IdentityRules, NOTHING_SEEN, observe, type SeenNode } from "./index.ts";

const OURS = "11111111-1111-4111-8111-111111111111";
const THEIRS = "22222222-2222-4222-8222-222222222222";
const EARLIER = "33333333-3333-4333-8333-333333333333";
const HERE = "192.0.2.1";
const THERE = "192.0.2.2";
const RULES: IdentityRules = { bootId: OURS, comparesAddresses: true };
const SECOND = 1000;

/** One step of a history: a status that is written, the deletion of the Node, or time that passes. */
type Step =
  | {
      readonly boot?: string;
      readonly at?: readonly string[];
      readonly beat?: number;
      readonly uid?: string;
      readonly version?: number;
    }
  | { readonly gone: true }
  | { readonly pass: number }
  | { readonly host: readonly string[] };

/** A machine that follows a history, looking at the Node at each change and every second while time matters. Returns its findings, repeats left out. */
function follow(steps: readonly Step[], rules: IdentityRules = RULES): string[] {
  let memory = NOTHING_SEEN;
  let node: SeenNode | undefined;
  let [nowMs, version] = [0, 0];
  let own: readonly string[] = [HERE];
  const found: string[] = [];
  const look = (): void => {
    const isHere = node?.addresses.some((one) => own.includes(one)) ?? false;
    memory = observe(memory, { node, isHere, nowMs }, rules);
    const { identity } = memory;
    const text = identity.kind === "waiting" ? identity.reason : identity.kind;
    if (found.at(-1) !== text) found.push(text);
  };
  for (const step of steps) {
    if ("pass" in step) {
      for (const until = nowMs + step.pass; nowMs < until; ) {
        nowMs += SECOND;
        if (dependsOnTime(memory.identity)) look();
      }
      continue;
    }
    if ("host" in step) {
      own = step.host;
      if (dependsOnTime(memory.identity)) look();
      continue;
    }
    if ("gone" in step) node = undefined;
    else {
      version += 1;
      const { boot = "", at = [HERE], beat = 0, uid = "u" } = step;
      node = {
        ...{ uid, machineId: "", bootId: boot, addresses: at, heartbeat: beat === 0 ? "" : String(beat) },
        resourceVersion: String(step.version ?? version),
      };
    }
    look();
  }
  return found;
}

for (const { name, steps, rules, found } of [
  { name: "a Node with our boot id and an address of ours is ours at once", steps: [{ boot: OURS }], found: ["ours"] },
  {
    name: "without a boot id one address of ours is enough, as coild starts again beside a kubelet that writes every five minutes",
    steps: [{ at: [THERE, HERE] }, { pass: 300 * SECOND }],
    found: ["ours"],
  },
  {
    name: "the boot id of an earlier boot does not count until the status was written; an address of ours is enough",
    steps: [{ boot: EARLIER, beat: 1 }, { pass: 600 * SECOND }, { boot: OURS, beat: 2 }, { pass: 300 * SECOND }],
    found: ["ours"],
  },
  {
    name: "a host that has another address since its start waits for kubelet, and is no twin of itself",
    steps: [{ boot: EARLIER, at: [THERE], beat: 1 }, { pass: 600 * SECOND }, { boot: OURS, beat: 2 }],
    found: ["status-not-written", "ours"],
  },
  {
    name: "a Node without InternalIP is waited for, with our boot id too, however long it takes",
    steps: [{ boot: OURS, at: [], beat: 1 }, { pass: 600 * SECOND }, { boot: OURS, beat: 2 }],
    found: ["no-address", "ours"],
  },
  {
    name: "where addresses are not compared our boot id is enough, and a Node without any id is ours",
    steps: [{ boot: OURS, at: [THERE] }, { at: [] }],
    rules: { ...RULES, comparesAddresses: false },
    found: ["ours"],
  },
  {
    name: "where addresses are not compared another boot id counts once the status was written",
    steps: [{ boot: THEIRS, beat: 1 }, { pass: 60 * SECOND }, { boot: THEIRS, beat: 2 }, { pass: 31 * SECOND }],
    rules: { ...RULES, comparesAddresses: false },
    found: ["status-not-written", "suspect", "twin"],
  },
  {
    name: "another boot id for 30 s is suspect, for longer a twin, until our own was there for two minutes",
    steps: [
      ...[{ boot: OURS }, { boot: THEIRS }, { pass: 30 * SECOND }, { pass: SECOND }, { pass: 600 * SECOND }],
      ...[{ boot: OURS }, { pass: 119 * SECOND }, { pass: SECOND }],
    ],
    found: ["ours", "suspect", "twin", "ours"],
  },
  {
    name: "another boot id for 30 s and then ours is two changes",
    steps: [
      { boot: OURS },
      { boot: THEIRS },
      { pass: 5 * SECOND },
      { boot: OURS },
      { pass: 119 * SECOND },
      { pass: SECOND },
    ],
    found: ["ours", "suspect", "twin", "ours"],
  },
  {
    name: "nodes in containers of one kernel: addresses alone tell, by the same times",
    steps: [{ boot: OURS }, { boot: OURS, at: [THERE] }, { pass: 31 * SECOND }],
    found: ["ours", "suspect", "twin"],
  },
  {
    name: "nodes in containers of one kernel that write in turn",
    steps: [{ boot: OURS }, { boot: OURS, at: [THERE] }, { pass: 5 * SECOND }, { boot: OURS }],
    found: ["ours", "suspect", "twin"],
  },
  {
    name: "a host that gets another address is no twin of itself while kubelet needs its 10 s",
    steps: [
      ...[{ boot: OURS, at: [THERE] }, { host: [THERE] }, { boot: OURS, at: [THERE], beat: 1 }, { host: [HERE] }],
      ...[{ boot: OURS, at: [THERE], beat: 2 }, { pass: 10 * SECOND }, { boot: OURS, beat: 3 }, { pass: 300 * SECOND }],
    ],
    found: ["suspect", "ours", "suspect", "ours"],
  },
  {
    name: "a Node that is deleted and registers again is ours",
    steps: [{ boot: OURS }, { gone: true }, { pass: 60 * SECOND }, { at: [], uid: "v" }, { boot: OURS, uid: "v" }],
    found: ["ours", "no-node", "no-address", "ours"],
  },
  {
    name: "an answer of an API server that lags behind is no change",
    steps: [
      { boot: EARLIER, version: 1 },
      { boot: OURS, version: 2 },
      { boot: EARLIER, version: 1 },
      { boot: OURS, version: 2 },
    ],
    found: ["ours"],
  },
  {
    name: "an API server that was restored from a backup has lower versions, which count after a minute, and for a Node that was deleted at once",
    steps: [
      ...[
        { boot: OURS, version: 9 },
        { pass: 61 * SECOND },
        { boot: OURS, at: [], version: 3 },
        { boot: OURS, version: 4 },
      ],
      ...[{ gone: true }, { boot: OURS, at: [], version: 2 }],
    ],
    found: ["ours", "no-address", "ours", "no-node", "no-address"],
  },
  {
    name: "without a boot id of this host nothing but addresses is compared",
    steps: [{ boot: THEIRS }, { boot: EARLIER }, { boot: THEIRS }, { pass: 300 * SECOND }],
    rules: { ...RULES, bootId: undefined },
    found: ["ours"],
  },
] as const satisfies readonly {
  readonly name: string;
  readonly steps: readonly Step[];
  readonly rules?: IdentityRules;
  readonly found: readonly string[];
}[]) {
  test(`node-identity: ${name}`, () => assert.deepEqual(follow(steps, rules as IdentityRules | undefined), found));
}

/** One machine's kubelet and others do these to its Node while no other machine has the name. */
const alone = fc.array(
  fc.oneof(
    fc.nat(400).map((seconds): Step => ({ pass: seconds * SECOND })),
    fc.nat(1000).map((beat): Step => ({ boot: OURS, beat: beat + 1 })),
    fc.constant<Step>({ gone: true }),
  ),
  { maxLength: 30 },
);

test("node-identity: whatever the times, one machine alone is never suspect and never a twin", () => {
  fc.assert(
    fc.property(fc.constantFrom("", OURS, EARLIER), alone, (first, steps) => {
      const found = follow([{ boot: first }, ...steps]);
      assert.ok(!found.includes("suspect") && !found.includes("twin"), found.join());
    }),
    { numRuns: 300 },
  );
});

test("node-identity: of two machines whose kubelets write in turn both are twins after three writes, and for two minutes after the last of the other", () => {
  const gaps = fc.array(fc.integer({ min: 1, max: 100 }), { minLength: 2, maxLength: 12 });
  fc.assert(
    fc.property(gaps, fc.boolean(), fc.boolean(), (seconds, startsOurs, sharesKernel) => {
      const write = (isOurs: boolean, beat: number): Step => ({
        boot: isOurs || sharesKernel ? OURS : THEIRS,
        at: [isOurs ? HERE : THERE],
        beat,
      });
      const inTurn = seconds.flatMap((gap, at) => [
        { pass: gap * SECOND },
        write((at % 2 === 0) !== startsOurs, at + 2),
      ]);
      const steps: Step[] = [write(startsOurs, 1), ...inTurn];
      assert.equal(follow(steps).at(-1), "twin");
      // Quiet begins with the last write of the other machine, or with ours after it.
      const quiet = [...steps, { pass: SECOND }, write(true, 1000)];
      assert.equal(follow([...quiet, { pass: 118 * SECOND }]).at(-1), "twin");
      assert.equal(follow([...quiet, { pass: 121 * SECOND }]).at(-1), "ours");
    }),
    { numRuns: 200 },
  );
});

test("node-identity: the sentence of a twin names both machines, and the flag where addresses alone differ", () => {
  const other = {
    uid: "u",
    resourceVersion: "1",
    heartbeat: "",
    bootId: THEIRS,
    machineId: "b".repeat(32),
    addresses: [THERE],
  };
  const host = { bootId: OURS, machineId: "a".repeat(32) };
  const twin = { kind: "twin", other, sinceMs: 0 } as const;
  const byBoot = describeIdentity({ ...twin, difference: "boot-id" }, host, "n1");
  for (const part of [OURS, THEIRS, host.machineId, other.machineId, THERE, "n1"])
    assert.ok(byBoot.includes(part), byBoot);
  assert.ok(!byBoot.includes("--node-addresses"));
  assert.match(describeIdentity({ ...twin, difference: "addresses" }, host, "n1"), /--node-addresses=any/);
  assert.match(
    describeIdentity({ ...twin, other: { ...other, bootId: OURS }, difference: "addresses" }, host, "n1"),
    /the boot ids are the same, so look whether the host has lost it/,
  );
  assert.match(
    describeIdentity({ ...twin, other: { ...other, bootId: "" }, difference: "addresses" }, host, "n1"),
    /boot id unknown/,
  );
});
