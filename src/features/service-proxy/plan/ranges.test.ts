import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import { boundedWork } from "#test/bounded-work";
import { SETS } from "../rules/index.ts";
import { changeFrontEnd } from "./change.ts";
import type { FrontEnd } from "./front-end.ts";
import { addressKey } from "./keys.ts";
import { overlapFinder, withoutNested } from "./ranges.ts";

const rangeIn = (family: IpFamily) =>
  fc.tuple(fc.nat({ max: 255 }), fc.integer({ min: 0, max: 8 })).map(([value, length]) => {
    const bits = family === 4 ? 32 : 128;
    return Cidr.of(IpAddress.fromValue(family, BigInt(value) << BigInt(bits - 8)), length);
  });

test("overlapFinder: finds the ranges that overlap another one, and no others", () => {
  for (const family of [4, 6] as const)
    fc.assert(
      fc.property(fc.array(rangeIn(family), { maxLength: 12 }), rangeIn(family), (some, range) => {
        const ranges = withoutNested(some);
        const wanted = ranges.filter((one) => one.overlaps(range)).map(String);
        assert.deepEqual(overlapFinder(ranges)(range).map(String), wanted);
      }),
    );
});

/** As many as an object of 1.5 MiB has in loadBalancerSourceRanges. */
const MOST = 75_000;
const KEY = addressKey(IpAddress.parse("192.0.2.1"), "TCP", 80);

/** A front end with every second address from `first` on. */
function guarded(first: number): FrontEnd {
  const base = IpAddress.parse("10.0.0.0");
  return {
    ...{ key: KEY, isNodePort: false, service: "ns/web:http/TCP", verdict: undefined, localVerdict: undefined },
    ...{ noEndpoints: false, slots: [], localSlots: [], affinitySeconds: 0 },
    sourceRanges: Array.from({ length: MOST }, (_, at) => `${base.plus(BigInt(first + 2 * at))}/32`),
  };
}

test("changeFrontEnd: as many source ranges as an object can have are replaced by as many others in time with their number", () => {
  const [before, after] = [guarded(0), guarded(1)];
  const counts = { add: 0, delete: 0 };
  const changes = {
    add: (set: string): void => {
      if (set === SETS.firewallAllow) counts.add += 1;
    },
    delete: (set: string): void => {
      if (set === SETS.firewallAllow) counts.delete += 1;
    },
  };
  boundedWork(() => changeFrontEnd(before, after, { add: changes, switch: changes, remove: changes }));
  assert.deepEqual(counts, { add: MOST, delete: MOST });
});
