import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import type { PortWithEndpoints } from "../plan/index.ts";
import {
  addressesOf,
  endpoint,
  NODE_PORT,
  packetOf,
  ruleOptions,
  SERVICE_PORT,
  type Sender,
  servicePort,
  traceContextFor,
} from "../testing/fixture.ts";
import { frontEndAddress, matrix, type Row } from "../testing/matrix.ts";
import { type Outcome, type TraceContext, trace, traceAll } from "./index.ts";

const FAMILIES = [4, 6] as const;

/** Every outcome over many draws of the slot. */
function outcomes(
  context: TraceContext,
  ...[family, sender, destination, port, protocol]: Parameters<typeof packetOf>
): Outcome[] {
  const draws = Array.from({ length: 20 }, (_, at) => at / 20);
  return draws.map(
    (draw) => trace(packetOf(family, sender, destination, port, protocol), { ...context, random: () => draw }).outcome,
  );
}

function traceContextOfRow(family: IpFamily, row: Row): TraceContext {
  const endpoints = row.endpoints.map((one) => (typeof one === "string" ? endpoint(family, one) : one));
  const ports: PortWithEndpoints[] = [{ port: servicePort(family, row.service), endpoints }];
  const changes = {
    ...(row.masqueradeAll === true ? { masqueradeAll: true } : {}),
    ...(row.hasDetector === false ? { detector: undefined } : {}),
  };
  return traceContextFor(family, ports, ruleOptions(family, changes));
}

/** `C`, `LM`, `drop`: the row's own words, from all draws. */
function inShort(family: IpFamily, results: readonly Outcome[]): string {
  const { localEndpoint, remoteEndpoint } = addressesOf(family);
  const reached = new Set<string>();
  const ends = new Set<string>();
  for (const result of results) {
    if (result.kind !== "delivered") ends.add(result.kind === "dropped" ? "drop" : "reject");
    else {
      assert.ok(result.isTranslated, "a packet went on untranslated");
      reached.add(result.destination.toString());
      ends.add(result.isMasqueraded ? "M" : "");
    }
  }
  assert.equal(ends.size, 1, `not every draw ended alike: ${[...ends].join(" ")}`);
  const [end = ""] = ends;
  if (reached.size === 0) return end;
  const hasLocal = reached.has(localEndpoint.toString());
  const hasRemote = reached.has(remoteEndpoint.toString());
  return `${hasRemote ? "C" : hasLocal ? "L" : "?"}${end}`;
}

for (const family of FAMILIES) {
  test(`trace: every row of the traffic matrix, IPv${family}`, () => {
    for (const row of matrix(family)) {
      const { address, port } = frontEndAddress(family, row.kind);
      const found = inShort(family, outcomes(traceContextOfRow(family, row), family, row.sender, address, port));
      assert.equal(found, row.expected, row.name);
    }
  });
}

const both = (family: IpFamily) => [endpoint(family, "local"), endpoint(family, "remote")];

test("trace: an endpoint that reaches itself through its Service is masqueraded", () => {
  for (const family of FAMILIES) {
    const { localEndpoint, clusterIP } = addressesOf(family);
    const context = traceContextFor(family, [{ port: servicePort(family), endpoints: [endpoint(family, "local")] }]);
    const packet = { ...packetOf(family, "pod", clusterIP, SERVICE_PORT), source: localEndpoint };
    const { outcome } = trace(packet, context);
    assert.ok(outcome.kind === "delivered" && outcome.destination.equals(localEndpoint) && outcome.isMasqueraded);
  }
});

test("trace: source ranges guard only the load balancer's addresses, also against pods and the node", () => {
  for (const family of FAMILIES) {
    const { external, node, pod, loadBalancerIP, externalIP, clusterIP } = addressesOf(family);
    const at = (sourceRanges: readonly Cidr[], sender: Sender, address: IpAddress, port = SERVICE_PORT): string => {
      const context = traceContextFor(family, [
        { port: servicePort(family, { sourceRanges }), endpoints: both(family) },
      ]);
      return [...new Set(outcomes(context, family, sender, address, port).map(({ kind }) => kind))].join(" ");
    };
    const onlyExternal = [Cidr.host(external)];
    assert.equal(at(onlyExternal, "external", loadBalancerIP), "delivered");
    assert.equal(at(onlyExternal, "pod", loadBalancerIP), "dropped");
    assert.equal(at(onlyExternal, "node", loadBalancerIP), "dropped");
    assert.equal(at([Cidr.host(pod)], "external", loadBalancerIP), "dropped");
    assert.equal(at([Cidr.host(node)], "node", loadBalancerIP), "delivered");
    for (const address of [externalIP, clusterIP]) assert.equal(at([Cidr.host(pod)], "external", address), "delivered");
    assert.equal(at([Cidr.host(pod)], "external", node, NODE_PORT), "delivered");
  }
});

