import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { EndpointSlice, Service } from "#kube/client";
import { WantedTable } from "../plan/index.ts";
import { NODE } from "../testing/fixture.ts";
import { randomService, randomSlice } from "../testing/random-objects.ts";
import {
  endpointsOf,
  lenientAddress,
  lenientCidr,
  MAX_TRIGGERS,
  portsOf,
  type SliceView,
  sliceView,
  Tracker,
} from "./index.ts";

const options = { allowExternalIPs: true };

function service(spec: object, status: object = {}): Service {
  return {
    metadata: { name: "svc", namespace: "ns", uid: "1", resourceVersion: "1" },
    spec: { clusterIP: "10.96.0.1", ports: [{ port: 80, protocol: "TCP" }], ...spec },
    status,
  } as unknown as Service;
}

function slice(endpoints: readonly object[], changes: object = {}): SliceView {
  const view = sliceView({
    metadata: {
      name: "s",
      namespace: "ns",
      uid: "1",
      resourceVersion: "1",
      labels: { "kubernetes.io/service-name": "svc" },
    },
    addressType: "IPv4",
    ports: [{ name: "", port: 8080, protocol: "TCP" }],
    endpoints,
    ...changes,
  } as unknown as EndpointSlice);
  assert.ok(view !== undefined);
  return view;
}

test("lenientAddress: accepts what older validation stored; refuses other text and the other family", () => {
  assert.equal(String(lenientAddress(" 010.000.001.007 ", 4)), "10.0.1.7");
  assert.equal(String(lenientAddress("FD00::0001", 6)), "fd00::1");
  for (const text of ["", "None", "1.2.3", "1.2.3.4.5", "300.1.1.1", "0x7f.0.0.1", "fd00::zz"])
    assert.equal(lenientAddress(text, 4), undefined, text);
  assert.equal(lenientAddress("10.0.0.1", 6), undefined);
  assert.equal(String(lenientCidr(" 10.1.2.3/8 ")), "10.0.0.0/8");
  assert.equal(lenientCidr("10.0.0.0/33"), undefined);
});

test("portsOf: headless, ExternalName and other families' Services have no ports", () => {
  const ports = (spec: object): number => portsOf(service(spec), 4, options).length;
  assert.equal(ports({}), 1);
  for (const spec of [
    { clusterIP: "None" },
    { clusterIP: "" },
    { type: "ExternalName" },
    { clusterIP: "fd00::1" },
    { ports: undefined },
  ]) {
    assert.equal(ports(spec), 0, JSON.stringify(spec));
  }
  const dual = service({ clusterIP: "fd00::1", clusterIPs: ["fd00::1", "10.96.0.2"] });
  assert.equal(String(portsOf(dual, 4, options)[0]?.clusterIP), "10.96.0.2");
  assert.equal(String(portsOf(dual, 6, options)[0]?.clusterIP), "fd00::1");
});

test("portsOf: load balancers' addresses by ipMode, source ranges by family, a /0 means all sources", () => {
  const ingress = [
    { ip: "1.1.1.1" },
    { ip: "1.1.1.2", ipMode: "VIP" },
    { ip: "1.1.1.3", ipMode: "Proxy" },
    { hostname: "x" },
    { ip: "fd00::9" },
  ];
  const [port] = portsOf(
    service({ loadBalancerSourceRanges: [" 10.0.0.0/8 ", "fd00::/8"] }, { loadBalancer: { ingress } }),
    4,
    options,
  );
  assert.deepEqual(port?.loadBalancerIPs.map(String), ["1.1.1.1", "1.1.1.2"]);
  assert.deepEqual(port?.sourceRanges?.map(String), ["10.0.0.0/8"]);
  assert.deepEqual(
    portsOf(service({ loadBalancerSourceRanges: ["10.0.0.0/8", "0.0.0.0/0"] }), 4, options)[0]?.sourceRanges,
    undefined,
  );
});

