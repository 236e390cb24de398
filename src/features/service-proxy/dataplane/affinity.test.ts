import assert from "node:assert/strict";
import { test } from "node:test";
import {
  addressBytes,
  addressKey,
  endpointValue,
  frontEndId,
  type ObservedFrontEnd,
  portBytes,
} from "../plan/index.ts";
import { addressesOf, NODE_PORT, SERVICE_PORT, TARGET_PORT } from "../testing/fixture.ts";
import { affinityLoss, staleEntries } from "./affinity.ts";

const { clusterIP, node, external, localEndpoint, remoteEndpoint } = addressesOf(4);
const [LOCAL, REMOTE] = [localEndpoint, remoteEndpoint].map((one) => endpointValue(one, TARGET_PORT)) as [
  string,
  string,
];

function frontEnd(changes: Partial<ObservedFrontEnd> = {}): ObservedFrontEnd {
  return {
    key: addressKey(clusterIP, "TCP", SERVICE_PORT),
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

test("staleEntries: of the known front ends entries of other endpoints are stale, also of front ends that are gone or have no affinity", () => {
  const nodePort = frontEnd({ key: portBytes("TCP", NODE_PORT), isNodePort: true, slots: [LOCAL] });
  const other = frontEnd({ key: addressKey(clusterIP, "TCP", 81), affinitySeconds: 0 });
  const known = new Map([LOCAL_ONLY, nodePort, other].map((one) => [frontEndId(one), one]));
  const entry = (address: typeof node, port: number, value: string) => ({
    key: addressBytes(external) + addressKey(address, "TCP", port),
    value,
  });
  const isStale = staleEntries("ip", { losses: new Map(), known });
  assert.equal(isStale(entry(clusterIP, SERVICE_PORT, REMOTE)), false, "pods may use it");
  assert.equal(isStale(entry(clusterIP, SERVICE_PORT, endpointValue(external, TARGET_PORT))), true);
  assert.equal(isStale(entry(node, NODE_PORT, LOCAL)), false);
  assert.equal(isStale(entry(node, NODE_PORT, REMOTE)), true);
  assert.equal(isStale(entry(clusterIP, 81, LOCAL)), true, "it has no affinity");
  assert.equal(isStale(entry(clusterIP, 82, LOCAL)), true, "there is no such front end");
  const losses = new Map([[frontEndId(LOCAL_ONLY), { endpoints: new Set([REMOTE]) }]]);
  const isLost = staleEntries("ip", { losses, known: undefined });
  assert.equal(isLost(entry(clusterIP, SERVICE_PORT, REMOTE)), true, "not all clients may use it");
  assert.equal(isLost(entry(node, NODE_PORT, REMOTE)), false);
});
