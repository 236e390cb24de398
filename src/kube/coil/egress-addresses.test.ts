import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr } from "#base/ip";
import { coilAdmission } from "./admission.ts";
import { type AddressContext, addressFaults, addressWarnings } from "./egress-addresses.ts";
import { egressPoolName, routerEgress } from "./keys.ts";
import type { EgressSpec, SubnetSet } from "./types.ts";

const NAT = { namespace: "internet", name: "nat" };
const of = (addresses: readonly SubnetSet[] | undefined, spec: Partial<EgressSpec> = {}) => ({
  metadata: NAT,
  spec: { ...spec, ...(addresses === undefined ? {} : { addresses: [...addresses] }) },
});
const ranges = ["203.0.113.0/24", "2001:db8:5::/64"].map((text) => Cidr.parse(text));
const faults = (
  addresses: readonly SubnetSet[] | undefined,
  context: AddressContext = {},
  old?: readonly SubnetSet[],
): string[] =>
  addressFaults(of(addresses), old === undefined ? undefined : of(old), context).map(
    ({ field, message }) => `${field}: ${message}`,
  );

test("egress addresses: single addresses and ranges of one or both families pass", () => {
  for (const addresses of [
    [{ ipv4: "203.0.113.8/31" }],
    [{ ipv4: "203.0.113.8/32" }, { ipv4: "203.0.113.20/32" }],
    [{ ipv4: "203.0.113.8/31", ipv6: "2001:db8:5::8/127" }],
  ])
    assert.deepEqual(faults(addresses, { addressRanges: ranges, pools: [], egresses: [] }), []);
  assert.deepEqual(faults(undefined, { addressRanges: [] }), []);
});

const POOL = { metadata: { name: "site" }, spec: { subnets: [{ ipv4: "203.0.113.0/28" }] } };
const OTHER = { metadata: { namespace: "b", name: "x" }, spec: { addresses: [{ ipv4: "203.0.113.64/30" }] } };
const OTHERS_POOL = {
  metadata: { name: egressPoolName({ namespace: "b", name: "x" }) },
  spec: { subnets: OTHER.spec.addresses },
};

for (const [what, addresses, context, old, pattern] of [
  [
    "an address without a length",
    [{ ipv4: "203.0.113.8" }],
    {},
    undefined,
    /^spec\.addresses\[0\]\.ipv4: .*must be an IPv4 CIDR$/,
  ],
  ["the other family", [{ ipv4: "2001:db8:5::1/128" }], {}, undefined, /^spec\.addresses\[0\]\.ipv4: .*IPv4 CIDR$/],
  ["an entry of nothing", [{}], {}, undefined, /^spec\.addresses\[0\]: Required value: ipv4, ipv6 or both$/],
  ["no entry", [], {}, undefined, /^spec\.addresses: Required value/],
  [
    "other families than the first entry",
    [{ ipv4: "203.0.113.8/32" }, { ipv6: "2001:db8:5::1/128" }],
    {},
    undefined,
    /^spec\.addresses\[1\]: .*same families as spec\.addresses\[0\]: ipv4$/,
  ],
  [
    "unequal sizes",
    [{ ipv4: "203.0.113.8/31", ipv6: "2001:db8:5::/64" }],
    {},
    undefined,
    /^spec\.addresses\[0\]: .*same number of host bits/,
  ],
  [
    "two entries that overlap",
    [{ ipv4: "203.0.113.8/31" }, { ipv4: "203.0.113.9/32" }],
    {},
    undefined,
    /^spec\.addresses\[1\]: .*overlaps with spec\.addresses\[0\]$/,
  ],
  [
    "a pool's addresses",
    [{ ipv4: "203.0.113.8/31" }],
    { pools: [POOL] },
    undefined,
    /^spec\.addresses\[0\]: .*overlaps with a subnet of AddressPool site$/,
  ],
  [
    "another Egress's, whose pool is there too",
    [{ ipv4: "203.0.113.65/32" }],
    { pools: [OTHERS_POOL], egresses: [OTHER] },
    undefined,
    /^spec\.addresses\[0\]: .*AddressPool egress-[0-9a-f]{16}, which is that of Egress b\/x$/,
  ],
  [
    "outside of the ranges",
    [{ ipv4: "198.51.100.1/32" }],
    { addressRanges: ranges },
    undefined,
    /^spec\.addresses\[0\]\.ipv4: Forbidden: is not inside a range of .*--egress-address-range: 203\.0\.113\.0\/24, 2001:db8:5::\/64$/,
  ],
  [
    "wider than a range",
    [{ ipv4: "203.0.0.0/16" }],
    { addressRanges: ranges },
    undefined,
    /^spec\.addresses\[0\]\.ipv4: Forbidden: is not inside/,
  ],
  [
    "no range",
    [{ ipv4: "203.0.113.8/32" }],
    { addressRanges: [] },
    undefined,
    /^spec\.addresses\[0\]\.ipv4: Forbidden: .*runs without --egress-address-range/,
  ],
  [
    "a changed entry",
    [{ ipv4: "203.0.113.9/32" }],
    {},
    [{ ipv4: "203.0.113.8/32" }],
    /^spec\.addresses\[0\]: Forbidden: unchangeable$/,
  ],
  [
    "a removed entry",
    [{ ipv4: "203.0.113.8/32" }],
    {},
    [{ ipv4: "203.0.113.8/32" }, { ipv4: "203.0.113.9/32" }],
    /^spec\.addresses: Forbidden: unshrinkable$/,
  ],
] as readonly (readonly [string, readonly SubnetSet[], AddressContext, readonly SubnetSet[] | undefined, RegExp])[]) {
  test(`egress addresses: ${what} is refused with the field`, () => {
    const found = faults(addresses, context, old);
    assert.equal(found.length, 1, found.join("\n"));
    assert.match(found.join(), pattern);
  });
}

