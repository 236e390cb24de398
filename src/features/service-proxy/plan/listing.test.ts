import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import type { RawElement } from "#kernel/nft-elements";
import { SETS } from "../rules/index.ts";
import { frontEndId } from "./front-end.ts";
import { addressBytes, addressKey, allowKeys, endpointValue, portBytes, slotBytes } from "./keys.ts";
import { cidrsIn, readListing } from "./listing.ts";

const KEY = addressKey(IpAddress.parse("10.96.0.1"), "TCP", 80);
const NODE_PORT = portBytes("TCP", 30_080);
const [A, B] = ["10.0.0.1", "10.0.0.2"].map((text) => endpointValue(IpAddress.parse(text), 8080));

/** The fields of the only front end that are not empty, and the sets of unowned elements. */
function read(elements: readonly (readonly [set: string, element: RawElement])[]): {
  readonly frontEnd: object;
  readonly unowned: readonly string[];
} {
  const bySet = Map.groupBy(elements, ([set]) => set);
  const { frontEnds, unowned } = readListing(
    new Map(Array.from(bySet, ([set, found]) => [set, found.map(([, element]) => element)])),
  );
  const [only] = frontEnds.values();
  const isSet = ([name, value]: [string, unknown]): boolean =>
    name !== "key" && value !== undefined && value !== false && value !== 0 && value !== "" && !isEmpty(value);
  return {
    frontEnd: Object.fromEntries(Object.entries(only ?? {}).filter(isSet)),
    unowned: unowned.map(({ set }) => set),
  };
}

const isEmpty = (value: unknown): boolean => Array.isArray(value) && value.length === 0;
const goTo = (chain: string): NonNullable<RawElement["value"]> => ({ kind: "goto", chain });
const [allowFirst, allowLast] = allowKeys(KEY, Cidr.parse("10.0.0.0/8"));

const ROWS: readonly (readonly [string, Parameters<typeof read>[0], object, readonly string[]])[] = [
  ["an empty table", [], {}, []],
  [
    "a verdict with its comment, and slots in any order",
    [
      [SETS.endpoints, { key: KEY + slotBytes(1), value: B as string }],
      [SETS.serviceIps, { key: KEY, value: goTo("lb-2"), comment: "ns/web:http/TCP" }],
      [SETS.endpoints, { key: KEY + slotBytes(0), value: A as string }],
    ],
    { service: "ns/web:http/TCP", verdict: goTo("lb-2"), slots: [A, B] },
    [],
  ],
  [
    "a missing slot is undefined",
    [[SETS.endpointsLocal, { key: KEY + slotBytes(1), value: B as string }]],
    { localSlots: [undefined, B] },
    [],
  ],
  [
    "a NodePort",
    [[SETS.nodePorts, { key: NODE_PORT, value: goTo("np-lb-1") }]],
    { isNodePort: true, verdict: goTo("np-lb-1") },
    [],
  ],
  [
    "a local verdict, no endpoints, affinity and a check of sources",
    [
      [SETS.localVerdicts, { key: KEY, value: goTo("lb-1") }],
      [SETS.noEndpoints, { key: KEY, value: goTo("reject-chain") }],
      ["affinity-60", { key: KEY }],
      [SETS.firewallVips, { key: KEY }],
    ],
    { localVerdict: goTo("lb-1"), noEndpoints: true, affinitySeconds: 60, isGuarded: true },
    [],
  ],
  [
    "source ranges",
    [[SETS.firewallAllow, { key: allowFirst, keyEnd: allowLast }]],
    { sourceRanges: ["10.0.0.0/8"] },
    [],
  ],
  [
    "elements that no plan makes are unowned: an unknown set, a slot beyond all, a range that is no prefix",
    [
      ["unknown-set", { key: KEY }],
      [SETS.endpoints, { key: KEY + slotBytes(2_000_000), value: A as string }],
      [SETS.firewallAllow, { key: allowKeys(KEY, Cidr.parse("10.0.0.1/32"))[0], keyEnd: allowLast }],
    ],
    {},
    ["unknown-set", SETS.endpoints, SETS.firewallAllow],
  ],
];

for (const [name, elements, frontEnd, unowned] of ROWS) {
  test(`readListing: ${name}`, () => assert.deepEqual(read(elements), { frontEnd, unowned }));
}

test("readListing: front ends are found by their id, plain sets are sets of keys", () => {
  const address = addressBytes(IpAddress.parse("10.96.0.1"));
  const listed = readListing(
    new Map<string, readonly RawElement[]>([
      [SETS.clusterIps, [{ key: address }]],
      [SETS.serviceIps, [{ key: KEY, value: { kind: "drop" } }]],
    ]),
  );
  assert.deepEqual([...listed.frontEnds.keys()], [frontEndId({ key: KEY, isNodePort: false })]);
  assert.deepEqual([[...listed.clusterIPs], [...listed.hairpinEndpoints]], [[address], []]);
});

test("cidrsIn: ranges from their first address and the one behind, in any order, the last range without an end", () => {
  const first = (text: string): RawElement => ({ key: addressBytes(IpAddress.parse(text)) });
  const behind = (text: string): RawElement => ({ ...first(text), isEnd: true });
  assert.equal(cidrsIn([]), "");
  assert.equal(cidrsIn([behind("10.97.0.0"), first("10.96.0.0")]), "10.96.0.0/16");
  assert.equal(
    cidrsIn([first("10.96.0.0"), behind("10.97.0.0"), first("10.97.0.0"), behind("10.98.0.0")]),
    "10.96.0.0/16,10.97.0.0/16",
  );
  assert.equal(cidrsIn([first("255.0.0.0")]), "255.0.0.0/8");
  assert.equal(cidrsIn([first("10.96.0.1"), behind("10.97.0.0")]), "no prefix");
});
