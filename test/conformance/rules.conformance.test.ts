import assert from "node:assert/strict";
import { after, before, suite, test } from "node:test";
import { coilCrds } from "#kube/coil";
import type { CrdManifest } from "#kube/crd";
import { unruled } from "#test/unruled";
import { Cluster, GROUP, whyNotRunnable } from "./cluster.ts";

const skip = await whyNotRunnable();
/** The CRDs that ship, in a group of the suite's own: the cluster may have Coil's. */
const COIL = `coil.rules.${GROUP}`;
const PROBES = `probes.rules.${GROUP}`;

/** The refusal of a CRD, as kubectl prints it; empty if it is accepted. */
type Refused = string;

suite("API servers ask the rules of CRDs", { skip, concurrency: false }, () => {
  let cluster: Cluster;
  const made: string[] = [];

  before(async () => {
    cluster = await Cluster.open("rules");
    for (const crd of coilCrds) await define(ours(crd));
    await define(probes("self.size() <= 3"));
  });

  after(async () => {
    for (const name of made) await cluster.run(["delete", "crd", name, "--wait=false"]);
    await cluster[Symbol.asyncDispose]();
  });

  async function define(crd: { readonly metadata: { readonly name: string } }): Promise<void> {
    await cluster.apply(crd);
    if (!made.includes(crd.metadata.name)) made.push(crd.metadata.name);
    await cluster.run(["wait", "--for=condition=established", `crd/${crd.metadata.name}`, "--timeout=20s"]);
  }

  /** Runs kubectl on an object and returns the refusal. Other errors than those of the object's content fail the test. */
  async function send(object: object, ...args: readonly string[]): Promise<Refused> {
    const verb = args.length === 0 ? ["create", "--validate=false", "-f", "-"] : args;
    const outcome = await cluster.try(verb, { stdin: JSON.stringify(object) });
    assert.ok(outcome.code === 0 || outcome.stderr.includes("is invalid"), outcome.stderr);
    return outcome.code === 0 ? "" : outcome.stderr;
  }

  /** Waits until a changed CRD is in force. */
  async function inForce(object: object, isRefused: boolean): Promise<void> {
    const deadline = performance.now() + 20_000;
    const dry = ["create", "--validate=false", "--dry-run=server", "-f", "-"];
    while (((await send(object, ...dry)) !== "") !== isRefused) {
      if (performance.now() > deadline) throw new Error("the changed CRD was not in force within 20 s");
    }
  }

  const patch = (what: string, body: object): Promise<Refused> =>
    send({}, "patch", ...what.split("/"), "--type=merge", "-p", JSON.stringify(body));

  test("a rule that does not compile refuses the CRD, and the place is shown", async () => {
    const unknown = await send(probes("self.contains(nope)"), "apply", "-f", "-");
    assert.match(unknown, /x-kubernetes-validations\[0\]\.rule/);
    assert.match(
      unknown,
      /compilation failed: ERROR: <input>:1:15: undeclared reference to 'nope' \(in container ''\)/,
    );
    assert.match(await send(probes("self.size()"), "apply", "-f", "-"), /cel expression must evaluate to a bool/);
    assert.match(await send(probes("self =="), "apply", "-f", "-"), /ERROR: <input>:1:8: Syntax error/);
    assert.match(
      await send(probes("self == 5"), "apply", "-f", "-"),
      /found no matching overload for '_==_' applied to '\(string, int\)'/,
    );
  });

  test("create, replace, patch and both kinds of apply are held to the rules", async () => {
    const long = /name: Invalid value: "long": at most 3/;
    assert.match(await send(probe("a", "long")), long);
    assert.equal(await send(probe("a", "abc")), "");
    const stored = await cluster.get(PROBES, "a");
    assert.match(await send({ ...stored, name: "long" }, "replace", "--validate=false", "-f", "-"), long);
    assert.match(await patch(`${PROBES}/a`, { name: "long" }), long);
    assert.match(await send(probe("a", "long"), "apply", "--validate=false", "-f", "-"), long);
    const apply = ["apply", "--validate=false", "--server-side", "--force-conflicts", "-f", "-"];
    assert.match(await send(probe("a", "long"), ...apply), long);
    assert.match(await send(probe("b", "long"), ...apply), long);
    assert.equal(await send(probe("a", "x"), ...apply), "");
    assert.equal(await cluster.value([PROBES, "a"], "{.name}"), "x");
  });

  test("status is checked by its rules and those of the whole object; the error has reason and field path", async () => {
    assert.equal(await send(probe("s", "abc")), "");
    const status = async (value: object): Promise<Refused> => {
      const stored = await cluster.get(PROBES, "s");
      const path = `/apis/${PROBES.slice("probes.".length)}/v1/probes/s/status`;
      return send({ ...stored, status: value }, "replace", "--raw", path, "-f", "-");
    };
    assert.equal(await status({ done: 1, of: 2 }), "");
    assert.match(await status({ done: 3, of: 2 }), /status\.done: Forbidden: more than two/);
    assert.match(await status({ done: 0, of: 2 }), /status\.done: Invalid value: 0: never falls/);
    assert.match(await status({ done: 2, of: 9 }), /<nil>: Invalid value: no more than the name has letters/);
    assert.equal(await cluster.value([PROBES, "s"], "{.status.done}"), "1");
  });

  test("a rule that cannot be evaluated refuses, and rules do not run after faults of the schema", async () => {
    assert.match(
      await send({ ...probe("e", "abc"), list: [] }),
      /list: Invalid value: "array": index out of bounds: 0 evaluating rule: begins with 1/,
    );
    const both = await send({ ...probe("e", "long"), list: [2], kindOf: "c" });
    assert.match(both, /kindOf: Unsupported value: "c"/);
    assert.match(
      both,
      /<nil>: Invalid value: null: some validation rules were not checked because the object was invalid/,
    );
    assert.doesNotMatch(both, /begins with 1/);
  });

  test("optionalOldSelf: a rule also runs on create, without an old value", async () => {
    assert.match(await send({ ...probe("o", "abc"), count: 1 }), /count: Invalid value: 1: from 0 upwards/);
    assert.equal(await send({ ...probe("o", "abc"), count: 0 }), "");
    assert.equal(await patch(`${PROBES}/o`, { count: 5 }), "");
    assert.match(await patch(`${PROBES}/o`, { count: 4 }), /count: Invalid value: 4: from 0 upwards/);
  });

  const POOLS: readonly (readonly [string, object, RegExp | undefined])[] = [
    ["one family", { subnets: [{ ipv4: "10.0.0.0/24" }] }, undefined],
    ["both, host bits set", { blockSizeBits: 3, subnets: [{ ipv4: "10.0.0.7/24", ipv6: "FD00::1/120" }] }, undefined],
    [
      "subnets as small as a block",
      { blockSizeBits: 0, subnets: [{ ipv4: "10.0.0.1/32", ipv6: "fd00::1/128" }] },
      undefined,
    ],
    ["all there is", { subnets: [{ ipv4: "0.0.0.0/0" }] }, undefined],
    ["a large IPv6 block", { blockSizeBits: 64, subnets: [{ ipv6: "fd00::/48" }] }, undefined],
    [
      "families in turns, which Coil lets through",
      { subnets: [{ ipv4: "10.0.0.0/24" }, { ipv6: "fd00::/64" }] },
      undefined,
    ],
    [
      "the same twice, which Coil lets through",
      { subnets: [{ ipv4: "10.0.0.0/24" }, { ipv4: "10.0.0.0/24" }] },
      undefined,
    ],
    ["an IPv4-mapped IPv6 subnet", { subnets: [{ ipv6: "::ffff:10.0.0.0/104" }] }, undefined],
    [
      "no CIDR",
      { subnets: [{ ipv4: "10.0.0.0" }] },
      /spec\.subnets\[0\]\.ipv4: Invalid value: "10\.0\.0\.0": .*of type cidr/,
    ],
    ["a mask that is none", { subnets: [{ ipv4: "10.0.0.0/99" }] }, /spec\.subnets\[0\]\.ipv4: Invalid value/],
    [
      "the other family",
      { subnets: [{ ipv4: "fd00::/64" }] },
      /subnets\[0\]\.ipv4: Invalid value: .*must be an IPv4 CIDR/,
    ],
    [
      "and the other way round",
      { subnets: [{ ipv6: "10.0.0.0/24" }] },
      /subnets\[0\]\.ipv6: Invalid value: .*must be an IPv6 CIDR/,
    ],
    ["an entry of neither", { subnets: [{}] }, /spec\.subnets\[0\]: Required value: ipv4, ipv6 or both/],
    ["no entry", { subnets: [] }, /spec\.subnets: Invalid value: 0: .*at least 1 items/],
    [
      "other host bits",
      { subnets: [{ ipv4: "10.0.0.0/24", ipv6: "fd00::/64" }] },
      /subnets\[0\]: Invalid value: .*same number of host bits/,
    ],
    [
      "a block larger than IPv4's",
      { blockSizeBits: 9, subnets: [{ ipv4: "10.0.0.0/24" }] },
      /spec\.subnets: Invalid value: .*smaller than a block/,
    ],
    [
      "a block larger than IPv6's",
      { blockSizeBits: 65, subnets: [{ ipv6: "fd00::/64" }] },
      /spec\.subnets: Invalid value: .*smaller than a block/,
    ],
    [
      "block bits that are no int32",
      { blockSizeBits: 2 ** 31, subnets: [{ ipv6: "fd00::/64" }] },
      /integer with format int32 in spec\.blockSizeBits/,
    ],
    [
      "block bits below 0",
      { blockSizeBits: -1, subnets: [{ ipv6: "fd00::/64" }] },
      /spec\.blockSizeBits: Invalid value: -1/,
    ],
    ["no spec", undefined as unknown as object, /spec: Required value/],
  ];

  for (const [what, spec, why] of POOLS) {
    test(`AddressPool: with ${what} it is ${why === undefined ? "accepted" : "refused"}`, async () => {
      const refused = await send(
        coil("AddressPool", "p", { spec }),
        "create",
        "--validate=false",
        "--dry-run=server",
        "-f",
        "-",
      );
      if (why === undefined) assert.equal(refused, "");
      else assert.match(refused, why);
    });
  }

  test("AddressPool: subnets can be appended; they cannot be changed, moved or removed, nor can the block size", async () => {
    const [a, b, c] = [{ ipv4: "10.1.0.0/24" }, { ipv4: "10.2.0.0/24", ipv6: "fd02::/120" }, { ipv4: "10.3.0.0/24" }];
    const pool = `addresspools.${COIL}/grown`;
    const subnets = (...list: object[]): Promise<Refused> => patch(pool, { spec: { subnets: list } });
    assert.equal(await send(coil("AddressPool", "grown", { spec: { blockSizeBits: 2, subnets: [a] } })), "");
    assert.equal(await subnets(a, b), "");
    assert.equal(await subnets(a, b, a), "");
    const unchangeable = /spec\.subnets: Forbidden: .*existing subnets cannot be changed or removed/;
    assert.match(await subnets(a, b), /spec\.subnets: Forbidden: unshrinkable/);
    assert.match(await subnets(b, a, a), unchangeable);
    assert.match(await subnets(a, c, a), unchangeable);
    assert.match(await subnets(a, b, c), unchangeable);
    assert.match(await subnets(a, { ipv4: "10.2.0.0/24" }, a), unchangeable);
    assert.match(await subnets(c, a, b, a), unchangeable);
    assert.match(await subnets(a, b, a, { ipv4: "10.9.0.0" }), /subnets\[3\]\.ipv4: Invalid value/);
    const bits = /spec\.blockSizeBits: Forbidden: unchangeable/;
    assert.match(await patch(pool, { spec: { blockSizeBits: 3 } }), bits);
    assert.match(await patch(pool, { spec: { blockSizeBits: null } }), bits, "the default is another");
    assert.equal(await patch(pool, { metadata: { finalizers: ["coil.cybozu.com"] } }), "");
    assert.equal(await patch(pool, { metadata: { finalizers: null } }), "");
  });

  test("AddressPool: one with thousands of subnets can be made, appended to and let go", async () => {
    const count = 9_999;
    const list = Array.from({ length: count }, (_, at) => ({ ipv4: `10.${at >> 8}.${at & 255}.0/24` }));
    const large = coil("AddressPool", "large", { spec: { subnets: list } });
    assert.equal(await send(large), "");
    const more = { subnets: [...list, { ipv4: "10.255.0.0/24" }] };
    const replace = ["replace", "--validate=false", "-f", "-"];
    const stored = await cluster.get(`addresspools.${COIL}`, "large");
    assert.equal(await send({ ...stored, spec: more }, ...replace), "");
    const changed = { subnets: [...more.subnets.slice(0, -1), { ipv4: "10.254.0.0/24" }] };
    const now = await cluster.get(`addresspools.${COIL}`, "large");
    assert.match(
      await send({ ...now, spec: { ...changed, blockSizeBits: 5 } }, ...replace),
      /existing subnets cannot be changed or removed/,
    );
    assert.equal(await patch(`addresspools.${COIL}/large`, { metadata: { finalizers: ["coil.cybozu.com"] } }), "");
    assert.equal(await patch(`addresspools.${COIL}/large`, { metadata: { finalizers: null } }), "");
  });

  test("an object from before the rules can lose its finalizer, and changes that they refuse are refused", async () => {
    const finalizers = ["coil.cybozu.com"];
    const odd = [
      coil("AddressPool", "odd", { spec: { subnets: [{ ipv4: "10.0.0.0" }, {}, { ipv4: "x", ipv6: "fd00::/99" }] } }),
      coil("AddressBlock", "odd", { index: 0, ipv4: "nonsense" }),
      coil("Egress", "odd", { spec: { destinations: ["x"], podDisruptionBudget: { minAvailable: "x" } } }),
    ];
    for (const crd of coilCrds) await define(unruled(ours(crd)));
    for (const object of odd) {
      await inForce({ ...object, metadata: { name: "probe" } }, false);
      assert.equal(await send({ ...object, metadata: { name: "odd", finalizers } }), "");
    }
    for (const crd of coilCrds) await define(ours(crd));
    for (const object of odd) {
      await inForce({ ...object, metadata: { name: "probe" } }, true);
      const what = `${object.kind.toLowerCase()}.${COIL}/odd`;
      assert.equal(await patch(what, { metadata: { finalizers: null, labels: { a: "b" } } }), "", object.kind);
    }
    assert.match(
      await patch(`addresspools.${COIL}/odd`, { spec: { subnets: [{ ipv4: "10.0.0.0/8" }] } }),
      /unshrinkable/,
    );
    assert.match(
      await patch(`egresses.${COIL}/odd`, { spec: { destinations: ["y"] } }),
      /destinations\[0\]: Invalid value: "y"/,
    );
    assert.equal(await patch(`egresses.${COIL}/odd`, { spec: { destinations: ["10.0.0.0/8"] } }), "");
  });

  test("AddressBlock: its index and prefixes cannot be changed, its labels and finalizers can", async () => {
    const block = `addressblocks.${COIL}/b`;
    assert.equal(await send(coil("AddressBlock", "b", { index: 4, ipv4: "10.3.0.0/31" })), "");
    assert.match(await patch(block, { index: 5 }), /index: Forbidden: unchangeable/);
    assert.match(await patch(block, { ipv4: "10.4.0.0/31" }), /ipv4: Forbidden: unchangeable/);
    assert.match(await patch(block, { ipv4: null }), /ipv4: Forbidden: unchangeable/);
    assert.match(await patch(block, { ipv6: "fd00::/127" }), /ipv6: Forbidden: unchangeable/);
    assert.equal(await patch(block, { metadata: { labels: { node: "n" }, finalizers: ["coil.cybozu.com"] } }), "");
    assert.equal(await patch(block, { metadata: { finalizers: null } }), "");
    assert.match(await send(coil("AddressBlock", "c", { index: 1, ipv6: "fd00::" })), /ipv6: Invalid value: "fd00::"/);
  });

  test("BlockRequest: its spec cannot be changed, its status can", async () => {
    assert.equal(await send(coil("BlockRequest", "r", { spec: { nodeName: "n", poolName: "p" } })), "");
    const request = `blockrequests.${COIL}/r`;
    assert.match(await patch(request, { spec: { poolName: "q" } }), /spec: Forbidden: unchangeable/);
    const stored = await cluster.get(`blockrequests.${COIL}`, "r");
    const status = {
      addressBlockName: "p-0",
      conditions: [{ type: "Complete", status: "True", lastTransitionTime: "2026-01-01T00:00:00Z" }],
    };
    const path = `/apis/${COIL}/v2/blockrequests/r/status`;
    assert.equal(await send({ ...stored, status }, "replace", "--raw", path, "-f", "-"), "");
    assert.equal(await patch(request, { metadata: { labels: { a: "b" } } }), "");
  });

  const EGRESSES: readonly (readonly [string, object, RegExp | undefined])[] = [
    ["every kind of destination", { destinations: ["10.0.0.0/8", "fd00::/8", "0.0.0.0/0"] }, undefined],
    ["a budget in numbers", { podDisruptionBudget: { minAvailable: 0 } }, undefined],
    ["a budget in percents", { podDisruptionBudget: { maxUnavailable: "100%" } }, undefined],
    ["labels", { template: { metadata: { labels: { "a.b/c": "x_Y.1", empty: "" } } } }, undefined],
    ["a strategy", { strategy: { type: "Recreate" } }, undefined],
    [
      "a destination that is no CIDR",
      { destinations: ["10.0.0.0/8", "a"] },
      /spec\.destinations\[1\]: Invalid value: "a"/,
    ],
    ["another strategy", { strategy: { type: "Blue" } }, /spec\.strategy\.type: Unsupported value: "Blue"/],
    ["both sides of a budget", { podDisruptionBudget: { minAvailable: 1, maxUnavailable: 1 } }, /cannot both be set/],
    ["a negative budget", { podDisruptionBudget: { minAvailable: -1 } }, /minAvailable: Invalid value: -1/],
    ["more than all", { podDisruptionBudget: { minAvailable: "101%" } }, /minAvailable: Invalid value: "101%"/],
    ["a label value that is none", { template: { metadata: { labels: { a: "-" } } } }, /labels\.a: Invalid value: "-"/],
  ];

  for (const [what, spec, why] of EGRESSES) {
    test(`Egress: with ${what} it is ${why === undefined ? "accepted" : "refused"}`, async () => {
      const egress = coil("Egress", "e", { spec: { destinations: ["10.0.0.0/8"], ...spec } });
      const refused = await send(egress, "create", "--validate=false", "--dry-run=server", "-f", "-");
      if (why === undefined) assert.equal(refused, "");
      else assert.match(refused, why);
    });
  }
});

