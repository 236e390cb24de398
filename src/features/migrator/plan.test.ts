import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Cidr } from "#base/ip";
import { blockCidrs, NODE_LABEL, POOL_LABEL, parsePool, RESERVED_LABEL } from "#kube/coil";
import { manifestsOf } from "./manifests.ts";
import { planAnnotations, planV2 } from "./plan.ts";
import { readV1 } from "./v1-data.ts";

const NODES = new Set(["node1", "node2"]);

/** The plan of keys under /coil/; values are JSON, or raw text. */
function planOf(keys: Readonly<Record<string, unknown>>, nodes: ReadonlySet<string> = NODES) {
  const entries = Object.entries(keys).map(([key, value]) => ({
    key: `/coil/${key}`,
    value: Buffer.from(typeof value === "string" ? value : JSON.stringify(value)),
  }));
  const { data, faults, warnings } = readV1(entries, "/coil/");
  const plan = planV2(data, nodes);
  return { ...plan, faults: [...faults, ...plan.faults], warnings: [...warnings, ...plan.warnings] };
}

const POOL = { subnets: ["10.0.0.0/26"], block_size: 5 };

test("planV2: the example of the specification", () => {
  const { pools, blocks, faults, warnings } = planOf({
    "pool/default": { subnets: ["10.0.0.0/16"], block_size: 5 },
    "subnet/10.0.0.0": "",
    "block/default/10.0.0.0": { free: ["10.0.0.64/27"], nodes: { node1: ["10.0.0.0/27", "10.0.0.32/27"] } },
    "ip/10.0.0.0/3": { namespace: "default", pod: "web", container_id: "c", created_at: "2020-01-02T03:04:05Z" },
  });
  assert.deepEqual({ faults, warnings }, { faults: [], warnings: [] });
  assert.equal(
    manifestsOf({ pools, blocks: blocks.slice(1) }),
    `---
apiVersion: coil.cybozu.com/v2
kind: AddressPool
metadata:
  name: default
  finalizers:
    - coil.cybozu.com
spec:
  blockSizeBits: 5
  subnets:
    - ipv4: 10.0.0.0/16
---
apiVersion: coil.cybozu.com/v2
kind: AddressBlock
metadata:
  name: default-1-v1
  labels:
    coil.cybozu.com/pool: default
    coil.cybozu.com/node: node1
    coil.cybozu.com/reserved: "true"
index: 1
ipv4: 10.0.0.32/27
`,
  );
});

test("planV2: indexes run on through the subnets of a pool, and blocks are in their order", () => {
  const { blocks, faults } = planOf({
    "block/p/10.3.0.0": { free: null, nodes: { node2: ["10.3.0.2/31", "10.3.0.0/31"] } },
    "block/p/10.2.0.0": { free: [], nodes: { node1: ["10.2.0.6/31"], node2: null } },
    "pool/p": { subnets: ["10.2.0.0/29", "10.3.0.0/30"], block_size: 1 },
  });
  assert.deepEqual(faults, []);
  assert.deepEqual(
    blocks.map(({ metadata, index, ipv4 }) => [metadata.name, index, ipv4, metadata.labels?.[NODE_LABEL]]),
    [
      ["p-3-v1", 3, "10.2.0.6/31", "node1"],
      ["p-4-v1", 4, "10.3.0.0/31", "node2"],
      ["p-5-v1", 5, "10.3.0.2/31", "node2"],
    ],
  );
});

