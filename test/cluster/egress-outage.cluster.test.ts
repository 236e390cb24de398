// alone: it measures how soon changes are in force, which other work on the machine delays.
/** Clients and routers of an Egress as shipped, while the API server cannot be reached. */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { sleep } from "#base/async";
import { EGRESS, FAR, NEAR, openEgressNode } from "#test/egress-node";
import { until } from "#test/lab";

const AWAY_MS = process.env["ISTHMUS_SOAK"] === "full" ? 60_000 : 12_000;
const IN_FORCE_MS = 1500;

test("API server away: clients and routers go on, and what changed meanwhile is in force within 1.5 s of its return", async (t) => {
  const bed = await openEgressNode(t);
  const { node, router, routerGate } = bed;
  // coild reaches the server by a gate too.
  const file = join(node.folder, "coild-kubeconfig");
  const gate = await bed.gateIn(node.netns, 6444);
  writeFileSync(file, node.server.kubeconfig({ server: "https://127.0.0.1:6444", token: "coild" }));
  await node.killCoild();
  await node.startCoild(...bed.coildFlags);
  await bed.makeEgress([`${NEAR[4]}/32`]);
  await bed.makeService();
  await bed.run("client", EGRESS.name);
  const leaves = await bed.run("leaves", EGRESS.name);
  await bed.run("comes");
  for (const pod of ["client", "leaves"]) await bed.sees(pod, NEAR[4], router[4]);
  const check = await bed.stream("client", NEAR[4]);
  await Promise.all([gate.shut(), routerGate.shut()]);
  await bed.destinations([`${NEAR[4]}/32`, `${FAR[4]}/32`]);
  await bed.annotate("comes", EGRESS.name);
  await bed.annotate("leaves", null);
  const awayUntil = performance.now() + AWAY_MS;
  while (performance.now() < awayUntil) {
    await check();
    assert.equal(await bed.seen("leaves", NEAR[4]), router[4]);
    assert.equal(await bed.seen("client", FAR[4]), "none");
    await sleep(200);
  }
  await Promise.all([gate.reopen(), routerGate.reopen()]);
  const returnedAt = performance.now();
  const left = (): number => IN_FORCE_MS - (performance.now() - returnedAt);
  const wayBack = (): string => bed.ip(bed.space("router"), "route", "show", "table", "118");
  await Promise.all([
    bed.sees("client", FAR[4], router[4], left()),
    bed.sees("comes", FAR[4], router[4], left()),
    until("nothing is left in the one that leaves", () => bed.leftIn("leaves") === "", {
      deadlineMs: left(),
      everyMs: 20,
    }),
    until("nor in the router", () => !wayBack().includes(`${leaves[4]} `), { deadlineMs: left(), everyMs: 20 }),
  ]);
  t.diagnostic(`away for ${AWAY_MS} ms: in force after ${(performance.now() - returnedAt).toFixed(0)} ms`);
  await check();
  await bed.completeEgress();
  await bed.isClean();
  assert.doesNotMatch(node.said(), /because of a bug/);
});
