import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import fc from "fast-check";
import { Cidr, IpAddress } from "#base/ip";
import {
  type AddressPool,
  type AddressPoolSpec,
  type BlockRequestCondition,
  blockCidrs,
  blockName,
  blockRequestName,
  blockRequestResult,
  COIL_FINALIZER,
  coilAdmission,
  coilCrds,
  coilResources,
  type Egress,
  type EgressSpec,
  egressDefaults,
  egressNames,
  egressSelector,
  MAX_BLOCK_INDEX,
  maxBlocks,
  otherBlockRequestName,
  parsePool,
  poolDefaults,
  poolFamilies,
  validateEgress,
  validatePoolCreate,
  validatePoolUpdate,
} from "./index.ts";
import { egressSpecSchema } from "./types.ts";

const pool = (spec: AddressPoolSpec, name = "default"): { metadata: { name: string }; spec: AddressPoolSpec } => ({
  metadata: { name },
  spec,
});
const told = (faults: readonly { readonly field: string; readonly message: string }[]): string[] =>
  faults.map(({ field, message }) => `${field}: ${message}`);

test("pool: one family, both, host bits set and block size 0 may be created", () => {
  for (const spec of [
    { subnets: [{ ipv4: "10.2.0.0/16" }] },
    { subnets: [{ ipv6: "fd02::/112" }], blockSizeBits: 0 },
    { subnets: [{ ipv4: "10.2.0.5/24", ipv6: "fd02::1:5/120" }], blockSizeBits: 8 },
    { subnets: [{ ipv4: "10.2.0.0/29" }, { ipv4: "10.3.0.0/30" }], blockSizeBits: 1 },
    { subnets: [{ ipv6: "fd00::/16" }] },
  ]) {
    assert.deepEqual(validatePoolCreate(pool(spec)), []);
  }
});

test("pool: without a spec, as an older schema let it be stored, it is refused, and can still be let go", () => {
  const none = { metadata: { name: "none" } };
  const good = pool({ subnets: [{ ipv4: "10.2.0.0/16" }] });
  assert.deepEqual(told(validatePoolCreate(none)), ["spec: Required value: the pool's subnets"]);
  assert.deepEqual(validatePoolUpdate(none, none), []);
  assert.deepEqual(validatePoolUpdate(none, good), []);
  assert.deepEqual(told(validatePoolUpdate(good, none)), ["spec: Forbidden: unchangeable"]);
  assert.deepEqual(validatePoolCreate(good, { others: [none] }), []);
});

test("pool: the work of a review grows with the number of subnets: each is read a few times, and what is too long is not read by the rules", () => {
  const admission = coilAdmission("AddressPool") ?? assert.fail();
  let reads = 0;
  const entries = (count: number, entryOf: (at: number) => object): object[] =>
    Array.from(
      { length: count },
      (_, at) =>
        new Proxy(entryOf(at), {
          get: (target, key) => {
            reads += 1;
            return Reflect.get(target, key);
          },
        }),
    );
  const check = (subnets: object[]): string[] =>
    told(
      admission.check({ metadata: { name: "p" }, spec: { blockSizeBits: 0, subnets } }, undefined, { pools: [] })
        .faults,
    );
  const apart = entries(10_000, (at) => ({ ipv4: `10.${at >> 8}.${at & 255}.0/24` }));
  assert.deepEqual(check(apart), []);
  assert.ok(reads < 50 * 10_000, `${reads} reads`);
  reads = 0;
  const equal = check(entries(10_000, () => ({ ipv6: "fd00::/64" })));
  assert.equal(equal.length, 50);
  assert.match(equal[0] ?? "", /^spec\.subnets\[1\].* overlaps with spec\.subnets\[0\]/);
  assert.ok(reads < 50 * 10_000, `${reads} reads`);
  reads = 0;
  assert.deepEqual(
    check(entries(60_000, () => ({ ipv4: "no CIDR" }))).map((text) => text.replace(/".*"/, "…")),
    ["spec.subnets: Invalid value: …: must have at most 10000 items"],
  );
  assert.ok(reads < 5000, `${reads} reads: the schema's faults are told up to a number`);
});

