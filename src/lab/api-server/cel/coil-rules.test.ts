import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  type AddressPoolSpec,
  coilAdmissions,
  coilCrds,
  type EgressSpec,
  type SubnetSet,
  validateEgress,
  validatePoolCreate,
  validatePoolUpdate,
} from "#kube/coil";
import type { CrdManifest } from "#kube/crd";
import type { JsonObject } from "../object/json.ts";
import { applyDefaults, type Schema, validate } from "../schema/index.ts";
import { checkRules, compileRules } from "./index.ts";

const NONE = new Map();

interface Judge {
  /** Returns true if an API server accepts it. */
  readonly takes: (spec: object, old?: object) => boolean;
}

/** The answer of an API server with the CRD. */
function judgeOf(kind: string): Judge {
  const crd: CrdManifest | undefined = coilCrds.find(({ spec }) => spec.names.kind === kind);
  const schema = JSON.parse(JSON.stringify(crd?.spec.versions[0]?.schema.openAPIV3Schema)) as Schema;
  const { rules, causes } = compileRules(schema, "schema");
  assert.deepEqual(causes, []);
  const objectOf = (spec: object | undefined): JsonObject | undefined => {
    if (spec === undefined) return undefined;
    const object = { metadata: { name: "x" }, spec: JSON.parse(JSON.stringify(spec)) };
    applyDefaults(object, schema, NONE);
    return object;
  };
  return {
    takes: (spec, old) => {
      const [object, before] = [objectOf(spec) ?? {}, objectOf(old)];
      if (validate(object, schema, NONE, { custom: true, old: before }).length > 0) return false;
      return rules === undefined || checkRules(rules, object, before, () => undefined).length === 0;
    },
  };
}

const V4 = ["10.0.0.0/24", "10.1.0.7/25", "10.2.0.0/32", "0.0.0.0/0", "10.0.0.0/99", "10.0.0.0", "x", "fd00::/64"];
const V6 = [
  "fd00::/120",
  "fd01::/121",
  "FD02::1/128",
  "::/0",
  "::ffff:10.0.0.0/120",
  "fd00::/129",
  "fd00::",
  "10.0.0.0/24",
];
const subnet: fc.Arbitrary<SubnetSet> = fc
  .record({ ipv4: fc.constantFrom(...V4), ipv6: fc.constantFrom(...V6) }, { requiredKeys: [] })
  .map((entry) => entry as SubnetSet);
const subnets = fc.array(subnet, { minLength: 1, maxLength: 5 });
const bits = fc.option(fc.constantFrom(0, 3, 5, 7, 8, 9, 31, 32, 33, 128, 129), { nil: undefined });

function poolOf(list: SubnetSet[], blockSizeBits: number | undefined): AddressPoolSpec {
  return { subnets: list, ...(blockSizeBits === undefined ? {} : { blockSizeBits }) };
}

/** Faults that Coil's webhook does not know, so that an API server must let them pass. */
const OURS = /overlaps with|must have the same families/;

test("AddressPool: an API server refuses a new one exactly when Coil's webhook would", () => {
  const { takes } = judgeOf("AddressPool");
  fc.assert(
    fc.property(subnets, bits, (list, blockSizeBits) => {
      const spec = poolOf(list, blockSizeBits);
      const faults = validatePoolCreate({ metadata: { name: "x" }, spec }).filter(({ message }) => !OURS.test(message));
      assert.equal(takes(spec), faults.length === 0, JSON.stringify(faults));
    }),
    { numRuns: 2000 },
  );
});

test("AddressPool: an API server refuses a change of a valid pool exactly if Coil's webhook would", () => {
  const { takes } = judgeOf("AddressPool");
  const good = fc.array(
    fc.constantFrom<SubnetSet>(
      { ipv4: "10.0.0.0/24" },
      { ipv4: "10.1.0.0/24", ipv6: "fd00::/120" },
      { ipv6: "fd01::/64" },
    ),
    {
      minLength: 1,
      maxLength: 12,
    },
  );
  const change = fc.oneof(
    fc.record({ op: fc.constant("append" as const), at: fc.nat(12), entry: subnet }),
    fc.record({
      op: fc.constantFrom("set" as const, "insert" as const, "remove" as const),
      at: fc.nat(12),
      entry: subnet,
    }),
  );
  fc.assert(
    fc.property(good, fc.array(change, { maxLength: 3 }), fc.constantFrom(5, 6, undefined), (list, changes, size) => {
      const next = [...list];
      for (const { op, at, entry } of changes) {
        if (op === "append") next.push(entry);
        else if (op === "set") next[at % next.length] = entry;
        else if (op === "insert") next.splice(at % next.length, 0, entry);
        else if (next.length > 1) next.splice(at % next.length, 1);
      }
      const [old, spec] = [poolOf(list, 5), poolOf(next, size)];
      const [before, after] = [old, spec].map((each) => ({ metadata: { name: "x" }, spec: each }));
      assert.ok(before !== undefined && after !== undefined);
      const faults = validatePoolUpdate(before, after).filter(({ message }) => !OURS.test(message));
      assert.equal(takes(spec, old), faults.length === 0, JSON.stringify(faults));
    }),
    { numRuns: 2000 },
  );
});

