import assert from "node:assert/strict";
import { test } from "node:test";
import type { Link } from "#kernel/link";
import { planCutOff } from "./cut-off.ts";
import { groupOfNetwork, isOfNetwork } from "./link-groups.ts";

const link = (changes: Partial<Link>): Link => ({
  index: 7,
  name: "veth00000000",
  mtu: 1500,
  up: true,
  operState: "up",
  flags: 1,
  group: 0,
  ...changes,
});
const ofA = groupOfNetwork("a");
const cutOfA = 0x4a00_0000 | (ofA & 0xff_ffff);

for (const { name, is, cutOff, want } of [
  { name: "one that is well", is: {}, cutOff: false, want: undefined },
  { name: "one of a network, well", is: { group: ofA }, cutOff: false, want: undefined },
  { name: "one that is down by another's hand", is: { up: false }, cutOff: false, want: undefined },
  { name: "one to cut", is: {}, cutOff: true, want: ["cut", 0x4a00_0000] },
  { name: "one of a network to cut", is: { group: ofA }, cutOff: true, want: ["cut", cutOfA] },
  { name: "one of another's group to cut", is: { group: 5 }, cutOff: true, want: ["cut", 0x4a00_0000] },
  { name: "one that was down already", is: { up: false }, cutOff: true, want: ["cut", 0x4a00_0000] },
  { name: "one that is cut off", is: { up: false, group: cutOfA }, cutOff: true, want: undefined },
  { name: "one that somebody set up again", is: { group: cutOfA }, cutOff: true, want: ["cut", cutOfA] },
  { name: "one to join", is: { up: false, group: cutOfA }, cutOff: false, want: ["join", ofA] },
  { name: "one of no network to join", is: { up: false, group: 0x4a00_0000 }, cutOff: false, want: ["join", 0] },
  { name: "one of which nobody knows yet", is: {}, cutOff: undefined, want: undefined },
  {
    name: "one that is cut off, of which nobody knows yet",
    is: { up: false, group: cutOfA },
    cutOff: undefined,
    want: undefined,
  },
  {
    name: "one that somebody set up, of which nobody knows yet",
    is: { group: cutOfA },
    cutOff: undefined,
    want: ["cut", cutOfA],
  },
] as const) {
  test(`planCutOff: ${name}`, () => {
    const steps = planCutOff([{ link: link(is), cutOff }]).map(({ op, group }) => [op, group]);
    assert.deepEqual(steps, want === undefined ? [] : [want]);
  });
}

test("link groups: they tell networks apart, cut off or not, and no other group is of a network", () => {
  assert.equal(ofA >>> 24, 0x4b);
  assert.equal(groupOfNetwork(""), 0);
  assert.notEqual(groupOfNetwork("b"), ofA);
  for (const group of [ofA, cutOfA]) {
    assert.equal(isOfNetwork({ group }, "a"), true);
    assert.equal(isOfNetwork({ group }, "b"), false);
  }
  for (const group of [0, 5, 0x4900_0000 | (ofA & 0xff_ffff), ofA & 0xff_ffff]) {
    assert.equal(isOfNetwork({ group }, "a"), false);
  }
});