test("pool: each fault is returned with its field, all at once", () => {
  const bad = pool({
    subnets: [
      {},
      { ipv4: "10.2.0.0" },
      { ipv4: "fd02::/64" },
      { ipv6: "10.2.0.0/16" },
      { ipv4: "10.2.0.0/28" },
      { ipv4: "10.4.0.0/16", ipv6: "fd02::/64" },
    ],
  });
  assert.deepEqual(told(validatePoolCreate(bad)), [
    "spec.subnets[0]: Required value: ipv4, ipv6 or both",
    'spec.subnets[1].ipv4: Invalid value: "10.2.0.0": must be an IPv4 CIDR',
    'spec.subnets[2].ipv4: Invalid value: "fd02::/64": must be an IPv4 CIDR',
    'spec.subnets[3].ipv6: Invalid value: "10.2.0.0/16": must be an IPv6 CIDR',
    'spec.subnets[4].ipv4: Invalid value: "10.2.0.0/28": is smaller than a block of 2^5 addresses',
    'spec.subnets[5]: Invalid value: {"ipv4":"10.4.0.0/16","ipv6":"fd02::/64"}: ipv4 and ipv6 must have the same number of host bits: they have 16 and 64',
  ]);
  assert.deepEqual(told(validatePoolCreate(pool({ subnets: [], blockSizeBits: -1 }, "x".repeat(64)))), [
    "metadata.name: Too long: may not be longer than 63",
    "spec.blockSizeBits: Invalid value: -1: must be a whole number of at least 0",
    "spec.subnets: Required value: at least one subnet is needed",
  ]);
});

test("pool: mixed family sets and overlaps, within and with other pools, are refused", () => {
  const mixed = pool({ subnets: [{ ipv4: "10.2.0.0/16" }, { ipv6: "fd02::/64" }] });
  assert.match(told(validatePoolCreate(mixed)).join(), /spec.subnets\[1\].*same families as spec.subnets\[0\]: ipv4$/);
  const within = pool({ subnets: [{ ipv4: "10.2.0.0/16" }, { ipv4: "10.2.128.0/24" }] });
  assert.match(told(validatePoolCreate(within)).join(), /spec.subnets\[1\].*overlaps with spec.subnets\[0\]$/);
  const fresh = pool({ subnets: [{ ipv4: "10.0.0.0/8" }] }, "fresh");
  const others = [within, pool({ subnets: [{ ipv4: "nonsense" }] }, "odd"), fresh];
  assert.match(told(validatePoolCreate(fresh, { others })).join(), /^spec.subnets\[0\].*AddressPool default$/);
});

test("pool update: subnets may be appended, nothing else changes", () => {
  const old = pool({ blockSizeBits: 5, subnets: [{ ipv4: "10.2.0.0/24" }, { ipv4: "10.3.0.0/24" }] });
  const [first = {}, second = {}] = old.spec.subnets;
  const change = (spec: AddressPoolSpec): string[] => told(validatePoolUpdate(old, pool(spec)));
  assert.deepEqual(change({ subnets: [first, second, { ipv4: "10.4.0.0/24" }] }), []);
  assert.deepEqual(change({ subnets: [first] }), ["spec.subnets: Forbidden: unshrinkable"]);
  assert.deepEqual(change({ subnets: [first, { ipv4: "10.3.0.0/25" }] }), ["spec.subnets[1]: Forbidden: unchangeable"]);
  assert.deepEqual(change({ subnets: [second, first] }), [
    "spec.subnets[0]: Forbidden: unchangeable",
    "spec.subnets[1]: Forbidden: unchangeable",
  ]);
  assert.deepEqual(change({ blockSizeBits: 6, subnets: [first, second] }), [
    "spec.blockSizeBits: Forbidden: unchangeable",
  ]);
  assert.match(
    change({ subnets: [first, second, { ipv4: "10.4.0.0/28" }] }).join(),
    /^spec.subnets\[2\].ipv4: .*smaller/,
  );
  assert.match(change({ subnets: [first, second, { ipv4: "10.3.0.0/27" }] }).join(), /overlaps with spec.subnets\[1\]/);
});