test("planV2: faults name the key, the value and the right one", () => {
  const cases: readonly (readonly [Readonly<Record<string, unknown>>, RegExp])[] = [
    [{ "pool/default": "{" }, /^\/coil\/pool\/default: its value is not JSON: /],
    [{ "pool/default": { subnets: "10.0.0.0/8", block_size: 5 } }, /^\/coil\/pool\/default: subnets: Invalid type/],
    [{ "pool/default": { subnets: [], block_size: 5 } }, /^\/coil\/pool\/default: subnets: Invalid length/],
    [{ "pool/default": { ...POOL, block_size: 33 } }, /^\/coil\/pool\/default: block_size: Invalid value/],
    [
      { "pool/default": { ...POOL, block_size: 7 } },
      /^\/coil\/pool\/default: spec.subnets\[0\].ipv4: .*smaller than a block/,
    ],
    [{ "pool/default": { subnets: ["fd00::/64"], block_size: 5 } }, /subnets: "fd00::\/64" is not an IPv4 prefix/],
    [{ "pool/UPPER": POOL }, /^\/coil\/pool\/UPPER: "UPPER" cannot be the name of an AddressPool/],
    [{ [`pool/${"a".repeat(64)}`]: POOL }, /metadata.name: Too long: may not be longer than 63/],
    [
      { "pool/a": POOL, "pool/b": { ...POOL, subnets: ["10.0.0.32/27"] } },
      /^\/coil\/pool\/b: .*overlaps with a subnet of AddressPool a/,
    ],
    [
      { "pool/p": POOL, "block/p/10.0.0.0": { nodes: { node1: ["10.9.0.0/27"] } } },
      /^\/coil\/block\/p\/10.0.0.0: block 10.9.0.0\/27 of node node1 is in no subnet of its pool$/,
    ],
    [
      { "pool/p": POOL, "block/p/10.0.0.0": { nodes: { node1: ["10.0.0.0/28"] } } },
      /block 10.0.0.0\/28 of node node1 has 16 addresses, but a block of its pool has 32$/,
    ],
    [
      { "pool/p": POOL, "block/p/10.0.0.0": { nodes: { node1: ["10.0.0.0/27"], node2: ["10.0.0.0/27"] } } },
      /block 10.0.0.0\/27 is assigned to node node2 and to node node1 \(\/coil\/block\/p\/10.0.0.0\)/,
    ],
    [{ "pool/p": POOL, "block/p/10.0.0.0": { nodes: [] } }, /nodes: Invalid type: Expected an object/],
    [{ "pool/p": POOL, "block/p/10.0.0.0": { nodes: { node1: "10.0.0.0/27" } } }, /nodes\.node1: Invalid type/],
    [{ "pool/p": POOL, "block/p/10.0.0.0": { nodes: { node1: ["x"] } } }, /nodes\.node1: "x" is not an IPv4 prefix/],
    [{ "pool/p": POOL, "block/p/x": { nodes: {} } }, /"x" is not an IPv4 address/],
    [{ "pool/p": POOL, "ip/10.0.0.0/-1": { namespace: "a", pod: "b" } }, /"-1" is not an offset/],
    [{ "pool/p": POOL, "ip/255.255.255.255/1": { namespace: "a", pod: "b" } }, /"1" is not an offset/],
  ];
  for (const [keys, pattern] of cases) {
    const { faults } = planOf(keys);
    assert.equal(faults.length, 1, `${JSON.stringify(keys)}: ${faults.join("\n")}`);
    assert.match(faults[0] ?? "", pattern);
  }
});

test("planV2: a node name that no label can have is a fault; names of JavaScript's own are names", () => {
  const long = "n".repeat(64);
  const nodes = { constructor: ["10.0.0.0/27"], __proto__x: null, [long]: ["10.0.0.32/27"] };
  const { faults, blocks } = planOf(
    { "pool/p": POOL, "block/p/10.0.0.0": { nodes } },
    new Set(["constructor", "toString", long]),
  );
  assert.match(faults.join("\n"), /^\/coil\/block\/p\/10.0.0.0: block 10.0.0.32\/27 .*at most 63 characters/);
  assert.deepEqual(
    blocks.map(({ metadata }) => metadata.labels?.[NODE_LABEL]),
    ["constructor"],
  );
});

test("planV2: what is left out is told: unknown pools, nodes that are gone, unknown keys, addresses that nothing keeps", () => {
  const { blocks, faults, warnings } = planOf({
    "pool/p": POOL,
    "block/p/10.0.0.0": { free: ["10.0.0.0/27"], nodes: { node1: ["10.0.0.0/27"], gone: ["10.0.0.32/27"] } },
    "block/lost/10.9.0.0": { nodes: { node1: ["10.9.0.0/27"] } },
    "ip/10.0.0.32/4": { namespace: "default", pod: "web" },
    "ip/10.0.0.0/4": { namespace: "default", pod: "kept" },
    lock: "x",
  });
  assert.deepEqual(faults, []);
  assert.deepEqual(
    blocks.map(({ metadata }) => metadata.name),
    ["p-0-v1"],
  );
  assert.deepEqual(warnings, [
    "/coil/block/p/10.0.0.0: 10.0.0.0/27 is both free and assigned to node node1; it is treated as assigned",
    "/coil/lock: Coil v1 has no key of this form; the key is ignored",
    "/coil/block/p/10.0.0.0: there is no Node gone; its block 10.0.0.32/27 is not converted",
    "/coil/block/lost/10.9.0.0: there is no pool lost; block 10.9.0.0/27 of node node1 is not converted",
    "/coil/ip/10.0.0.32/4: pod default/web has 10.0.0.36, which is in no block of an existing Node; another pod can get this address",
  ]);
});

/** Pools on subnets of their own, and for each of their blocks the node that has it, or none. */
const clusters = fc
  .array(
    fc.record({
      blockSize: fc.integer({ min: 0, max: 4 }),
      subnets: fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 1, maxLength: 4 }),
      owners: fc.array(fc.constantFrom(undefined, "node1", "node2", "gone"), { maxLength: 40 }),
    }),
    { minLength: 1, maxLength: 4 },
  )
  .map((pools) =>
    pools.map(({ blockSize, subnets, owners }, at) => {
      // Subnets of 2^extra blocks, none beside another, in descending order so that order of addresses and of subnets differ.
      const parsed = subnets.map((extra, one) => Cidr.parse(`10.${at}.${200 - one}.0/${32 - blockSize - extra}`));
      const all = parsed.flatMap((subnet) =>
        Array.from({ length: Number(subnet.size) >> blockSize }, (_, block) => subnet.subnet(32 - blockSize, block)),
      );
      return {
        name: `p${at}`,
        blockSize,
        subnets: parsed,
        blocks: all.map((cidr, one) => [cidr, owners[one]] as const),
      };
    }),
  );

