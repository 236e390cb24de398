import assert from "node:assert/strict";
import { Cidr } from "#base/ip";
import type { Rule, RuleSpec } from "#kernel/rule";
import { type ContractTarget, contractTest, refused } from "./target.ts";

const cidr = Cidr.parse;

/** The contract of every {@link RulePort}. */
export function ruleContract(target: ContractTarget): void {
  contractTest(target, "rules: a new namespace has the kernel's own", ({ a }) => {
    assert.deepEqual(
      a.rules.list(4).map(({ priority, table }) => [priority, table]),
      [
        [0, 255],
        [32766, 254],
        [32767, 253],
      ],
    );
    assert.deepEqual(
      a.rules.list(6).map(({ priority, table }) => [priority, table]),
      [
        [0, 255],
        [32766, 254],
      ],
    );
  });

  const samples: readonly RuleSpec[] = [
    { family: 4, priority: 2000, table: 116 },
    { family: 4, priority: 1000, table: 1005, fwmark: 5 },
    { family: 4, priority: 1001, table: 1005, fwmark: 0x10, fwmask: 0xff },
    { family: 4, priority: 1800, table: 254, to: cidr("169.254.0.0/16") },
    { family: 4, priority: 1801, table: 118, iif: "eth0", from: cidr("10.0.0.0/8") },
    { family: 4, priority: 1802, table: 254, suppressPrefixLength: 0, protocol: 30 },
    { family: 4, priority: 1803, action: "blackhole" },
    { family: 4, priority: 1804, table: 300, oif: "eth1", invert: true, fwmark: 1 },
    { family: 4, priority: 1805, action: "goto", goto: 32766 },
    { family: 6, priority: 2000, table: 116 },
    { family: 6, priority: 1800, table: 254, to: cidr("fe80::/10") },
  ];

  contractTest(
    target,
    "rules: what is added is listed in the order of priorities, once, and can be deleted",
    ({ a }) => {
      for (const spec of samples) a.rules.add(spec);
      for (const family of [4, 6] as const) {
        const own = a.rules.list(family).filter(({ priority }) => priority > 0 && priority < 32766);
        const wanted = samples.filter((spec) => spec.family === family).sort((x, y) => x.priority - y.priority);
        assert.equal(own.length, wanted.length);
        for (const [at, spec] of wanted.entries()) assertShows(own[at], spec);
      }
      for (const spec of samples) refused(() => a.rules.add(spec), "already-exists");
      for (const spec of samples) a.rules.delete(spec);
      for (const spec of samples) refused(() => a.rules.delete(spec), "not-found");
      assert.equal(a.rules.list(4).length, 3);
    },
  );

  contractTest(target, "rules: the same priority can lead to two tables, and delete needs the right one", ({ a }) => {
    a.rules.add({ family: 4, priority: 2000, table: 116 });
    a.rules.add({ family: 4, priority: 2000, table: 117 });
    refused(() => a.rules.delete({ family: 4, priority: 2000, table: 118 }), "not-found");
    a.rules.delete({ family: 4, priority: 2000, table: 116 });
    assert.deepEqual(
      a.rules
        .list(4)
        .filter(({ priority }) => priority === 2000)
        .map(({ table }) => table),
      [117],
    );
    a.rules.delete({ family: 4, priority: 2000 });
    assert.deepEqual(
      a.rules.list(4).filter(({ priority }) => priority === 2000),
      [],
    );
  });

  contractTest(target, "rules: nonsense is refused before the kernel is asked", ({ a }) => {
    refused(() => a.rules.add({ family: 4, priority: 1 }), "invalid");
    refused(() => a.rules.add({ family: 4, priority: -1, table: 1 }), "invalid");
    refused(() => a.rules.add({ family: 4, priority: 1, table: 1, to: cidr("fd00::/8") }), "invalid");
    refused(() => a.rules.add({ family: 4, priority: 1, action: "goto" }), "invalid");
  });
}

function assertShows(rule: Rule | undefined, spec: RuleSpec): void {
  assert.ok(rule !== undefined);
  for (const [key, value] of Object.entries(spec)) {
    assert.equal(String(rule[key as keyof Rule]), String(value), `${spec.priority} ${key}`);
  }
}