test("portsOf: a list of sources that has an entry which cannot be read is not an empty list, and mapped prefixes are IPv4", () => {
  const allowed = (family: 4 | 6, ...loadBalancerSourceRanges: string[]): readonly string[] | undefined =>
    portsOf(
      service({ loadBalancerSourceRanges, clusterIPs: ["10.96.0.1", "fd00::1"] }),
      family,
      options,
    )[0]?.sourceRanges?.map(String);
  assert.deepEqual(allowed(4, "::ffff:10.0.0.0/104"), ["10.0.0.0/8"]);
  assert.equal(allowed(6, "::ffff:10.0.0.0/104"), undefined, "of the other family alone");
  assert.equal(allowed(4, "::ffff:0.0.0.0/96"), undefined, "all of IPv4");
  for (const text of [
    "10.0.0.0",
    "10.0.0.0/33",
    "10.0.0/8",
    "",
    "*",
    "::ffff:10.0.0.0/129",
    "10.0.0.0/8/8",
    "fe80::%eth0/64",
  ]) {
    for (const family of [4, 6] as const) assert.deepEqual(allowed(family, text), [], text);
    assert.deepEqual(allowed(4, text, "192.0.2.0/24"), ["192.0.2.0/24"], text);
    assert.deepEqual(allowed(6, text, "192.0.2.0/24"), [], text);
  }
  assert.equal(allowed(6, "10.0.0.0/8"), undefined);
  assert.equal(allowed(4, "2001:db8::/32"), undefined);
});

test("portsOf: external IPs by the gate, affinity within its range", () => {
  const externalIPs = ["1.1.1.1", "fd00::1", "garbage"];
  assert.deepEqual(portsOf(service({ externalIPs }), 4, options)[0]?.externalIPs.map(String), ["1.1.1.1"]);
  assert.deepEqual(portsOf(service({ externalIPs }), 4, { allowExternalIPs: false })[0]?.externalIPs, []);
  const seconds = (timeoutSeconds: number | undefined): number | undefined =>
    portsOf(
      service({ sessionAffinity: "ClientIP", sessionAffinityConfig: { clientIP: { timeoutSeconds } } }),
      4,
      options,
    )[0]?.affinitySeconds;
  assert.deepEqual([seconds(undefined), seconds(30), seconds(0), seconds(1e9)], [10_800, 30, 1, 86_400]);
});

test("portsOf: the time for which flows stay with an endpoint that is not ready, of UDP ports alone, 1 to 300 s", () => {
  const both = service({ ports: [{ port: 53, protocol: "UDP" }, { port: 53 }] });
  const secondsOf = (text: string) => {
    const metadata = { ...both.metadata, annotations: { "isthmus.dev/unready-udp-flow-seconds": text } };
    return portsOf({ ...both, metadata }, 4, options).map(({ unreadyFlowSeconds }) => unreadyFlowSeconds);
  };
  for (const [text, seconds] of [
    ["1", 1],
    ["60", 60],
    ["300", 300],
  ] as const)
    assert.deepEqual(secondsOf(text), [seconds, undefined]);
  for (const text of ["", "0", "301", "1000", "-1", "1.5", "60s", " 60", "x"])
    assert.deepEqual(secondsOf(text), [undefined, undefined], text);
});

test("portsOf: a health check port counts only for load balancers of policy Local", () => {
  const port = (spec: object): number | undefined =>
    portsOf(service({ healthCheckNodePort: 32_000, ...spec }), 4, options)[0]?.healthCheckNodePort;
  assert.equal(port({ type: "LoadBalancer", externalTrafficPolicy: "Local" }), 32_000);
  assert.equal(port({ type: "LoadBalancer", externalTrafficPolicy: "Local", healthCheckNodePort: 70_000 }), 0);
  assert.equal(port({ type: "LoadBalancer", externalTrafficPolicy: "Cluster" }), 0);
  assert.equal(port({ type: "NodePort", externalTrafficPolicy: "Local" }), 0);
  assert.equal(port({}), 0);
});