test("egress addresses: entries are appended, all are removed, and stored ones outlive a range; own pool and own object are no rival", () => {
  const old = [{ ipv4: "203.0.113.8/32" }];
  const own = { metadata: { name: egressPoolName(NAT) }, spec: { subnets: old } };
  const context = { pools: [own], egresses: [of(old)], addressRanges: ranges };
  assert.deepEqual(faults([...old, { ipv4: "203.0.113.9/32" }], context, old), []);
  assert.deepEqual(faults(undefined, context, old), []);
  assert.deepEqual(faults(old, { addressRanges: [] }, old), []);
});

test("egress addresses: the admission of an Egress has these rules, on create and on update", () => {
  const admission = coilAdmission("Egress");
  const egress = (addresses: readonly SubnetSet[]) => ({
    metadata: NAT,
    spec: { destinations: ["10.0.0.0/8"], addresses },
  });
  const check = (now: readonly SubnetSet[], before?: readonly SubnetSet[]): readonly string[] =>
    admission
      ?.check(egress(now), before === undefined ? undefined : egress(before), { addressRanges: ranges, pools: [POOL] })
      .faults.map(({ field }) => field) ?? [];
  assert.deepEqual(check([{ ipv4: "203.0.113.1/32" }]), ["spec.addresses[0]"]);
  assert.deepEqual(check([{ ipv4: "203.0.113.65/32" }]), []);
  assert.deepEqual(check([{ ipv4: "203.0.113.66/32" }], [{ ipv4: "203.0.113.65/32" }]), ["spec.addresses[0]"]);
  assert.deepEqual(check([{ ipv4: "x" }]), ["spec.addresses[0].ipv4"]);
});

test("egress addresses: more routers than addresses, and an update that cannot go on, are warned of", () => {
  const addresses = [{ ipv4: "203.0.113.8/31" }];
  const warnings = (spec: Partial<EgressSpec>): string[] =>
    addressWarnings(of(addresses, spec)).map((text) => text.slice(0, 14));
  assert.deepEqual(warnings({ replicas: 2 }), []);
  assert.deepEqual(warnings({ replicas: 3 }), ["spec.replicas:"]);
  const surging = { type: "RollingUpdate" as const };
  assert.deepEqual(warnings({ replicas: 1, strategy: surging }), []);
  assert.deepEqual(warnings({ replicas: 2, strategy: surging }), ["spec.strategy:"]);
  assert.deepEqual(warnings({ replicas: 2, strategy: { ...surging, rollingUpdate: { maxSurge: 0 } } }), []);
  assert.deepEqual(warnings({ replicas: 2, strategy: { type: "Recreate" } }), []);
});

test("routerEgress: only all three labels of a router name its Egress", () => {
  const labels = {
    "app.kubernetes.io/name": "coil",
    "app.kubernetes.io/component": "egress",
    "app.kubernetes.io/instance": "nat",
  };
  assert.equal(routerEgress({ ...labels, other: "x" }), "nat");
  for (const key of Object.keys(labels)) assert.equal(routerEgress({ ...labels, [key]: "" }), undefined);
  assert.equal(routerEgress(undefined), undefined);
});
