import assert from "node:assert/strict";
import { test } from "node:test";
import { addressesOf, endpoint, NODE, servicePort } from "../testing/fixture.ts";
import { MAX_TIMEOUTS, roundedTimeout } from "./affinity-timeouts.ts";
import { planService } from "./service.ts";
import { WantedTable } from "./wanted.ts";

const LONGEST = 86_400;

test("roundedTimeout: never shortens a timeout, adds at most a third, keeps the default and round numbers, and has few results", () => {
  const results = new Set<number>();
  for (let seconds = 1; seconds <= LONGEST; seconds += 1) {
    const rounded = roundedTimeout(seconds);
    results.add(rounded);
    assert.ok(rounded >= seconds && rounded <= seconds * (4 / 3), `${seconds} becomes ${rounded}`);
    assert.equal(roundedTimeout(rounded), rounded);
  }
  assert.ok(results.size <= MAX_TIMEOUTS);
  for (const exact of [0, 1, 5, 10, 30, 60, 300, 600, 900, 1800, 3600, 10_800, LONGEST])
    assert.equal(roundedTimeout(exact), exact);
});

/** Sets a Service of this timeout, at a port of its own. */
function set(wanted: WantedTable, seconds: number): void {
  const port = servicePort(4, { name: `s${seconds}`, port: seconds, nodePort: 0, affinitySeconds: seconds });
  const plan = planService([{ port, endpoints: [endpoint(4, "remote")] }], NODE, [addressesOf(4).node]);
  wanted.set(`ns/s${seconds}`, plan);
}

const timeoutsOf = (wanted: WantedTable): Set<number> =>
  new Set(Array.from(wanted.frontEnds(), ([, { affinitySeconds }]) => affinitySeconds));

test("WantedTable: affinity timeouts are exact up to the maximum, beyond it all are rounded, and the front ends that this changes are told", () => {
  const wanted = new WantedTable();
  const exact = Array.from({ length: MAX_TIMEOUTS }, (_, at) => 1001 + at);
  for (const seconds of exact) set(wanted, seconds);
  assert.deepEqual(timeoutsOf(wanted), new Set(exact));
  wanted.takeChanged();
  set(wanted, 10_800);
  assert.equal(wanted.roundsTimeouts, true);
  assert.deepEqual(timeoutsOf(wanted), new Set([1200, 10_800]));
  const all = Array.from(wanted.frontEnds(), ([id]) => id);
  assert.deepEqual(wanted.takeChanged().frontEnds, new Set(all));
  for (const id of all) assert.ok([1200, 10_800].includes(wanted.frontEnd(id)?.affinitySeconds ?? 0), id);
  wanted.set("ns/s1001", undefined);
  assert.equal(wanted.roundsTimeouts, false);
  assert.deepEqual(timeoutsOf(wanted), new Set([...exact.slice(1), 10_800]));
  // The one that is gone, and those that are exact again; not that of 10,800 seconds.
  assert.equal(wanted.takeChanged().frontEnds.size, all.length - 3);
});
