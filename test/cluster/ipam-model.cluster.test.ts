/**
 * Random steps of the model of a cluster's addresses (test/support/ipam-model). The runtime calls ADD, DEL, CHECK and GC. `coild` is killed
 * between any two of its calls, calls to the API and the kernel fail, machines reboot, are cut off from the API and come back. Nodes are deleted
 * and registered again, the cluster collects pods while they run. Pools are extended, deleted and made again; blocks are reserved, deleted and
 * forced away by hand. Who has an address is read from the kernels alone.
 *
 * The seed is printed. `ISTHMUS_SEED=N` runs the same steps again; `ISTHMUS_SOAK=full` makes 10,000 of them, `ISTHMUS_STEPS=N` so many.
 */
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { after, type TestContext, test } from "node:test";
import fc from "fast-check";
import { MACHINES, Model, openPlace, PODS } from "#test/ipam-model";
import { anyStep, type Step } from "#test/ipam-steps";
import { IpamWorld } from "#test/ipam-world";

const FULL = process.env["ISTHMUS_SOAK"] === "full";
/** Steps of the whole test, and of one scene of it, after which everything has to go back. */
const STEPS = Number(process.env["ISTHMUS_STEPS"] ?? (FULL ? 10_000 : 700));
const STEPS_OF_SCENE = 175;
/** Fewer steps need not have everything that can happen. */
const STEPS_WITH_ALL = 700;
/** The maximum number of scenes that are added until everything has happened: what is rare is missing in one walk of twenty. */
const MOST_MORE = 10;
const SEED = Number(process.env["ISTHMUS_SEED"] ?? randomInt(2 ** 31));
const LONGEST_MS = 3_600_000;
const options = { signal: AbortSignal.timeout(LONGEST_MS) };
const world = await IpamWorld.open(options);
after(() => world[Symbol.asyncDispose]());

test("ipam: whatever happens to Nodes, machines, programs, pools and blocks, no address is on two pods, and all go back", {
  timeout: LONGEST_MS,
}, async (t: TestContext) => {
  t.diagnostic(`ISTHMUS_SEED=${SEED} ISTHMUS_STEPS=${STEPS}`);
  const step = anyStep(MACHINES.length, PODS);
  const total: Record<string, number> = {};
  const minLength = Math.min(STEPS, STEPS_OF_SCENE);
  const scene = fc.asyncProperty(fc.array(step, { minLength, maxLength: minLength, size: "max" }), async (steps) => {
    const model = new Model(await openPlace(world, t, options));
    try {
      for (const one of steps) await model.run(one);
      await model.end();
    } finally {
      await model.abandon();
    }
    for (const [name, count] of Object.entries(model.counts)) total[name] = (total[name] ?? 0) + count;
  });
  await fc.assert(scene, { numRuns: Math.ceil(STEPS / minLength), seed: SEED, endOnFailure: true });
  const missing = (): string[] =>
    STEPS < STEPS_WITH_ALL ? [] : Object.keys(total).filter((name) => total[name] === 0);
  for (let more = 1; more <= MOST_MORE && missing().length > 0; more += 1) {
    const seed = (SEED + more) % 2 ** 31;
    t.diagnostic(
      `nothing was ${missing().join(", ")}: one more scene, ISTHMUS_SEED=${seed} ISTHMUS_STEPS=${STEPS_OF_SCENE}`,
    );
    await fc.assert(scene, { numRuns: 1, seed, endOnFailure: true });
  }
  t.diagnostic(JSON.stringify(total));
  assert.deepEqual(missing(), [], "what never happened");
});

test("ipam: a machine that lost its blocks while disconnected hands out none of their addresses, however soon an ADD comes", async (t) => {
  const pool = { blockSizeBits: 1, subnets: [{ ipv4: "10.9.0.0/28" }] };
  const model = new Model(await openPlace(world, t, options, pool));
  const at = 0;
  const steps: readonly Step[] = [
    { op: "add", node: 0, id: 0, at },
    { op: "cut-off", node: 0, id: 0, at },
    { op: "give-up", node: 0, id: 0, at },
    { op: "add", node: 1, id: 0, at },
    { op: "add", node: 1, id: 1, at },
    { op: "register", node: 0, id: 0, at },
    { op: "heal", node: 0, id: 0, at },
    { op: "add", node: 0, id: 1, at },
  ];
  for (const step of steps) await model.run(step);
  const [first, second] = model.machines.map((machine) => machine.held());
  assert.deepEqual(
    second?.map(({ addresses }) => addresses),
    [["10.9.0.0"], ["10.9.0.1"]],
  );
  assert.deepEqual(
    first?.map(({ addresses, isCut }) => [addresses, isCut]),
    [
      [["10.9.0.0"], true],
      [["10.9.0.2"], false],
    ],
  );
  await model.end();
});
