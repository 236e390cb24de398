import assert from "node:assert/strict";
import { test } from "node:test";
import {
  addressBytes,
  addressKey,
  affinityKey,
  endpointValue,
  frontEndId,
  type ObservedFrontEnd,
  portBytes,
} from "../plan/index.ts";
import { addressesOf, NODE_PORT, SERVICE_PORT, TARGET_PORT } from "../testing/fixture.ts";
import { affinityLoss, staleEntries } from "./affinity.ts";

const { clusterIP, node, localEndpoint, remoteEndpoint } = addressesOf(4);
const [LOCAL, REMOTE] = [localEndpoint, remoteEndpoint].map((one) => endpointValue(one, TARGET_PORT)) as [
  string,
  string,
];

function frontEnd(changes: Partial<ObservedFrontEnd> = {}): ObservedFrontEnd {
  return {
    key: addressKey(clusterIP, "TCP", SERVICE_PORT),
    affinityKey: affinityKey(clusterIP, "TCP", SERVICE_PORT, false),
    isNodePort: false,
    service: "ns/svc",
    verdict: { kind: "goto", chain: "aff-lb-2" },
    localVerdict: undefined,
    noEndpoints: false,
    slots: [LOCAL, REMOTE],
    localSlots: [],
    affinitySeconds: 60,
    sourceRanges: undefined,
    ...changes,
  };
}

/** With externalTrafficPolicy Local: clients outside use the endpoint of this node, pods use both. */
const LOCAL_ONLY = frontEnd({ localVerdict: { kind: "goto", chain: "aff-lb-2" }, localSlots: [LOCAL] });

const lost = (...args: Parameters<typeof affinityLoss>): readonly string[] => [
  ...(affinityLoss(...args)?.endpoints ?? []),
];

test("affinityLoss: an endpoint that was lost stays lost until the front end has it again for all clients", () => {
  const loss = affinityLoss(frontEnd(), LOCAL_ONLY);
  assert.deepEqual([...(loss?.endpoints ?? [])], [REMOTE]);
  // The sync has failed, and the kernel already has the new front end.
  assert.deepEqual(lost(LOCAL_ONLY, LOCAL_ONLY, loss), [REMOTE]);
  assert.deepEqual(lost(undefined, undefined, loss), [REMOTE]);
  assert.deepEqual(lost(LOCAL_ONLY, frontEnd(), loss), []);
});

test("affinityLoss: a front end that goes loses its endpoints", () => {
  assert.deepEqual(lost(frontEnd(), undefined), [LOCAL, REMOTE]);
});

test("staleEntries: entries of other endpoints than the service port has are stale, also of ports that are gone or have no affinity", () => {
  const external = affinityKey(clusterIP, "TCP", SERVICE_PORT, true);
  const nodePort = frontEnd({
    ...{ key: portBytes("TCP", NODE_PORT), isNodePort: true, slots: [LOCAL], affinityKey: external },
  });
  const other = frontEnd({ key: addressKey(clusterIP, "TCP", 81), affinitySeconds: 0, affinityKey: undefined });
  const known = new Map([LOCAL_ONLY, nodePort, other].map((one) => [frontEndId(one), one]));
  const entry = (port: string, value: string) => ({ key: addressBytes(node) + port, value });
  const isStale = staleEntries("ip", { losses: new Map(), known, isFull: true });
  const own = affinityKey(clusterIP, "TCP", SERVICE_PORT, false);
  assert.equal(isStale(entry(own, REMOTE)), false, "pods may use it");
  assert.equal(isStale(entry(own, endpointValue(node, TARGET_PORT))), true);
  assert.equal(isStale(entry(external, LOCAL)), false);
  assert.equal(isStale(entry(external, REMOTE)), true);
  assert.equal(isStale(entry(affinityKey(clusterIP, "TCP", 81, false), LOCAL)), true, "it has no affinity");
  assert.equal(isStale(entry(affinityKey(clusterIP, "TCP", 82, false), LOCAL)), true, "there is no such port");
  assert.equal(isStale(entry(addressKey(node, "TCP", NODE_PORT), LOCAL)), true, "a release before has recorded it");
  const losses = new Map([[frontEndId(LOCAL_ONLY), { key: own, endpoints: new Set([REMOTE]) }]]);
  const isLost = staleEntries("ip", { losses, known, isFull: false });
  assert.equal(isLost(entry(own, REMOTE)), true, "not all clients may use it");
  assert.equal(isLost(entry(external, REMOTE)), false);
});

test("staleEntries: a load balancer's address that goes costs no client that other front ends of the port serve", () => {
  const losses = new Map([
    ["i", { key: affinityKey(clusterIP, "TCP", SERVICE_PORT, false), endpoints: new Set([REMOTE]) }],
  ]);
  const known = new Map([[frontEndId(frontEnd()), frontEnd()]]);
  const key = addressBytes(node) + affinityKey(clusterIP, "TCP", SERVICE_PORT, false);
  assert.equal(staleEntries("ip", { losses, known, isFull: false })({ key, value: REMOTE }), false);
  assert.equal(staleEntries("ip", { losses, known: new Map(), isFull: false })({ key, value: REMOTE }), true);
});
