import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { SegmentSizes, SMALL_SEGMENT_BYTES } from "./segment-sizes.ts";

test("SegmentSizes: an uplink has small segments for ten minutes, and is forgotten with the uplink", async () => {
  const clock = new FakeClock();
  const segments = new SegmentSizes(clock);
  assert.deepEqual([segments.of("lan"), segments.lower("lan"), segments.lower("lan")], [undefined, true, false]);
  assert.deepEqual([segments.of("lan"), segments.of("lte")], [SMALL_SEGMENT_BYTES, undefined]);
  await clock.advance(600_000);
  assert.deepEqual([segments.of("lan"), segments.lower("lan")], [undefined, true]);
  segments.keep(new Set(["lte"]));
  assert.equal(segments.of("lan"), undefined);
});
