import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { type ConntrackEntry, FakeConntrack } from "#kernel/conntrack";
import { addressKey, portBytes } from "../plan/index.ts";
import { addressesOf, endpoint, NODE_PORT, SERVICE_PORT, servicePort, TARGET_PORT } from "../testing/fixture.ts";
import type { TrackedPort } from "../track/index.ts";
import { deleteStaleFlows, udpFrontEnds } from "./index.ts";

const { clusterIP, loadBalancerIP, externalIP, node, external, localEndpoint, remoteEndpoint } = addressesOf(4);
const outside = IpAddress.parse("192.0.2.200");

/** A flow from outside to a destination, with this answering address. */
function flow(dst: IpAddress, dstPort: number, from: IpAddress, fromPort: number, protocol = 17): ConntrackEntry {
  return {
    family: 4,
    protocol,
    original: { src: external, dst, srcPort: 40_000, dstPort },
    reply: { src: from, dst: external, srcPort: fromPort, dstPort: 40_000 },
    mark: 0,
  };
}

const holds = (): boolean => true;

/** Number of deleted flows. */
function deleted(port: TrackedPort, ...flows: readonly ConntrackEntry[]): Promise<number> {
  const conntrack = new FakeConntrack();
  conntrack.entries.push(...flows);
  const frontEnds = udpFrontEnds([port], holds);
  return deleteStaleFlows(conntrack, 4, () => frontEnds, { isNodePortAddress: (address) => address.equals(node) });
}

const udp = (...endpoints: TrackedPort["endpoints"]): TrackedPort => ({
  port: servicePort(4, { protocol: "UDP" }),
  endpoints,
});
const local = endpoint(4, "local");
const here = [localEndpoint, TARGET_PORT] as const;
const there = [remoteEndpoint, TARGET_PORT] as const;

test("deleteStaleFlows: flows to serving endpoints stay, others are deleted, for every front end", async () => {
  const kinds = [
    [clusterIP, SERVICE_PORT],
    [loadBalancerIP, SERVICE_PORT],
    [externalIP, SERVICE_PORT],
    [node, NODE_PORT],
  ] as const;
  for (const [address, port] of kinds) {
    assert.equal(await deleted(udp(local), flow(address, port, ...here)), 0, String(address));
    assert.equal(await deleted(udp(local), flow(address, port, ...there)), 1, String(address));
    assert.equal(await deleted(udp(), flow(address, port, ...here)), 1, `${address}: no endpoint serves`);
    assert.equal(
      await deleted(udp(local), flow(address, port, address, port)),
      1,
      `${address}: sent before there were endpoints`,
    );
    assert.equal(
      await deleted(udp({ ...local, port: 9 }), flow(address, port, ...here)),
      1,
      `${address}: its target port changed`,
    );
  }
});

test("deleteStaleFlows: terminating endpoints that serve keep their flows, whatever the policies", async () => {
  const ending = { ...local, ready: false, terminating: true };
  assert.equal(await deleted(udp(ending), flow(clusterIP, SERVICE_PORT, ...here)), 0);
  assert.equal(await deleted(udp({ ...ending, serving: false }), flow(clusterIP, SERVICE_PORT, ...here)), 1);
  const policies = {
    port: servicePort(4, { protocol: "UDP", externalTrafficPolicy: "Local" }),
    endpoints: [endpoint(4, "remote")],
  };
  assert.equal(await deleted(policies, flow(node, NODE_PORT, ...there)), 0);
});

test("deleteStaleFlows: endpoints that are published before they are ready keep their flows", async () => {
  assert.equal(await deleted(udp({ ...local, serving: false }), flow(clusterIP, SERVICE_PORT, ...here)), 0);
  assert.equal(
    await deleted(udp({ ...local, ready: false, serving: false }), flow(clusterIP, SERVICE_PORT, ...here)),
    1,
  );
});

test("deleteStaleFlows: flows of TCP, to other ports, and to outside hosts at a NodePort's number stay", async () => {
  assert.equal(await deleted(udp(), flow(clusterIP, SERVICE_PORT, ...here, 6)), 0);
  assert.equal(await deleted(udp(), flow(clusterIP, 81, ...here)), 0);
  assert.equal(await deleted(udp(), flow(outside, NODE_PORT, outside, NODE_PORT)), 0);
  const tcp = { port: servicePort(4), endpoints: [] };
  assert.equal(await deleted(tcp, flow(clusterIP, SERVICE_PORT, ...here)), 0);
});

test("deleteStaleFlows: flows to a front end that another Service holds are compared with that Service's endpoints", async () => {
  const conntrack = new FakeConntrack();
  conntrack.entries.push(flow(clusterIP, SERVICE_PORT, ...there), flow(externalIP, SERVICE_PORT, ...there));
  const key = addressKey(externalIP, "UDP", SERVICE_PORT);
  const frontEnds = udpFrontEnds([udp(local)], (_, one) => one.key !== key);
  assert.equal(await deleteStaleFlows(conntrack, 4, () => frontEnds, { isNodePortAddress: () => false }), 1);
  assert.deepEqual(
    conntrack.entries.map(({ original }) => original.dst),
    [externalIP],
  );
});

test("deleteStaleFlows: tens of thousands of flows are read once", async () => {
  const conntrack = new FakeConntrack();
  for (let at = 0; at < 20_000; at += 1)
    conntrack.entries.push(flow(clusterIP, SERVICE_PORT, ...(at % 2 === 0 ? here : there)));
  const frontEnds = udpFrontEnds([udp(local)], holds);
  assert.equal(await deleteStaleFlows(conntrack, 4, () => frontEnds, { isNodePortAddress: () => false }), 10_000);
  assert.equal(conntrack.entries.length, 10_000);
});

test("deleteStaleFlows: translated flows of front ends that are gone are deleted; those to the address itself, and of other front ends, stay", async () => {
  const gone = [
    { key: addressKey(externalIP, "UDP", SERVICE_PORT), isNodePort: false },
    { key: portBytes("UDP", NODE_PORT), isNodePort: true },
  ];
  const conntrack = new FakeConntrack();
  const kept = [
    flow(externalIP, SERVICE_PORT, externalIP, SERVICE_PORT),
    flow(externalIP, SERVICE_PORT + 1, ...there),
    flow(node, NODE_PORT, node, NODE_PORT),
    flow(outside, NODE_PORT, ...there),
    flow(clusterIP, SERVICE_PORT, ...here),
  ];
  conntrack.entries.push(...kept, flow(externalIP, SERVICE_PORT, ...there), flow(node, NODE_PORT, ...here));
  const frontEnds = udpFrontEnds([], holds, gone);
  assert.equal(
    await deleteStaleFlows(conntrack, 4, () => frontEnds, { isNodePortAddress: (address) => address.equals(node) }),
    2,
  );
  assert.deepEqual(conntrack.entries, kept);
});

test("deleteStaleFlows: translated flows to NodePorts at an address that takes none any more are deleted", async () => {
  const conntrack = new FakeConntrack();
  const kept = [flow(node, NODE_PORT + 1, ...here), flow(node, NODE_PORT, node, NODE_PORT)];
  conntrack.entries.push(...kept, flow(node, NODE_PORT, ...here));
  const frontEnds = udpFrontEnds([udp(local)], holds);
  const host = { isNodePortAddress: () => false, isFormerNodePortAddress: (one: IpAddress) => one.equals(node) };
  assert.equal(await deleteStaleFlows(conntrack, 4, () => frontEnds, host), 1);
  assert.deepEqual(conntrack.entries, kept);
});
