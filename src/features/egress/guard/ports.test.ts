import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { IpAddress } from "#base/ip";
import { ElementBatch, FakeNftElements } from "#kernel/nft-elements";
import { commonPorts, listRefused, planShares, SOURCE_PORT_COUNTS, SOURCE_PORTS, sharePorts } from "./ports.ts";
import { ROUTER_TABLE } from "./router-guard.ts";

const client = (namespace: string, at: number) => ({
  metadata: { namespace, name: `pod-${at}` },
  addresses: [IpAddress.fromValue(4, BigInt(at) + 0x0a40_0000n)],
});

test("sharePorts: the common half and the shares are apart from each other, and within the range", () => {
  const range = fc.record({
    from: fc.integer({ min: 1024, max: 30_000 }),
    to: fc.integer({ min: 31_024, max: 65_535 }),
    count: fc.integer({ min: 1, max: 64 }),
  });
  fc.assert(
    fc.property(range, (ports) => {
      const spans = [...Array.from({ length: ports.count }, (_, at) => sharePorts(ports, at)), commonPorts(ports)];
      let last = ports.from - 1;
      for (const { from, to } of spans) {
        assert.ok(from > last && to >= from, `${from}-${to}`);
        last = to;
      }
      assert.equal(last, ports.to);
    }),
  );
  assert.deepEqual(commonPorts(SOURCE_PORTS), { from: 33_280, to: 65_535 });
  assert.deepEqual(sharePorts(SOURCE_PORTS, 63), { from: 32_776, to: 33_279 });
  assert.deepEqual(SOURCE_PORT_COUNTS, { all: 64_512, common: 32_256, share: 504 });
});

test("listRefused: of a table that somebody else has filled only keys of the right length count, and no more than asked for; none without it", async () => {
  const elements = new FakeNftElements();
  assert.deepEqual(await listRefused(elements, ROUTER_TABLE, { limit: 3 }), []);
  for (const set of ["spent4", "spent6"]) elements.addSet(ROUTER_TABLE, set);
  const batch = new ElementBatch(ROUTER_TABLE, { record: true });
  batch.add("spent4", "x").add("spent4", "\x0a\x40\x01\x01").add("spent6", "x".repeat(39));
  await elements.commit(batch);
  assert.deepEqual(await listRefused(elements, ROUTER_TABLE, { limit: 3 }), []);
  const right = new ElementBatch(ROUTER_TABLE, { record: true });
  const to = "\x06\0\0\0\xcb\0\x71\x09\x01\xbb\0\0";
  for (let at = 1; at <= 3; at += 1) right.add("spent4", `\x0a\x40\x01${String.fromCharCode(at)}${to}`);
  right.add("spent6", `${"\xfd"}${"\0".repeat(14)}\x01\x84${"\0".repeat(3)}${"\0".repeat(16)}${"\0".repeat(4)}`);
  await elements.commit(right);
  const found = await listRefused(elements, ROUTER_TABLE, { limit: 9 });
  assert.deepEqual(
    found.map(({ client, protocol, address, port }) => `${client} ${protocol} ${address} ${port}`),
    [1, 2, 3].map((at) => `10.64.1.${at} tcp 203.0.113.9 443`).concat("fd00::1 132 :: 0"),
  );
  // Two of IPv4 were read that are none.
  assert.equal((await listRefused(elements, ROUTER_TABLE, { limit: 3 })).length, 2);
});

test("planShares: of up to 64 namespaces none has a share of another one, and two pods of a namespace have different ones where it has so many", () => {
  const counts = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 64 });
  fc.assert(
    fc.property(counts, (pods) => {
      const clients = pods.flatMap((count, index) =>
        Array.from({ length: count }, (_, at) => client(`ns-${index}`, 100 * index + at)),
      );
      const shares = planShares(clients);
      assert.equal(shares.size, clients.length);
      const owners = new Map<number, Set<string>>();
      const used = new Map<string, Set<number>>();
      for (const { metadata, addresses } of clients) {
        const share = shares.get(String(addresses[0])) ?? assert.fail("no share");
        assert.ok(share >= 0 && share < 64);
        owners.set(share, (owners.get(share) ?? new Set()).add(metadata.namespace));
        used.set(metadata.namespace, (used.get(metadata.namespace) ?? new Set()).add(share));
      }
      for (const of of owners.values()) assert.equal(of.size, 1);
      const least = Math.floor(64 / Math.max(16, pods.length));
      for (const [index, count] of pods.entries())
        assert.ok((used.get(`ns-${index}`)?.size ?? 0) >= Math.min(count, least));
    }),
    { numRuns: 50 },
  );
});

test("planShares: whoever comes and goes, a client stays in its share, and no namespace gets one that another one has", () => {
  const pod = fc.record({ space: fc.integer({ min: 0, max: 15 }), at: fc.integer({ min: 0, max: 19 }) });
  fc.assert(
    fc.property(
      fc.array(fc.uniqueArray(pod, { selector: ({ space, at }) => 20 * space + at, maxLength: 60 })),
      (steps) => {
        let before: ReadonlyMap<string, number> = new Map();
        for (const step of steps) {
          const clients = step.map(({ space, at }) => client(`ns-${space}`, 20 * space + at));
          const shares = planShares(clients, SOURCE_PORTS, before);
          const owners = new Map<number, string>();
          for (const { metadata, addresses } of clients) {
            const [address = ""] = addresses.map(String);
            const share = shares.get(address) ?? assert.fail("no share");
            assert.equal(owners.get(share) ?? metadata.namespace, metadata.namespace);
            owners.set(share, metadata.namespace);
            assert.equal(share, before.get(address) ?? share, "it stays");
          }
          before = shares;
        }
      },
    ),
    { numRuns: 100 },
  );
});

test("planShares: more namespaces than shares have some in common; both addresses of a pod have one; the order of the clients does not matter", () => {
  const clients = Array.from({ length: 1000 }, (_, at) => client(`ns-${at}`, at));
  const shares = planShares(clients);
  assert.equal(new Set(shares.values()).size, 64);
  assert.deepEqual(new Map([...planShares(clients.toReversed())].toSorted()), new Map([...shares].toSorted()));
  const both = planShares([
    { metadata: { namespace: "a", name: "x" }, addresses: ["10.64.0.1", "fd02::1"].map((one) => IpAddress.parse(one)) },
  ]);
  assert.equal(both.get("10.64.0.1"), both.get("fd02::1"));
});
