import assert from "node:assert/strict";
import { test } from "node:test";
import { Dirty } from "#base/async";
import { FakeClock } from "#base/clock";
import { createLogger } from "#base/log";
import { KernelError } from "#kernel/errors";
import { followAddresses } from "./host-addresses.ts";

const SECOND_MS = 1000;

test("followAddresses: reads at once and after each change, and a reading that fails is logged once and repeated", async () => {
  const clock = new FakeClock();
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => void lines.push(line) });
  const changed = new Dirty(clock);
  const stop = new AbortController();
  let readings = 0;
  let isBusy = false;
  const read = (): void => {
    readings += 1;
    if (isBusy) throw new KernelError("interrupted", "cannot list addresses");
  };
  const running = followAddresses(read, { changed, signal: stop.signal, log });
  assert.equal(readings, 1);
  for (let event = 0; event < 3; event += 1) changed.mark("test");
  await clock.advance(60 * SECOND_MS);
  assert.equal(readings, 2, "events that come together are one reading");
  for (const outage of [1, 2]) {
    isBusy = true;
    changed.mark("test");
    await clock.advance(20 * SECOND_MS);
    assert.equal(lines.length, outage);
    isBusy = false;
    const before: number = readings;
    await clock.advance(5 * SECOND_MS);
    assert.equal(readings, before + 1);
  }
  stop.abort();
  await running;
});

test("followAddresses: a bug ends it", async () => {
  const clock = new FakeClock();
  const log = createLogger({ name: "t", write: () => undefined });
  const read = (): void => {
    throw new TypeError("a bug");
  };
  const how = { changed: new Dirty(clock), signal: new AbortController().signal, log };
  await assert.rejects(() => followAddresses(read, how), TypeError);
});
