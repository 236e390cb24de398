import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Cidr } from "#base/ip";
import { parseForward, planForward } from "./plan.ts";

const BLOCKS = ["10.1.0.32/27", "10.1.0.0/27"].map((text) => Cidr.parse(text));
const OURS = [0, 32].flatMap((last) => [
  `-A FORWARD -s 10.1.0.${last}/27 -i veth+ -m comment --comment "isthmus: pods from 10.1.0.${last}/27" -j ACCEPT`,
  `-A FORWARD -d 10.1.0.${last}/27 -o veth+ -m comment --comment "isthmus: pods to 10.1.0.${last}/27" -j ACCEPT`,
]);
const REJECT = "-A FORWARD -j REJECT --reject-with icmp-host-prohibited";
const plan = (policy: string, ...rules: readonly string[]) =>
  planForward(parseForward([`-P FORWARD ${policy}`, ...rules].join("\n")) ?? assert.fail(), BLOCKS)?.split("\n");

test("planForward: nothing where nothing drops; with a policy DROP ours stand last, and before a last rule that drops all", () => {
  assert.equal(plan("ACCEPT"), undefined);
  assert.equal(plan("ACCEPT", "-A FORWARD -s 10.9.0.0/16 -j DROP"), undefined, "a drop of something is no drop of all");
  assert.deepEqual(plan("DROP", "-A FORWARD -j DOCKER-USER"), [
    "*filter",
    '-I FORWARD 2 -i veth+ -s 10.1.0.0/27 -m comment --comment "isthmus: pods from 10.1.0.0/27" -j ACCEPT',
    '-I FORWARD 3 -o veth+ -d 10.1.0.0/27 -m comment --comment "isthmus: pods to 10.1.0.0/27" -j ACCEPT',
    '-I FORWARD 4 -i veth+ -s 10.1.0.32/27 -m comment --comment "isthmus: pods from 10.1.0.32/27" -j ACCEPT',
    '-I FORWARD 5 -o veth+ -d 10.1.0.32/27 -m comment --comment "isthmus: pods to 10.1.0.32/27" -j ACCEPT',
    "COMMIT",
    "",
  ]);
  const [, first] = plan("ACCEPT", "-A FORWARD -i eth1 -j ACCEPT", REJECT) ?? [];
  assert.match(first ?? "", /^-I FORWARD 2 /);
});

test("planForward: what is right stays; what others put behind ours, changed blocks, and rules that nobody needs any more are corrected", () => {
  assert.equal(plan("DROP", "-A FORWARD -j X", ...OURS), undefined);
  assert.equal(plan("ACCEPT", "-A FORWARD -j X", ...OURS, REJECT), undefined);
  const moved = plan("DROP", ...OURS, "-A FORWARD -s 10.1.0.5/32 -j DROP") ?? [];
  const removals = OURS.map((rule) => rule.replace("-A", "-D"));
  assert.deepEqual(moved.slice(1, 5), removals, "a drop on purpose comes before ours");
  assert.match(moved[5] ?? "", /^-I FORWARD 2 /);
  assert.deepEqual(plan("ACCEPT", ...OURS)?.slice(1, -2), removals);
  assert.equal(plan("DROP", ...OURS.slice(0, 2))?.filter((line) => line.startsWith("-I")).length, 4);
});

test("parseForward: a comment with our words in a rule of others, and any text", () => {
  const [rule] =
    parseForward('-P FORWARD DROP\n-A FORWARD -m comment --comment "not isthmus: pods" -j DROP')?.rules ?? [];
  assert.deepEqual(rule, {
    text: '-m comment --comment "not isthmus: pods" -j DROP',
    comment: undefined,
    dropsAll: true,
  });
  assert.equal(parseForward("-P INPUT DROP"), undefined);
  fc.assert(
    fc.property(fc.array(fc.oneof(fc.constantFrom(...OURS, REJECT), fc.string())), (lines) => {
      const chain = parseForward(["-P FORWARD DROP", ...lines].join("\n")) ?? assert.fail();
      const script = planForward(chain, BLOCKS);
      assert.ok(script === undefined || script.startsWith("*filter\n"));
    }),
  );
});