test("pool update: a stored pool that is odd can still lose its finalizer", () => {
  const odd = pool({ subnets: [{ ipv4: "10.2.0.0/31" }, { ipv6: "fd02::/64" }, { ipv4: "nonsense" }] });
  assert.deepEqual(validatePoolUpdate(odd, odd, { others: [pool({ subnets: [{ ipv4: "10.0.0.0/8" }] }, "x")] }), []);
});

test("pool defaults: the finalizer is added where it is missing", () => {
  const add = { op: "add", path: "/metadata/finalizers", value: [COIL_FINALIZER] };
  assert.deepEqual(poolDefaults({ metadata: {} }), [add]);
  assert.deepEqual(poolDefaults({ metadata: { finalizers: ["x"] } }), [
    { ...add, path: "/metadata/finalizers/-", value: COIL_FINALIZER },
  ]);
  assert.deepEqual(poolDefaults({ metadata: { finalizers: [COIL_FINALIZER] } }), []);
});

test("blocks: indexes run on through the subnets, in both families", () => {
  const layout = parsePool({ blockSizeBits: 1, subnets: [{ ipv4: "10.2.0.0/29" }, { ipv4: "10.3.0.0/30" }] });
  assert.equal(maxBlocks(layout), 6);
  assert.deepEqual(
    [0, 3, 4, 5, 6].map((index) => blockCidrs(layout, index)?.ipv4?.toString()),
    ["10.2.0.0/31", "10.2.0.6/31", "10.3.0.0/31", "10.3.0.2/31", undefined],
  );
  const dual = parsePool({ blockSizeBits: 1, subnets: [{ ipv4: "10.2.1.0/24", ipv6: "fd02::0200/120" }] });
  assert.equal(`${blockCidrs(dual, 0)?.ipv4} ${blockCidrs(dual, 0)?.ipv6}`, "10.2.1.0/31 fd02::200/127");
  assert.equal(`${blockCidrs(dual, 127)?.ipv4} ${blockCidrs(dual, 127)?.ipv6}`, "10.2.1.254/31 fd02::2fe/127");
  assert.deepEqual([poolFamilies(layout), poolFamilies(dual)], [[4], [4, 6]]);
  assert.equal(blockName("default", 4), "default-4");
});

test("blocks: a huge IPv6 pool has as many blocks as there are indexes", () => {
  const layout = parsePool({ blockSizeBits: 0, subnets: [{ ipv6: "fd00::/16" }] });
  assert.equal(maxBlocks(layout), MAX_BLOCK_INDEX + 1);
  assert.equal(blockCidrs(layout, MAX_BLOCK_INDEX)?.ipv6?.toString(), "fd00::7fff:ffff/128");
  for (const index of [-1, 0.5, MAX_BLOCK_INDEX + 1]) assert.throws(() => blockCidrs(layout, index), RangeError);
});