/** A CRD of the suite's: rules on a text, on numbers, on a list, on the whole object and on status. */
function probes(rule: string): { readonly metadata: { readonly name: string } } {
  const group = PROBES.slice("probes.".length);
  const integer = { type: "integer" };
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `probes.${group}` },
    spec: {
      group,
      scope: "Cluster",
      names: { plural: "probes", kind: "Probe" },
      versions: [
        {
          name: "v1",
          served: true,
          storage: true,
          subresources: { status: {} },
          schema: {
            openAPIV3Schema: {
              type: "object",
              properties: {
                name: {
                  type: "string",
                  maxLength: 20,
                  "x-kubernetes-validations": [{ rule, message: "at most 3" }],
                },
                kindOf: { type: "string", enum: ["a", "b"] },
                list: {
                  type: "array",
                  maxItems: 5,
                  items: integer,
                  "x-kubernetes-validations": [{ rule: "self[0] == 1", message: "begins with 1" }],
                },
                count: {
                  type: "integer",
                  "x-kubernetes-validations": [
                    {
                      rule: "oldSelf.hasValue() ? self >= oldSelf.value() : self == 0",
                      message: "from 0 upwards",
                      optionalOldSelf: true,
                    },
                  ],
                },
                status: {
                  type: "object",
                  properties: {
                    done: {
                      type: "integer",
                      "x-kubernetes-validations": [{ rule: "self >= oldSelf", message: "never falls" }],
                    },
                    of: integer,
                  },
                  "x-kubernetes-validations": [
                    {
                      rule: "self.done <= self.of",
                      messageExpression: "self.of == 2 ? 'more than two' : 'too many'",
                      reason: "FieldValueForbidden",
                      fieldPath: ".done",
                    },
                  ],
                },
              },
              "x-kubernetes-validations": [
                {
                  rule: "!has(self.status) || !has(self.status.of) || self.status.of <= self.name.size()",
                  message: "no more than the name has letters",
                },
              ],
            },
          },
        },
      ],
    },
  } as { readonly metadata: { readonly name: string } };
}

function probe(name: string, text: string): object {
  return { apiVersion: `${PROBES.slice("probes.".length)}/v1`, kind: "Probe", metadata: { name }, name: text };
}

function coil(kind: string, name: string, content: object): { readonly kind: string } {
  return { apiVersion: `${COIL}/v2`, kind, metadata: { name }, ...content } as { readonly kind: string };
}

/** A CRD that ships, in the suite's group. */
function ours(crd: CrdManifest): CrdManifest {
  const { spec } = crd;
  return { ...crd, metadata: { name: `${spec.names.plural}.${COIL}` }, spec: { ...spec, group: COIL } };
}