test("planV2: every block of an existing node is reserved once, under the index that v2 gives to its prefix", () => {
  fc.assert(
    fc.property(clusters, (pools) => {
      const keys: Record<string, unknown> = {};
      for (const { name, blockSize, subnets, blocks } of pools) {
        keys[`pool/${name}`] = { subnets: subnets.map(String), block_size: blockSize };
        for (const subnet of subnets) {
          const nodes: Record<string, string[]> = {};
          for (const [cidr, owner] of blocks) {
            if (owner !== undefined && subnet.contains(cidr)) nodes[owner] = [...(nodes[owner] ?? []), cidr.toString()];
          }
          keys[`block/${name}/${subnet.base}`] = { free: [], nodes };
        }
      }
      const { pools: made, blocks, faults, warnings } = planOf(keys);
      assert.deepEqual(faults, []);
      const wanted = pools.flatMap((pool) =>
        pool.blocks.filter(([, owner]) => owner !== undefined && owner !== "gone"),
      );
      const gone = pools.flatMap((pool) => pool.blocks.filter(([, owner]) => owner === "gone"));
      assert.equal(blocks.length, wanted.length);
      assert.equal(warnings.length, gone.length);
      const owners = new Map(wanted.map(([cidr, owner]) => [cidr.toString(), owner]));
      const cidrs = blocks.map(({ ipv4 = "" }) => Cidr.parse(ipv4)).sort((a, b) => a.compare(b));
      for (const [at, cidr] of cidrs.entries()) {
        const next = cidrs[at + 1];
        assert.ok(next === undefined || !cidr.overlaps(next));
      }
      for (const { metadata, index, ipv4 } of blocks) {
        const { name, labels = {} } = metadata;
        const pool = made.find((one) => one.metadata.name === labels[POOL_LABEL]);
        assert.ok(pool?.spec !== undefined);
        assert.equal(blockCidrs(parsePool(pool.spec), index)?.ipv4?.toString(), ipv4);
        assert.equal(name, `${labels[POOL_LABEL]}-${index}-v1`);
        assert.deepEqual([labels[NODE_LABEL], labels[RESERVED_LABEL]], [owners.get(ipv4 ?? ""), "true"]);
      }
    }),
    { numRuns: 300 },
  );
});

test("readV1, planV2: arbitrary keys and values are data, faults or warnings", () => {
  const part = fc.constantFrom("pool", "block", "ip", "subnet", "p", "10.0.0.0", "3", "", "x");
  const key = fc.array(part, { maxLength: 4 }).map((parts) => `/coil/${parts.join("/")}`);
  const json = fc.oneof(
    fc.json(),
    fc
      .record({ subnets: fc.array(fc.constantFrom("10.0.0.0/24", "::/0", "x", "0.0.0.0/0")), block_size: fc.integer() })
      .map((v) => JSON.stringify(v)),
    fc
      .record({
        free: fc.jsonValue(),
        nodes: fc.dictionary(fc.string(), fc.array(fc.constantFrom("10.0.0.0/27", "1"))),
      })
      .map((v) => JSON.stringify(v)),
  );
  const value = fc.oneof(
    json.map((text) => new Uint8Array(Buffer.from(text))),
    fc.uint8Array({ maxLength: 10 }),
  );
  fc.assert(
    fc.property(fc.array(fc.record({ key, value }), { maxLength: 8 }), (entries) => {
      const { data, faults } = readV1(entries, "/coil/");
      const plan = planV2(data, NODES);
      manifestsOf(plan);
      for (const fault of [...faults, ...plan.faults]) assert.match(fault, /^\/coil\//);
    }),
    { numRuns: 2000 },
  );
});

test("planAnnotations: namespaces get the pool of their name; default and a choice of the operator stay", () => {
  const { annotations, warnings } = planAnnotations(
    ["default", "web", "db", "done", "none"].map((name) => ({ name })),
    [
      { name: "web", pool: undefined },
      { name: "db", pool: "other" },
      { name: "default", pool: undefined },
      { name: "done", pool: "done" },
      { name: "elsewhere", pool: undefined },
    ],
  );
  assert.deepEqual(annotations, [{ namespace: "web", pool: "web" }]);
  assert.equal(warnings.length, 1);
  assert.match(warnings[0] ?? "", /^Namespace db has pool other .*, not db; the annotation is kept$/);
});