test("blocks: the blocks of a pool are disjoint, of the right size, and cover it", () => {
  const shape = fc.record({
    bits: fc.integer({ min: 0, max: 4 }),
    extra: fc.array(fc.integer({ min: 0, max: 4 }), { minLength: 1, maxLength: 4 }),
  });
  fc.assert(
    fc.property(shape, ({ bits, extra }) => {
      const subnets = extra.map((more, at) => ({
        ipv4: `10.${at}.0.0/${32 - bits - more}`,
        ipv6: `fd0${at}::/${128 - bits - more}`,
      }));
      const spec = { blockSizeBits: bits, subnets };
      assert.deepEqual(validatePoolCreate(pool(spec)), []);
      const layout = parsePool(spec);
      const count = maxBlocks(layout);
      const seen = new Set<string>();
      for (let index = 0; index < count; index += 1) {
        const block = blockCidrs(layout, index);
        for (const cidr of [block?.ipv4, block?.ipv6]) {
          assert.equal(cidr?.hostBits, bits);
          for (let at = 0n; at < (cidr?.size ?? 0n); at += 1n) seen.add(String(cidr?.at(at)));
        }
      }
      assert.equal(blockCidrs(layout, count), undefined);
      const addresses = extra.reduce((sum, more) => sum + 2 ** (bits + more), 0);
      assert.equal(seen.size, 2 * addresses);
      for (const text of seen) {
        const address = IpAddress.parse(text);
        assert.ok(layout.subnets.some(({ ipv4, ipv6 }) => ipv4?.contains(address) || ipv6?.contains(address)));
      }
    }),
    { numRuns: 30 },
  );
});

test("block request: a failure wins, then completion, else it is in progress", () => {
  const condition = (type: "Complete" | "Failed", status: "True" | "False" = "True"): BlockRequestCondition => ({
    type,
    status,
    reason: `${type} reason`,
  });
  const result = (conditions: BlockRequestCondition[], addressBlockName = "default-1") =>
    blockRequestResult({ status: { conditions, addressBlockName } });
  assert.deepEqual(blockRequestResult({}), { state: "in-progress" });
  assert.deepEqual(result([]), { state: "in-progress" });
  assert.deepEqual(result([condition("Complete", "False")]), { state: "in-progress" });
  assert.deepEqual(result([condition("Complete")]), { state: "complete", addressBlockName: "default-1" });
  assert.deepEqual(result([condition("Complete"), condition("Failed", "False")]).state, "complete");
  assert.deepEqual(result([condition("Complete"), condition("Failed")]), {
    state: "failed",
    reason: "Failed reason",
    message: "Failed reason",
  });
  assert.equal(result([condition("Complete")], "").state, "failed");
});

test("egress: good specs pass", () => {
  const destinations = ["10.0.0.0/8", "fd00::/8"];
  const metadata = {
    labels: { "app.example.com/x": "y_1", empty: "" },
    annotations: { "Example.com/Note": "anything at all" },
  };
  const specs: EgressSpec[] = [
    { destinations },
    { destinations, replicas: 3, strategy: { type: "Recreate" }, sessionAffinity: "None" },
    { destinations, strategy: { type: "RollingUpdate", rollingUpdate: { maxSurge: "25%" } }, template: { metadata } },
    { destinations, podDisruptionBudget: { minAvailable: 1 } },
    {
      destinations,
      podDisruptionBudget: { maxUnavailable: "100%" },
      sessionAffinityConfig: { clientIP: { timeoutSeconds: 86400 } },
    },
  ];
  for (const spec of specs) assert.deepEqual(validateEgress({ spec }), { faults: [], warnings: [] });
});

