import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Cidr, IpAddress } from "#base/ip";
import type { RawElement } from "#kernel/nft-elements";
import { type ActualElements, type GuardChange, planElements, planLink } from "./diff.ts";
import type { GuardedLink } from "./types.ts";

const link = (
  ifindex: number,
  addresses: readonly string[],
  extra: readonly string[] | "unknown" = [],
): GuardedLink => ({
  ifindex,
  addresses: addresses.map((text) => IpAddress.parse(text)),
  extra: extra === "unknown" ? undefined : extra.map((text) => Cidr.parse(text)),
});
const EMPTY: ActualElements = { inet: new Map(), arp: new Map() };

/** The kernel's elements after changes; refuses what the kernel refuses. */
function apply(actual: ActualElements, changes: readonly GuardChange[]): ActualElements {
  const next = {
    inet: new Map(Array.from(actual.inet, ([set, elements]) => [set, [...elements]])),
    arp: new Map(Array.from(actual.arp, ([set, elements]) => [set, [...elements]])),
  };
  for (const { op, table, set, key, keyEnd } of changes) {
    const elements: RawElement[] = next[table].get(set) ?? [];
    const at = elements.findIndex((one) => one.key === key && one.keyEnd === keyEnd);
    if (op === "add") {
      if (at < 0) elements.push({ key, ...(keyEnd === undefined ? {} : { keyEnd }) });
    } else {
      assert.ok(at >= 0, `${table} ${set} lacks an element that is deleted`);
      elements.splice(at, 1);
    }
    next[table].set(set, elements);
  }
  return next;
}

const text = ({ inet, arp }: ActualElements): string[] =>
  [...inet, ...arp]
    .flatMap(([set, elements]) =>
      elements.map(({ key, keyEnd = "" }) => `${set} ${Buffer.from(key + keyEnd, "latin1").toString("hex")}`),
    )
    .sort();

const links = fc.uniqueArray(
  fc.record({
    ifindex: fc.integer({ min: 1, max: 6 }),
    addresses: fc.uniqueArray(fc.constantFrom("10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"), { maxLength: 2 }),
    extra: fc.uniqueArray(fc.constantFrom("10.1.0.0/24", "10.1.0.0/25", "10.1.0.9/32", "fd01::/64", "::/0"), {
      maxLength: 3,
    }),
  }),
  { maxLength: 4, selector: ({ ifindex }) => ifindex },
);

test("planElements: from any state to any other, and then nothing; one link at a time leads to the same", () => {
  fc.assert(
    fc.property(links, links, (before, after) => {
      const [old, fresh] = [before, after].map((some) =>
        some.map((one) => link(one.ifindex, one.addresses, one.extra)),
      );
      if (old === undefined || fresh === undefined) assert.fail();
      const first = apply(EMPTY, planElements(old, EMPTY));
      const changed = apply(first, planElements(fresh, first));
      assert.deepEqual(text(changed), text(apply(EMPTY, planElements(fresh, EMPTY))));
      assert.deepEqual(planElements(fresh, changed), []);
      let step = first;
      const there = new Map(old.map((one) => [one.ifindex, one] as const));
      for (const ifindex of new Set([...old, ...fresh].map((one) => one.ifindex))) {
        const wanted = fresh.find((one) => one.ifindex === ifindex);
        const had = there.get(ifindex);
        there.delete(ifindex);
        step = apply(step, planLink(had, wanted, [...there.values()]));
        if (wanted !== undefined) there.set(ifindex, wanted);
      }
      assert.deepEqual(text(step), text(changed));
    }),
  );
});

test("planElements: a held link is not judged until its extra sources are known or it is held no more; one that is judged stays judged", () => {
  const held = { ...link(7, ["10.0.0.1"], "unknown"), isHeld: true };
  const judged = (actual: ActualElements): boolean =>
    [actual.inet, actual.arp].every((sets) => sets.get("links")?.length === 1);
  const first = apply(EMPTY, planElements([held], EMPTY));
  assert.ok(!first.inet.has("links") && !first.arp.has("links"));
  assert.deepEqual(planElements([held], first), []);
  for (const next of [
    { ...held, isHeld: false },
    { ...held, extra: [] },
  ])
    assert.ok(judged(apply(first, planElements([next], first))));
  const before = apply(EMPTY, planElements([link(7, ["10.0.0.1"])], EMPTY));
  assert.deepEqual(planElements([held], before), []);
  assert.ok(judged(before));
});

test("planElements: what a link may use besides stays while it is not known, and a link that is kept stays whole", () => {
  const first = apply(
    EMPTY,
    planElements([link(7, ["10.0.0.1"], ["10.1.0.0/24", "10.1.1.1/32"]), link(8, ["10.0.0.2"])], EMPTY),
  );
  assert.deepEqual(planElements([link(7, ["10.0.0.1"], "unknown"), link(8, ["10.0.0.2"])], first), []);
  assert.deepEqual(
    planElements([link(7, [], "unknown"), link(8, ["10.0.0.2"])], first),
    [],
    "an address that cannot be read at a start is not taken away",
  );
  assert.deepEqual(planElements([link(8, ["10.0.0.2"])], first, new Set([7])), []);
  assert.ok(planElements([link(7, ["10.0.0.1"], []), link(8, ["10.0.0.2"])], first).every(({ op }) => op === "delete"));
});
