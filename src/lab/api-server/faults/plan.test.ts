import assert from "node:assert/strict";
import { test } from "node:test";
import { FaultPlan, type FaultSubject } from "./plan.ts";

const GET: FaultSubject = {
  verb: "get",
  group: "",
  resource: "pods",
  subresource: "",
  namespace: "default",
  name: "a",
  userAgent: "test/1",
};

function plan(seed = 1): FaultPlan {
  return new FaultPlan({ seed, watchFault: () => 0 });
}

test("faults: a rule hits its matching requests, in order, up to its limit", () => {
  const faults = plan();
  faults.add({ match: { verb: ["get", "list"], resource: "pods", times: 2 }, action: { status: 500 } });
  faults.add({ action: { latencyMs: 1 } });
  const hits = [GET, GET, GET, { ...GET, verb: "create" }].map((subject) => faults.take(subject));
  assert.deepEqual(hits, [{ status: 500 }, { status: 500 }, { latencyMs: 1 }, { latencyMs: 1 }]);
});

test("faults: the same seed has the same hits, with about the wanted probability", () => {
  const draw = (seed: number): boolean[] => {
    const faults = plan(seed);
    faults.add({ match: { probability: 0.3 }, action: { status: 409 } });
    return Array.from({ length: 1000 }, () => faults.take(GET) !== undefined);
  };
  assert.deepEqual(draw(7), draw(7));
  const share = draw(7).filter(Boolean).length / 1000;
  assert.ok(share > 0.25 && share < 0.35, String(share));
});

test("faults: every condition counts", () => {
  const faults = plan();
  for (const match of [
    { namespace: "x" },
    { name: "x" },
    { userAgent: "coild" },
    { group: "apps" },
    { subresource: "status" },
  ])
    faults.add({ match, action: { status: 500 } });
  assert.equal(faults.take(GET), undefined);
  assert.deepEqual(faults.take({ ...GET, userAgent: "coild/2" }), { status: 500 });
});

test("faults: rules can be listed and removed", () => {
  const faults = plan();
  const id = faults.add({ action: { cut: "drop-connection" } });
  assert.equal(faults.list().length, 1);
  assert.equal(faults.remove(id), true);
  assert.equal(faults.remove(id), false);
  assert.equal(faults.take(GET), undefined);
});
