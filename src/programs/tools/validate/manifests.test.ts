import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { checkManifests } from "./manifests.ts";

const pool = (name: string, ipv4: string): string => `apiVersion: coil.cybozu.com/v2
kind: AddressPool
metadata:
  name: ${name}
spec:
  blockSizeBits: 5
  subnets:
    - ipv4: ${ipv4}
`;
const check = (text: string, options = {}) => checkManifests([{ name: "f.yaml", text }], options);
/** The faults as `line object field: message`. */
const told = (text: string, options = {}): string[] =>
  check(text, options).faults.map(({ line, object, field, message }) => `${line} ${object} ${field}: ${message}`);

test("validate: sound objects of several documents and lists pass; other kinds are counted, and faults if strict", () => {
  const text = `${pool("a", "10.0.0.0/24")}---
# nothing
---
apiVersion: v1
kind: ConfigMap
metadata: { name: c }
---
apiVersion: v1
kind: List
items:
  - { apiVersion: coil.cybozu.com/v2, kind: Egress, metadata: { namespace: n, name: e }, spec: { destinations: [0.0.0.0/0] } }
---
{"apiVersion": "coil.cybozu.com/v2", "kind": "AddressBlockList", "items": [{"metadata": {"name": "a-0"}, "index": 0, "ipv4": "10.0.0.0/27"}]}
`;
  const report = check(text);
  assert.deepEqual([report.faults, report.warnings, report.checked, report.skipped], [[], [], 3, 1]);
  assert.deepEqual(told(text, { strict: true }), [
    "13 ConfigMap/c kind: ConfigMap of v1 is not checked: remove the file, or remove --strict",
  ]);
  assert.match(
    check(text, { dualStack: true }).warnings[0]?.message ?? "",
    /^0\.0\.0\.0\/0 without an IPv6 destination/,
  );
});

test("validate: each fault has its file, document, line, object and field", () => {
  const text = `${pool("a", "10.0.0.0/28")}---
${pool("b", "10.1.0.0/24").replace("  blockSizeBits: 5\n", "  blockSizeBits: five\n  typo: 1\n")}---
apiVersion: coil.cybozu.com/v2
kind: Egress
metadata: { namespace: n, name: Nat }
spec: { destinations: [10.0.0.1], replicas: 0 }
`;
  assert.deepEqual(told(text), [
    '8 AddressPool/a spec.subnets[0].ipv4: Invalid value: "10.0.0.0/28": is smaller than a block of 2^5 addresses',
    '15 AddressPool/b spec.blockSizeBits: Invalid value: "five": must be of type integer, not string',
    "16 AddressPool/b spec.typo: unknown field: an API server drops it",
    `22 Egress/n/Nat metadata.name: Invalid value: "Nat": must consist of lower case letters, digits, '-' and '.', and begin and end with a letter or digit`,
    '23 Egress/n/Nat spec.destinations[0]: Invalid value: "10.0.0.1": must be a CIDR, such as 10.0.0.0/8 or fd00::/8',
    "23 Egress/n/Nat spec.replicas: Invalid value: 0: must be greater than or equal to 1",
  ]);
  assert.deepEqual(
    check(text).faults.map(({ file, document }) => [file, document]),
    [1, 2, 2, 3, 3, 3].map((document) => ["f.yaml", document]),
  );
});

test("validate: pools of all files are compared with each other, and one that is given twice is named", () => {
  const { faults } = checkManifests([
    { name: "a.yaml", text: pool("a", "10.0.0.0/16") },
    { name: "b.yaml", text: pool("b", "10.0.1.0/24") },
    { name: "c.yaml", text: pool("a", "10.0.0.0/16") },
  ]);
  const lines = faults.map(({ file, field, message }) => `${file} ${field} ${message}`);
  assert.match(lines.join("\n"), /^b.yaml spec.subnets\[0\] .*overlaps with a subnet of AddressPool a$/m);
  assert.match(lines.join("\n"), /^c.yaml metadata.name Duplicate value: "a": the files contain the object twice$/m);
});