test("AddressPool: an invalid pool that was stored before is accepted unchanged", () => {
  const { takes } = judgeOf("AddressPool");
  fc.assert(
    fc.property(fc.array(subnet, { maxLength: 5 }), bits, (list, blockSizeBits) => {
      const spec = poolOf(list, blockSizeBits);
      assert.ok(takes(spec, spec));
    }),
  );
});

test("Egress: an API server refuses only what Coil's webhook would, and all of it but keys of labels and annotations and duplicates", () => {
  const { takes } = judgeOf("Egress");
  const amount = fc.oneof(
    fc.constantFrom("5%", "100%", "101%", "007%", "x", "%", "1.5%"),
    fc.integer({ min: -2, max: 200 }),
  );
  const spec = fc.record(
    {
      destinations: fc.array(fc.constantFrom("10.0.0.0/8", "fd00::/8", "::/0", "10.0.0.0", "x"), { maxLength: 3 }),
      replicas: fc.integer({ min: -1, max: 3 }),
      strategy: fc.record({ type: fc.constantFrom("Recreate", "RollingUpdate", "Blue") }, { requiredKeys: [] }),
      template: fc.record({
        metadata: fc.record({
          labels: fc.dictionary(fc.constantFrom("a", "b.c/d"), fc.constantFrom("x", "", "-x", "y".repeat(64))),
        }),
      }),
      podDisruptionBudget: fc.record({ minAvailable: amount, maxUnavailable: amount }, { requiredKeys: [] }),
    },
    { requiredKeys: ["destinations"] },
  );
  fc.assert(
    fc.property(spec, (each) => {
      const { faults } = validateEgress({ spec: each as EgressSpec });
      const known = faults.filter(({ reason }) => reason !== "FieldValueDuplicate");
      assert.equal(takes(each), known.length === 0, JSON.stringify(faults));
    }),
    { numRuns: 2000 },
  );
});

/** A value that is sound, slightly wrong, or of another type. */
const odd = <T>(sound: fc.Arbitrary<T>): fc.Arbitrary<unknown> =>
  fc.oneof({ weight: 12, arbitrary: sound }, { weight: 1, arbitrary: fc.constantFrom("x", 7, 1.5, true, {}, [], [7]) });
const maybe = (members: Readonly<Record<string, fc.Arbitrary<unknown>>>): fc.Arbitrary<object> =>
  fc.record(members, { requiredKeys: [] });
const ODD_SPECS: Readonly<Record<string, fc.Arbitrary<unknown>>> = {
  AddressPool: odd(
    maybe({
      blockSizeBits: odd(fc.constantFrom(0, 5, -1, 2 ** 31)),
      subnets: odd(
        fc.array(
          odd(
            maybe({ ipv4: odd(fc.constant("10.0.0.0/24")), ipv6: odd(fc.constantFrom("fd00::/120", "x".repeat(65))) }),
          ),
          {
            maxLength: 3,
          },
        ),
      ),
    }),
  ),
  BlockRequest: odd(maybe({ nodeName: odd(fc.constant("n")), poolName: odd(fc.constant("p")) })),
};

test("webhook and CRD: objects of any shape are refused by both or by none, and no rule reads what has another shape", () => {
  for (const [kind, specs] of Object.entries(ODD_SPECS)) {
    const admission = coilAdmissions.find(({ type }) => type.kind === kind);
    assert.ok(admission !== undefined);
    const { takes } = judgeOf(kind);
    fc.assert(
      fc.property(specs, (spec) => {
        const { faults } = admission.check({ metadata: { name: "x" }, spec }, undefined, { pools: [] });
        const known = faults.filter(({ message }) => !OURS.test(message));
        assert.equal(takes(spec as object), known.length === 0, `${JSON.stringify(spec)}: ${JSON.stringify(faults)}`);
      }),
      { numRuns: 2000 },
    );
  }
});

test("webhook: a change that leaves the spec alone passes whatever was stored, and without asking for other pools", () => {
  for (const admission of coilAdmissions) {
    fc.assert(
      fc.property(fc.jsonValue(), (spec) => {
        const [old, object] = [
          { metadata: { name: "x", finalizers: ["f"] }, spec },
          { metadata: { name: "x" }, spec: structuredClone(spec) },
        ];
        assert.ok(admission.isUnchanged(object, old));
        assert.deepEqual(admission.check(object, old, {}).faults, []);
      }),
      { numRuns: 200 },
    );
  }
});