test("egress: each fault is returned with its field", () => {
  const destinations = ["10.0.0.0/8"];
  const cases: [object, RegExp][] = [
    [{ destinations: [] }, /^spec.destinations: Required/],
    [
      { destinations: ["10.0.0.1", "10.0.0.0/8"] },
      /^spec.destinations\[0\]: Invalid value: "10.0.0.1": must be a CIDR/,
    ],
    [
      { destinations: ["10.0.0.0/8", "010.2.3.0/24"] },
      /^spec.destinations\[1\]: Invalid value: "010.2.3.0\/24": must be a CIDR/,
    ],
    [{ destinations: ["10.0.0.0/8", "10.1.0.0/8"] }, /^spec.destinations\[1\]: Duplicate value: "10.1.0.0\/8"$/],
    [{ destinations, replicas: 0 }, /^spec.replicas/],
    [
      { destinations, strategy: { type: "Never" } },
      /^spec.strategy.type: Unsupported value: "Never": supported values: "Recreate", "RollingUpdate"$/,
    ],
    [
      { destinations, template: { metadata: { labels: { "a b": "x" } } } },
      /^spec.template.metadata.labels: Invalid value: "a b"/,
    ],
    [
      { destinations, template: { metadata: { labels: { a: "-x" } } } },
      /^spec.template.metadata.labels: Invalid value: "-x"/,
    ],
    [{ destinations, template: { metadata: { annotations: { "a/b/c": "" } } } }, /^spec.template.metadata.annotations/],
    [
      { destinations, template: { spec: { containers: 5 } } },
      /^spec.template.spec.containers: Invalid value: "number": must be a list$/,
    ],
    [
      { destinations, template: { spec: { containers: [{ image: "x" }] } } },
      /^spec.template.spec.containers\[0\].name: Req/,
    ],
    [
      { destinations, template: { spec: { volumes: ["x"] } } },
      /^spec.template.spec.volumes\[0\]: .*must be an object$/,
    ],
    [
      { destinations, template: { spec: { containers: [{ name: "egress", env: {} }] } } },
      /^spec.template.spec.containers\[0\].env: .*must be a list$/,
    ],
    [
      { destinations, template: { spec: { containers: [{ name: "egress", resources: { limits: 1 } }] } } },
      /^spec.template.spec.containers\[0\].resources.limits: .*must be an object$/,
    ],
    [
      {
        destinations,
        template: {
          spec: { containers: [{ name: "egress", resources: { requests: { cpu: `${"0".repeat(64)}1` } } }] },
        },
      },
      /^spec.template.spec.containers\[0\].resources.requests\[cpu\]: .*must have at most 64 characters$/,
    ],
    [{ destinations, sessionAffinity: "Client" }, /^spec.sessionAffinity: Unsupported/],
    [
      { destinations, sessionAffinityConfig: { clientIP: { timeoutSeconds: 0 } } },
      /timeoutSeconds: .*between 1 and 86400/,
    ],
    [{ destinations, podDisruptionBudget: { minAvailable: 1, maxUnavailable: 1 } }, /cannot both be set/],
    [{ destinations, podDisruptionBudget: { minAvailable: -1 } }, /^spec.podDisruptionBudget.minAvailable/],
    [{ destinations, podDisruptionBudget: { maxUnavailable: "101%" } }, /^spec.podDisruptionBudget.maxUnavailable/],
  ];
  for (const [spec, pattern] of cases) {
    const faults = told(validateEgress({ spec: spec as EgressSpec }).faults);
    assert.equal(faults.length, 1, faults.join("; "));
    assert.match(faults.join(), pattern);
  }
});

test("egress: a name that its Service cannot have is refused", () => {
  const faults = (name: string | undefined) =>
    told(validateEgress({ metadata: { name }, spec: { destinations: ["10.0.0.0/8"] } }).faults);
  for (const name of [undefined, "nat", "n".repeat(63)]) assert.deepEqual(faults(name), []);
  for (const name of ["a.b", "n".repeat(64), "1nat"])
    assert.match(faults(name).join(), /^metadata.name: .*without dots/);
});

test("egress: routers in the network of their node are warned of", () => {
  const warnings = (hostNetwork: boolean) =>
    validateEgress({
      spec: { destinations: ["10.0.0.0/8"], template: { spec: { hostNetwork, containers: [{ name: "egress" }] } } },
    }).warnings;
  assert.match(warnings(true).join(), /^spec\.template\.spec\.hostNetwork: /);
  assert.deepEqual(warnings(false), []);
});

test("egress: of as many destinations as an object can have a duplicate at the end is found, at a cost that grows with their number and not with its square", () => {
  const spentMs = (count: number): number => {
    const destinations = Array.from({ length: count }, (_, at) => `10.${at >> 16}.${(at >> 8) & 255}.${at & 255}/32`);
    const start = process.threadCpuUsage();
    const faults = told(validateEgress({ spec: { destinations: [...destinations, "10.0.0.0/32"] } }).faults);
    const { user, system } = process.threadCpuUsage(start);
    assert.equal(faults.filter((fault) => fault.startsWith(`spec.destinations[${count}]: Duplicate value`)).length, 1);
    return (user + system) / 1000;
  };
  // By the thread's own time, and the shortest of three: what else the machine does makes some of them longer. Ten times as many cost ten times as much, or a hundred times.
  const shortest = (count: number): number => Math.min(...[0, 1, 2].map(() => spentMs(count)));
  spentMs(8000);
  assert.ok(shortest(80_000) < 50 * shortest(8000));
});