test("validate: addresses of an Egress are compared with the pools and Egresses of all files", () => {
  const egress = (name: string, ipv4: string): string => `apiVersion: coil.cybozu.com/v2
kind: Egress
metadata: { namespace: n, name: ${name} }
spec: { destinations: [0.0.0.0/0], replicas: 2, addresses: [{ ipv4: ${ipv4} }] }
`;
  const { faults, warnings } = checkManifests([
    { name: "a.yaml", text: pool("a", "203.0.113.0/27") },
    { name: "b.yaml", text: egress("b", "203.0.113.9/32") },
    { name: "c.yaml", text: egress("c", "203.0.113.64/31") },
    { name: "d.yaml", text: egress("d", "203.0.113.65/32") },
  ]);
  const lines = faults.map(({ file, field, message }) => `${file} ${field} ${message}`).join("\n");
  assert.match(lines, /^b.yaml spec.addresses\[0\] .*overlaps with a subnet of AddressPool a$/m);
  assert.match(lines, /^c.yaml spec.addresses\[0\] .*Egress n\/d$/m);
  assert.match(lines, /^d.yaml spec.addresses\[0\] .*Egress n\/c$/m);
  assert.deepEqual(
    warnings.map(({ file, field }) => `${file} ${field}`),
    ["b.yaml spec.replicas", "d.yaml spec.replicas"],
  );
});

test("validate: broken YAML, no object, an unknown kind, and missing names are faults of their documents alone", () => {
  const text = `a: [1
---
just text
---
apiVersion: coil.cybozu.com/v1
kind: AddressPool
metadata: { name: a }
---
apiVersion: coil.cybozu.com/v2
kind: AddressPool
---
kind: AddressPool
---
${pool("ok", "10.0.0.0/24")}`;
  const report = check(text);
  assert.equal(report.checked, 2);
  const lines = report.faults.map(({ document, field, message }) => `${document} ${field}: ${message}`);
  for (const wanted of [
    /^1 : /,
    /^2 : is not an object with apiVersion and kind$/,
    /^3 apiVersion: there is no kind AddressPool in coil.cybozu.com\/v1: its version is v2$/,
    /^4 metadata.name: Required value$/,
    /^4 spec: Required value/,
    /^5 apiVersion: Required value$/,
  ]) {
    assert.ok(
      lines.some((line) => wanted.test(line)),
      `${wanted} is not in\n${lines.join("\n")}`,
    );
  }
  assert.ok(!lines.some((line) => line.startsWith("6 ")));
});

test("fuzz: any text, and any object of our kinds, gets a report", () => {
  const object = fc.record(
    {
      apiVersion: fc.constant("coil.cybozu.com/v2"),
      kind: fc.constantFrom("AddressPool", "AddressBlock", "BlockRequest", "Egress", "Pool"),
      metadata: fc.oneof(
        fc.jsonValue(),
        fc.record({ name: fc.jsonValue(), finalizers: fc.jsonValue() }, { requiredKeys: [] }),
      ),
      spec: fc.oneof(
        fc.jsonValue(),
        fc.record(
          {
            subnets: fc.oneof(
              fc.jsonValue(),
              fc.array(fc.record({ ipv4: fc.jsonValue(), ipv6: fc.jsonValue() }, { requiredKeys: [] })),
            ),
            blockSizeBits: fc.jsonValue(),
            destinations: fc.jsonValue(),
            template: fc.jsonValue(),
            podDisruptionBudget: fc.jsonValue(),
          },
          { requiredKeys: [] },
        ),
      ),
      index: fc.jsonValue(),
    },
    { requiredKeys: ["apiVersion", "kind"] },
  );
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        object.map((value) => JSON.stringify(value)),
      ),
      fc.boolean(),
      (text, strict) => {
        const { faults } = check(text, { strict });
        for (const { line, document } of faults) assert.ok(line >= 1 && document >= 1);
      },
    ),
    { numRuns: 1500 },
  );
});
