import assert from "node:assert/strict";
import { test } from "node:test";
import type { ObservedFrontEnd } from "../plan/index.ts";
import { affinityShare, MIN_SHARE, servicesOfKeys, shareOwners, thresholds } from "./affinity-shares.ts";

test("affinityShare: the total divided by the Services, and never less than 1,024", () => {
  assert.deepEqual(
    [0, 1, 4, 256, 10_000].map((services) => affinityShare(262_144, services)),
    [262_144, 262_144, 65_536, 1024, 1024],
  );
});

test("servicesOfKeys: ports with and without a name are of one Service", () => {
  const frontEnd = (affinityKey: string | undefined, service: string) => ({ affinityKey, service }) as ObservedFrontEnd;
  const all = [frontEnd("a", "ns/web:http/TCP"), frontEnd("b", "ns/web/UDP"), frontEnd(undefined, "ns/other/TCP")];
  assert.deepEqual(
    [...servicesOfKeys(all)],
    [
      ["a", "ns/web"],
      ["b", "ns/web"],
    ],
  );
});

test("shareOwners: as many Services as the map has least shares have one each; with more, a namespace has one, so that no tenant has it all", () => {
  const of = (tenant: number): ReadonlyMap<string, string> =>
    new Map([["v", "victim/web"], ...Array.from({ length: tenant }, (_, at) => [`t${at}`, `tenant/s${at}`] as const)]);
  const owners = (tenant: number): string[] => [...new Set(shareOwners(of(tenant), 4 * MIN_SHARE).values())];
  assert.equal(owners(3).length, 4);
  assert.deepEqual(owners(4), ["victim/*", "tenant/*"]);
});

test("thresholds: of a Service above its share those go that expire first, and one below it loses none", () => {
  const ends = new Map([
    ["ns/flooded", [50, 10, 40, 20, 30]],
    ["ns/web", [1, 2]],
  ]);
  assert.deepEqual([...thresholds(ends, 2)], [["ns/flooded", { end: 30, count: 3 }]]);
});