test("egress: all of IPv4 without any IPv6 is warned of in a dual-stack cluster only", () => {
  const warnings = (destinations: string[], dualStack: boolean): number =>
    validateEgress({ spec: { destinations } }, { dualStack }).warnings.length;
  assert.deepEqual(
    [warnings(["0.0.0.0/0"], true), warnings(["0.0.0.0/0"], false), warnings(["0.0.0.0/0", "::/0"], true)],
    [1, 0, 0],
  );
});

test("egress defaults: a template without containers gets the router container", () => {
  const containers = [{ name: "egress" }];
  assert.deepEqual(egressDefaults({ spec: {} }), []);
  assert.deepEqual(egressDefaults({ spec: { template: {} } }), [
    { op: "add", path: "/spec/template/spec", value: { containers } },
  ]);
  assert.deepEqual(egressDefaults({ spec: { template: { spec: { nodeName: "n" } } } }), [
    { op: "add", path: "/spec/template/spec/containers", value: containers },
  ]);
  assert.deepEqual(egressDefaults({ spec: { template: { spec: { containers: [{ name: "x" }] } } } }), []);
});

test("keys: egress annotations are trimmed, without empty and repeated names, and bounded", () => {
  const annotations = {
    "egress.coil.cybozu.com/internet": " a, b,,a ,c",
    other: "x",
    "egress.coil.cybozu.com/none": " , ",
  };
  assert.deepEqual([...egressNames(annotations)], [["internet", ["a", "b", "c"]]]);
  assert.deepEqual([...egressNames(undefined)], []);
  const bomb = { "egress.coil.cybozu.com/x": Array.from({ length: 10_000 }, (_, n) => `e${n}`).join() };
  assert.equal(egressNames(bomb).get("x")?.length, 1000);
  assert.equal(
    egressSelector("nat"),
    "app.kubernetes.io/component=egress,app.kubernetes.io/instance=nat,app.kubernetes.io/name=coil",
  );
  assert.equal(blockRequestName("default", "node1"), "req-default-node1");
  assert.equal(blockRequestName("default", "gpu-n1"), blockRequestName("default-gpu", "n1"));
  assert.notEqual(otherBlockRequestName("default", "gpu-n1"), otherBlockRequestName("default-gpu", "n1"));
});

test("crds: names, scopes, subresources and columns are those of Coil", () => {
  const summary = coilCrds.map(({ metadata, spec }) => {
    const [version] = spec.versions;
    const columns = version?.additionalPrinterColumns?.map((column) => column.name);
    return [metadata.name, spec.scope, Object.keys(version?.subresources ?? {}), columns];
  });
  assert.deepEqual(summary, [
    ["addresspools.coil.cybozu.com", "Cluster", [], ["BlockSize Bits"]],
    ["addressblocks.coil.cybozu.com", "Cluster", [], ["Node", "Pool", "IPv4", "IPv6"]],
    ["blockrequests.coil.cybozu.com", "Cluster", ["status"], undefined],
    ["egresses.coil.cybozu.com", "Namespaced", ["status", "scale"], undefined],
  ]);
  assert.equal(coilResources.egresses.namespaced, true);
});

test("crds: the files in deploy/crds and in the chart are those of the schemas, and no link", async () => {
  const tool = join(import.meta.dirname, "../../../tools/gen-crds.ts");
  const { stderr } = await promisify(execFile)(process.execPath, [tool, "--check"]);
  assert.equal(stderr, "");
  // Flux's source-controller drops symbolic links of a chart.
  const chart = join(import.meta.dirname, "../../../deploy/chart");
  const links = readdirSync(chart, { recursive: true, withFileTypes: true }).filter((entry) => entry.isSymbolicLink());
  assert.deepEqual(links, []);
});