test("sliceView: absent conditions mean ready, serving, not terminating; slices without a Service and of host names are left out", () => {
  const [endpoint] = slice([{ addresses: ["10.0.0.1", "10.0.0.2"] }]).endpoints;
  assert.deepEqual(
    [endpoint?.address, endpoint?.ready, endpoint?.serving, endpoint?.terminating],
    ["10.0.0.1", true, true, false],
  );
  const raw = { metadata: { name: "s", namespace: "ns", labels: {} }, addressType: "IPv4", endpoints: [] };
  assert.equal(sliceView(raw as unknown as EndpointSlice), undefined);
});

test("endpointsOf: one address twice counts once; a terminating endpoint never replaces one that is not", () => {
  const port = { portName: "", protocol: "TCP" } as const;
  const ending = { conditions: { ready: false, terminating: true } };
  for (const order of [
    [{}, ending],
    [ending, {}],
  ]) {
    const slices = order.map((conditions) => slice([{ addresses: ["10.0.0.1"], nodeName: NODE.name, ...conditions }]));
    const found = endpointsOf(slices, port, NODE.name);
    assert.equal(found.length, 1);
    assert.deepEqual([found[0]?.ready, found[0]?.terminating, found[0]?.isLocal], [true, false, true]);
  }
  assert.equal(endpointsOf([slice([{ addresses: ["10.0.0.1"] }])], { ...port, protocol: "UDP" }, NODE.name).length, 0);
});

test("endpointsOf: of one address twice the ready one is used, whatever the order of the slices", () => {
  const port = { portName: "", protocol: "TCP" } as const;
  const [ready, unready] = [true, false].map((isReady) =>
    slice([{ addresses: ["10.0.0.1"], conditions: { ready: isReady } }]),
  );
  assert.ok(ready !== undefined && unready !== undefined);
  for (const slices of [
    [ready, unready],
    [unready, ready],
  ]) {
    assert.deepEqual(
      endpointsOf(slices, port, NODE.name).map((one) => one.ready),
      [true],
    );
  }
});

test("Tracker: an unchanged object has no effect; a slice that moves leaves its Service", () => {
  const tracker = new Tracker(4, { node: NODE, nodeIPs: [] });
  assert.equal(tracker.setService("ns/svc", portsOf(service({}), 4, options)), true);
  assert.equal(tracker.setService("ns/svc", portsOf(service({}), 4, options)), false);
  const one = slice([{ addresses: ["10.0.0.1"] }]);
  assert.equal(tracker.setSlice("ns/s", one), true);
  assert.equal(tracker.setSlice("ns/s", { ...one, metadata: { ...one.metadata, resourceVersion: "2" } }), false);
  assert.deepEqual([...tracker.take().services], ["ns/svc"]);
  assert.equal(tracker.isDirty, false);
  assert.equal(tracker.setSlice("ns/s", { ...one, service: "ns/other" }), true);
  assert.deepEqual([...tracker.take().services].sort(), ["ns/other", "ns/svc"]);
  assert.equal(tracker.ports("ns/svc")[0]?.endpoints.length, 0);
  assert.equal(tracker.setSlice("ns/s", undefined), true);
  assert.equal(tracker.setSlice("ns/s", undefined), false);
});

test("Tracker: returned trigger times come again, the earliest first, and never more than the bound", () => {
  const tracker = new Tracker(4, { node: NODE, nodeIPs: [] });
  const change = (at: number): boolean =>
    tracker.setSlice("ns/s", { ...slice([{ addresses: [`10.0.${at >> 8}.${at & 255}`] }]), triggeredAt: at });
  change(1);
  const { triggeredAt } = tracker.take();
  change(2);
  tracker.giveBack(triggeredAt);
  assert.deepEqual(tracker.take().triggeredAt, [1, 2]);
  assert.deepEqual(tracker.take().triggeredAt, []);
  for (let at = 0; at < MAX_TRIGGERS + 5; at += 1) change(at);
  const full = tracker.take().triggeredAt;
  assert.equal(full.length, MAX_TRIGGERS);
  change(7);
  tracker.giveBack(full);
  assert.deepEqual(tracker.take().triggeredAt, full);
});

