/** Events of several watches come in any order, and repeatedly (docs/spec/service-proxy.md#3.2: R8). */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { EndpointSlice, Service } from "#kube/client";
import { randomService, randomSlice } from "../testing/random-objects.ts";
import { TrackedObjects } from "../testing/tracked-objects.ts";

type Event =
  | { readonly kind: "service"; readonly name: string; readonly object: Service | undefined }
  | { readonly kind: "slice"; readonly name: string; readonly object: EndpointSlice | undefined }
  | { readonly kind: "plan" };

const RUNS = process.env["ISTHMUS_SOAK"] === "full" ? 20_000 : 500;
const NAMES = ["a", "b", "c"];
const SLICES = ["s1", "s2", "s3"];

const event: fc.Arbitrary<Event> = fc.oneof(
  {
    weight: 4,
    arbitrary: randomService.map((object): Event => ({ kind: "service", name: object.metadata.name, object })),
  },
  { weight: 6, arbitrary: randomSlice.map((object): Event => ({ kind: "slice", name: object.metadata.name, object })) },
  {
    weight: 1,
    arbitrary: fc.constantFrom(...NAMES).map((name): Event => ({ kind: "service", name, object: undefined })),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom(...SLICES).map((name): Event => ({ kind: "slice", name, object: undefined })),
  },
  { weight: 2, arbitrary: fc.constant<Event>({ kind: "plan" }) },
);

/** Returns true if it made a difference. */
function tell(objects: TrackedObjects, one: Event): boolean {
  if (one.kind === "service") return objects.service(one.name, one.object);
  if (one.kind === "slice") return objects.slice(one.name, one.object);
  objects.plan();
  return false;
}

/** Returns the wanted content of the node's table, in a fixed order. */
function content(objects: TrackedObjects): unknown {
  objects.plan();
  const { clusterIPs, hairpinEndpoints } = objects.wanted;
  return [[...objects.wanted.frontEnds()].sort(byId), [...clusterIPs].sort(), [...hairpinEndpoints].sort()];
}

function byId([a]: readonly [string, unknown], [b]: readonly [string, unknown]): number {
  return a < b ? -1 : 1;
}

/** The last thing said of each object. */
function last(events: readonly Event[]): Event[] {
  const objects = new Map<string, Event>();
  for (const one of events) if (one.kind !== "plan") objects.set(`${one.kind} ${one.name}`, one);
  return [...objects.values()];
}

test("Tracker: after any events, in any order, the plan is that of the last state of each object", () => {
  fc.assert(
    fc.property(fc.array(event, { maxLength: 40, size: "max" }), fc.nat(), (events, seed) => {
      const objects = new TrackedObjects(4);
      for (const one of events) tell(objects, one);
      const fresh = new TrackedObjects(4);
      const words = last(events);
      // Services before slices, slices before Services, and anything between.
      for (const one of words.sort((a, b) => hash(seed, a) - hash(seed, b))) tell(fresh, one);
      assert.deepEqual(content(objects), content(fresh));
    }),
    { numRuns: RUNS },
  );
});

test("Tracker: an event that comes twice, or again by a list, makes nothing pending", () => {
  fc.assert(
    fc.property(fc.array(event, { maxLength: 40, size: "max" }), (events) => {
      const objects = new TrackedObjects(4);
      for (const one of events) {
        tell(objects, one);
        assert.equal(tell(objects, one), false, "the same event once more");
      }
      objects.plan();
      for (const one of last(events)) assert.equal(tell(objects, one), false, "as a list tells it");
      assert.equal(objects.tracker.isDirty, false);
    }),
    { numRuns: RUNS },
  );
});

/** A number that is as good as drawn. */
function hash(seed: number, one: Event): number {
  let state = seed | 1;
  for (const char of JSON.stringify(one)) state = (Math.imul(state, 31) + char.charCodeAt(0)) | 0;
  return state >>> 0;
}