test("trace: a node in a range may use a load balancer's address that it holds as its source", () => {
  const { node, loadBalancerIP } = addressesOf(4);
  const sourceRanges = [Cidr.host(node)];
  const context = traceContextFor(4, [{ port: servicePort(4, { sourceRanges }), endpoints: both(4) }]);
  const packet = { ...packetOf(4, "node", loadBalancerIP, SERVICE_PORT), source: loadBalancerIP };
  assert.equal(trace(packet, { ...context, localAddresses: [node, loadBalancerIP] }).outcome.kind, "delivered");
});

test("trace: unused ports of a Service are rejected, unused addresses of ServiceCIDRs dropped, other protocols left alone", () => {
  for (const family of FAMILIES) {
    const { clusterIP, serviceCIDR, node } = addressesOf(family);
    const context = traceContextFor(family, [{ port: servicePort(family), endpoints: both(family) }]);
    const kinds = (...args: [IpAddress, number, ("TCP" | "UDP")?]): string[] => [
      ...new Set(
        (["external", "node", "pod"] as const).flatMap((sender) =>
          outcomes(context, family, sender, ...args).map(({ kind }) => kind),
        ),
      ),
    ];
    assert.deepEqual(kinds(clusterIP, 81), ["rejected"]);
    assert.deepEqual(kinds(clusterIP, SERVICE_PORT, "UDP"), ["rejected"]);
    assert.deepEqual(kinds(serviceCIDR.at(0x99), SERVICE_PORT), ["dropped"]);
    const other = trace(packetOf(family, "external", node, 22), context).outcome;
    assert.ok(other.kind === "delivered" && !other.isTranslated);
  }
});

test("trace: NodePorts work only at their addresses, never at loopback", () => {
  const ports = [{ port: servicePort(4), endpoints: both(4) }];
  const loopback = IpAddress.parse("127.0.0.1");
  const second = IpAddress.parse("192.0.2.77");
  const translated = (context: TraceContext, destination: IpAddress): boolean => {
    const { outcome } = trace(packetOf(4, "node", destination, NODE_PORT), context);
    return outcome.kind === "delivered" && outcome.isTranslated;
  };
  const primary = { ...traceContextFor(4, ports), localAddresses: [addressesOf(4).node, second] };
  assert.equal(translated(primary, addressesOf(4).node), true);
  assert.equal(translated(primary, second), false);
  const everywhere = traceContextFor(4, ports, ruleOptions(4, { nodePortAddresses: "all-local" }));
  const context = { ...everywhere, localAddresses: [addressesOf(4).node, second] };
  assert.equal(translated(context, second), true);
  assert.equal(translated(context, loopback), false);
});

test("trace: names the rules that applied", () => {
  const context = traceContextFor(4, [{ port: servicePort(4), endpoints: [endpoint(4, "remote")] }]);
  const { steps } = trace(packetOf(4, "external", addressesOf(4).clusterIP, SERVICE_PORT), context);
  assert.deepEqual(
    steps.map(({ chain }) => chain),
    [
      "filter-prerouting",
      "nat-prerouting",
      "services",
      "services",
      "lb-1",
      "filter-forward",
      "nat-postrouting",
      "masquerading",
      "masquerading",
    ],
  );
  assert.match(steps[4]?.text ?? "", /dnat ip to ip daddr \. meta l4proto \. th dport \. numgen random mod 1 map @eps/);
});

test("trace: names the elements that decided, and their Service", () => {
  const context = traceContextFor(6, [{ port: servicePort(6), endpoints: [endpoint(6, "remote")] }]);
  const { clusterIP, remoteEndpoint } = addressesOf(6);
  const { steps } = trace(packetOf(6, "external", clusterIP, SERVICE_PORT), context);
  const service = "ns/svc:http/TCP";
  assert.deepEqual(
    steps.flatMap(({ element }) => element ?? []),
    [
      { set: "cluster-ips", text: String(clusterIP) },
      { set: "service-ips", text: `${clusterIP} . tcp . 80 : goto lb-1`, service },
      { set: "eps", text: `${clusterIP} . tcp . 80 . 0 : ${remoteEndpoint} . 8080`, service },
    ],
  );
});

test("traceAll: one trace for each slot, so every endpoint once; one trace if nothing is random", () => {
  for (const family of FAMILIES) {
    const { clusterIP, localEndpoint, remoteEndpoint, node } = addressesOf(family);
    const context = traceContextFor(family, [{ port: servicePort(family), endpoints: both(family) }]);
    const ends = traceAll(packetOf(family, "external", clusterIP, SERVICE_PORT), context).map(({ outcome }) =>
      outcome.kind === "delivered" ? String(outcome.destination) : outcome.kind,
    );
    assert.deepEqual(ends.sort(), [localEndpoint, remoteEndpoint].map(String).sort());
    assert.equal(traceAll(packetOf(family, "external", node, 22), context).length, 1);
  }
});
