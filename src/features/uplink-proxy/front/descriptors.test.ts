import assert from "node:assert/strict";
import { closeSync, openSync } from "node:fs";
import { test } from "node:test";
import { Descriptors } from "./descriptors.ts";
import { TunnelLimiter } from "./tunnel-limiter.ts";

test("Descriptors: they are short from nine tenths of the limit on, at any limit, and counted when they could be", () => {
  for (const limit of [20, 64, 1000, 65_536]) {
    let open = 10;
    let counts = 0;
    const count = (): number => {
      counts += 1;
      return open;
    };
    const descriptors = new Descriptors({ limit, count });
    assert.equal(descriptors.areShort, false, "counted at first");
    for (; open < Math.ceil(limit * 0.9); open += 1) {
      assert.equal(descriptors.areShort, false, `${open} of ${limit}`);
      descriptors.opened(1);
    }
    assert.equal(descriptors.areShort, true);
    assert.ok(counts <= 4, `counted ${counts} times`);
    open = 10;
    assert.equal(descriptors.areShort, false, "there are some again");
  }
});

test("Descriptors: no limit, and another thread's", () => {
  assert.equal(new Descriptors({ limit: Number.POSITIVE_INFINITY, count: () => 1_000_000 }).areShort, false);
  const first = new Descriptors({ limit: 100, count: () => 50 });
  assert.equal(first.areShort, false);
  const second = new Descriptors({ limit: 100, count: () => 95, memory: first.memory });
  assert.equal(second.areShort, false, "what the first has counted is known");
  second.opened(40);
  assert.equal(first.areShort, false);
  second.opened(40);
  assert.equal(second.areShort, true);
});

test("Descriptors: those of this process are counted", () => {
  const limit = 10_000;
  const held = Array.from({ length: 30 }, () => openSync("/dev/null", "r"));
  try {
    assert.equal(new Descriptors({ limit: 30 }).areShort, true);
    assert.equal(new Descriptors({ limit }).areShort, false);
  } finally {
    for (const fd of held) closeSync(fd);
  }
});

test("TunnelLimiter: without descriptors there is none", () => {
  let open = 95;
  const limiter = new TunnelLimiter(() => ({ tunnels: 10, dialling: 10 }), {
    descriptors: new Descriptors({ limit: 100, count: () => open }),
  });
  assert.equal(limiter.tryTake(), false);
  assert.equal(limiter.tunnels, 0);
  open = 10;
  assert.equal(limiter.tryTake(), true);
});
