import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { ForgottenJudge, type SandboxState } from "./judge.ts";

const GRACE_MS = 60_000;
const at = (containerId: string, ifname: string, ...addresses: readonly string[]) => ({
  containerId,
  ifname,
  addresses,
});

function bed() {
  const clock = new FakeClock();
  return { clock, judge: new ForgottenJudge({ graceMs: GRACE_MS, clock }) };
}

test("ForgottenJudge: without a sandbox and a Pod for the whole grace, an attachment is forgotten", async () => {
  const { clock, judge } = bed();
  const all = [at("a", "eth0", "10.0.0.1"), at("b", "eth0", "10.0.0.2")];
  const look = () =>
    judge.look(all, (id) => (id === "a" ? "gone" : "alive"), new Set()).map(({ containerId }) => containerId);
  assert.deepEqual(look(), []);
  await clock.advance(GRACE_MS - 1);
  assert.deepEqual(look(), []);
  await clock.advance(1);
  assert.deepEqual(look(), ["a"]);
});

test("ForgottenJudge: one look with a sandbox, with a doubt, or with a Pod begins the grace anew", async () => {
  const seen: readonly [SandboxState, readonly string[]][] = [
    ["alive", []],
    ["unknown", []],
    ["gone", ["10.0.0.1"]],
  ];
  for (const [state, pods] of seen) {
    const { clock, judge } = bed();
    const all = [at("a", "eth0", "10.0.0.1", "fd00::1")];
    judge.look(all, () => "gone", new Set());
    await clock.advance(GRACE_MS - 1);
    judge.look(all, () => state, new Set(pods));
    assert.equal(judge.waiting, 0, state);
    await clock.advance(GRACE_MS);
    assert.deepEqual(
      judge.look(all, () => "gone", new Set()),
      [],
      state,
    );
    const look = () => judge.look(all, () => "gone", new Set()).length;
    await clock.advance(GRACE_MS);
    assert.equal(look(), 0, `${state}: two looks`);
    assert.equal(look(), 1, state);
    judge.interrupted();
    assert.deepEqual([look(), look(), look()], [0, 0, 0], `${state}: after a look that could not be made`);
  }
});

test("ForgottenJudge: a Pod's address keeps every interface of its sandbox, whose other addresses the API does not show", async () => {
  const { clock, judge } = bed();
  const all = [at("a", "eth0", "10.0.0.1"), at("a", "net1", "10.9.0.1"), at("b", "net1", "10.9.0.2")];
  const look = () => judge.look(all, () => "gone", new Set(["10.0.0.1"]));
  look();
  await clock.advance(GRACE_MS);
  look();
  assert.deepEqual(look(), [all[2]]);
});

test("ForgottenJudge: it remembers no attachment that is gone", async () => {
  const { clock, judge } = bed();
  for (let round = 0; round < 100; round += 1) {
    judge.look([at(`a${round}`, "eth0", "10.0.0.1")], () => "gone", new Set());
    await clock.advance(1000);
  }
  assert.equal(judge.waiting, 1);
});