test("Tracker: a changed zone makes every Service pending, the same context none", () => {
  const tracker = new Tracker(4, { node: NODE, nodeIPs: [] });
  tracker.setService("ns/svc", portsOf(service({}), 4, options));
  tracker.take();
  assert.equal(tracker.setContext({ node: NODE, nodeIPs: [] }), false);
  assert.equal(tracker.setContext({ node: { ...NODE, zone: "a" }, nodeIPs: [] }), true);
  assert.deepEqual([...tracker.take().services], ["ns/svc"]);
});

test("Tracker: nothing remains of removed objects, and no object makes it throw", () => {
  fc.assert(
    fc.property(fc.array(randomService), fc.array(randomSlice), (services, slices) => {
      const tracker = new Tracker(4, { node: NODE, nodeIPs: [] });
      const wanted = new WantedTable();
      const apply = (): void => {
        for (const name of tracker.take().services) wanted.set(name, tracker.plan(name));
      };
      for (const one of services) tracker.setService(`ns/${one.metadata.name}`, portsOf(one, 4, options));
      for (const one of slices) tracker.setSlice(one.metadata.name, sliceView(one));
      apply();
      for (const one of services) tracker.setService(`ns/${one.metadata.name}`, []);
      for (const one of slices) tracker.setSlice(one.metadata.name, undefined);
      apply();
      assert.deepEqual([[...wanted.frontEnds()], wanted.clusterIPs.size, wanted.hairpinEndpoints.size], [[], 0, 0]);
    }),
  );
});

test("Tracker: a Service that is set aside has no ports and no plan until its time is over, and its version tells its objects' states apart", () => {
  const versions: string[] = [];
  const ended: string[] = [];
  let isAside = true;
  const tracker = new Tracker(
    4,
    { node: NODE, nodeIPs: [] },
    {
      steps: {
        step: (_service, version, work) => {
          versions.push(version());
          return isAside ? { waitMs: 7 } : { value: work() };
        },
        endedWell: (_service, version) => void ended.push(version()),
      },
    },
  );
  tracker.setService("ns/svc", portsOf(service({}), 4, options));
  tracker.setSlice("ns/s", slice([{ addresses: ["10.0.0.1"] }]));
  assert.deepEqual([tracker.plan("ns/svc"), tracker.ports("ns/svc")], [undefined, []]);
  assert.equal(
    tracker.recorded("ns/svc", () => assert.fail("it is set aside")),
    undefined,
  );
  assert.deepEqual([...tracker.takeAside()], [["ns/svc", 7]]);
  assert.equal(tracker.takeAside().size, 0);
  isAside = false;
  assert.equal(tracker.ports("ns/svc").length, 1);
  assert.notEqual(tracker.plan("ns/svc"), undefined);
  assert.deepEqual(
    tracker.recorded("ns/svc", () => "done"),
    { value: "done" },
  );
  tracker.endedWell("ns/svc");
  assert.equal(new Set([...versions, ...ended]).size, 1);
  tracker.setService("ns/svc", portsOf(service({ clusterIP: "10.96.0.2" }), 4, options));
  tracker.plan("ns/svc");
  const changed = slice([{ addresses: ["10.0.0.1"] }], {});
  tracker.setSlice("ns/s", { ...changed, ports: [], metadata: { ...changed.metadata, resourceVersion: "2" } });
  tracker.plan("ns/svc");
  assert.equal(new Set(versions).size, 3);
});