test("types: the static types follow the schemas", () => {
  // These lines are checked by the compiler; each wrong one must stay an error.
  const good: AddressPool["spec"] = { subnets: [{ ipv4: "10.0.0.0/8" }] };
  // @ts-expect-error subnets are required
  const missing: AddressPool["spec"] = { blockSizeBits: 1 };
  // @ts-expect-error an affinity is one of two
  const affinity: Egress["spec"] = { destinations: [], sessionAffinity: "x" };
  // @ts-expect-error a CIDR is a text
  const number: AddressPool["spec"] = { subnets: [{ ipv4: 1 }] };
  assert.deepEqual([good, missing, affinity, number].length, 4);
});

test("validateEgress: selectors and names that cannot be are faults with their fields, and a selector of other namespaces is warned of", () => {
  const { faults, warnings } = validateEgress({
    metadata: { name: "nat" },
    spec: {
      destinations: ["0.0.0.0/0"],
      allowedNamespaces: { names: ["ok", "Not Ok"], selector: { matchLabels: { "a b": "c" } } },
      clients: [
        { podSelector: { matchExpressions: [{ key: "app", operator: "In" }] } },
        { namespaceSelector: { matchExpressions: [{ key: "app", operator: "Exists", values: ["x"] }] } },
      ],
    },
  });
  assert.deepEqual(
    faults.map(({ field }) => field),
    [
      "spec.allowedNamespaces.names[1]",
      "spec.allowedNamespaces.selector.matchLabels",
      "spec.clients[0].podSelector.matchExpressions[0].values",
      "spec.clients[1].namespaceSelector.matchExpressions[0].values",
    ],
  );
  assert.match(warnings.join(), /isthmus\.dev\/egress-clients-of/);
});

test("coilAdmission: more entries and labels than the bounds of selectors are refused by the schema", () => {
  const spec = {
    destinations: ["0.0.0.0/0"],
    clients: Array.from({ length: 17 }, () => ({})),
    allowedNamespaces: {
      selector: { matchLabels: Object.fromEntries(Array.from({ length: 33 }, (_, at) => [`k${at}`, "v"])) },
    },
  };
  const found = coilAdmission("Egress")?.check({ metadata: { name: "nat", namespace: "a" }, spec }, undefined, {});
  assert.deepEqual(found?.faults.map(({ field }) => field).toSorted(), [
    "spec.allowedNamespaces.selector.matchLabels",
    "spec.clients",
  ]);
});

test("egressSpecSchema: the pattern of destinations takes what a CIDR is, and refuses leading zeros, which the format of API servers takes", () => {
  const pattern = new RegExp(egressSpecSchema.properties?.["destinations"]?.items?.pattern ?? assert.fail());
  const cidr = fc.oneof(
    fc.tuple(fc.ipV4(), fc.integer({ min: 0, max: 32 })),
    fc.tuple(fc.ipV6(), fc.integer({ min: 0, max: 128 })),
  );
  fc.assert(
    fc.property(cidr, ([address, length]) => {
      const text = `${address}/${length}`;
      assert.ok(Cidr.tryParse(text) === undefined || pattern.test(text), text);
      assert.ok(!address.includes(".") || !pattern.test(text.replace(/(\d+)\./, "0$1.")), text);
    }),
    { numRuns: 2000 },
  );
  for (const text of ["010.2.3.0/24", "10.2.3.0/024", "10.02.3.0/24", "fd00::010.2.3.4/64", "10.0.0.0", "x/8", ""])
    assert.ok(!pattern.test(text), text);
  for (const text of ["::/0", "FD00::/8", "::ffff:10.2.3.0/120", "0.0.0.0/0"]) assert.ok(pattern.test(text), text);
});
