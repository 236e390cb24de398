import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { addressBytes, WantedTable } from "../plan/index.ts";
import { addressesOf, NODE, ruleOptions } from "../testing/fixture.ts";
import { oneNetNs } from "../testing/one-netns.ts";
import { randomService, randomSlice } from "../testing/random-objects.ts";
import { portsOf, sliceView, Tracker } from "../track/index.ts";
import { DataPlane, GenerationTracker, type WantedState } from "./index.ts";

const NAME = `isp-fuzz-${process.pid}`;
const own = oneNetNs(NAME);

const step = fc.oneof(
  { weight: 4, arbitrary: randomService.map((service) => ({ do: "service" as const, service })) },
  { weight: 10, arbitrary: randomSlice.map((slice) => ({ do: "slice" as const, slice })) },
  {
    weight: 1,
    arbitrary: fc.constantFrom("a", "b", "c").map((name) => ({ do: "no-service" as const, name })),
  },
  { weight: 1, arbitrary: fc.constantFrom("s1", "s2", "s3").map((name) => ({ do: "no-slice" as const, name })) },
  { weight: 1, arbitrary: fc.constantFrom("z1", "z2", undefined).map((zone) => ({ do: "zone" as const, zone })) },
  { weight: 6, arbitrary: fc.constant({ do: "sync" as const }) },
  { weight: 1, arbitrary: fc.constant({ do: "restart" as const }) },
);

/** One family's proxy without its loop. */
class Bed {
  readonly tracker: Tracker;
  readonly wanted = new WantedTable();
  plane: DataPlane;
  readonly family: 4 | 6;

  constructor(family: 4 | 6) {
    this.family = family;
    this.tracker = new Tracker(family, { node: NODE, nodeIPs: [addressesOf(family).node] });
    this.plane = this.open();
  }

  open(): DataPlane {
    const options = { ...ruleOptions(this.family), tableName: "fuzz" };
    return new DataPlane(
      { clock: systemClock, log: nullLogger, ...own.tables, generations: new GenerationTracker(own.tables.elements) },
      options,
    );
  }

  get state(): WantedState {
    for (const service of this.tracker.take().services) this.wanted.set(service, this.tracker.plan(service));
    const { node, serviceCIDR } = addressesOf(this.family);
    return { services: this.wanted, nodePortIPs: new Set([addressBytes(node)]), serviceCIDRs: [serviceCIDR] };
  }
}

/** Returns the part of a front end that counts, without the order of its slots. */
function inShort(
  wanted: Iterable<readonly [string, { readonly slots: readonly unknown[]; readonly localSlots: readonly unknown[] }]>,
): unknown {
  return Array.from(wanted, ([id, one]) => [
    id,
    { ...one, slots: [...one.slots].sort(), localSlots: [...one.localSlots].sort() },
  ]).sort();
}

for (const family of [4, 6] as const) {
  test(`DataPlane: after any changes, in any order, the kernel holds the plan and a second sync is empty, IPv${family}`, async () => {
    let endpoints = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 60, size: "max" }), async (steps) => {
        const bed = new Bed(family);
        const options = { allowExternalIPs: true };
        await bed.plane.remove();
        for (const one of steps) {
          if (one.do === "service")
            bed.tracker.setService(`ns/${one.service.metadata.name}`, portsOf(one.service, family, options));
          else if (one.do === "no-service") bed.tracker.setService(`ns/${one.name}`, []);
          else if (one.do === "slice") bed.tracker.setSlice(one.slice.metadata.name, sliceView(one.slice));
          else if (one.do === "no-slice") bed.tracker.setSlice(one.name, undefined);
          else if (one.do === "zone")
            bed.tracker.setContext({ node: { ...NODE, zone: one.zone }, nodeIPs: [addressesOf(family).node] });
          else if (one.do === "restart") bed.plane = bed.open();
          else await bed.plane.sync(bed.state);
        }
        await bed.plane.sync(bed.state);
        assert.equal((await bed.plane.sync(bed.state)).transactions, 0);
        assert.equal((await bed.plane.sync(bed.state, { full: true })).changes, 0);
        // One that knows nothing lists the kernel and finds nothing to do.
        const other = bed.open();
        assert.equal((await other.sync(bed.state, { full: true })).changes, 0);
        assert.deepEqual(inShort(plain(other.frontEnds)), inShort(plain(bed.wanted.frontEnds())));
        for (const [, { slots, localSlots }] of bed.wanted.frontEnds()) endpoints += slots.length + localSlots.length;
      }),
      { numRuns: process.env["ISTHMUS_SOAK"] === "full" ? 1000 : 60 },
    );
    assert.ok(endpoints > 50, `only ${endpoints} endpoints: these objects test nothing`);
  });
}

/** Listed front ends say explicitly that they are guarded, and have no comment's more than 127 bytes. */
function* plain<T extends object>(frontEnds: Iterable<readonly [string, T]>): Generator<readonly [string, T]> {
  for (const [id, frontEnd] of frontEnds) {
    const { isGuarded: _, ...rest } = frontEnd as T & { readonly isGuarded?: boolean };
    yield [id, rest as T];
  }
}
