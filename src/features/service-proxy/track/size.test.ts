import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import type { Service } from "#kube/client";
import { boundedWork } from "#test/bounded-work";
import { NODE } from "../testing/fixture.ts";
import { portsOf, sliceView, Tracker } from "./index.ts";
import { elementsOf, MAX_ELEMENTS } from "./size.ts";

const OPTIONS = { allowExternalIPs: true };
const metadata = { name: "svc", namespace: "ns", uid: "u", resourceVersion: "1" };
type Spec = NonNullable<Service["spec"]>;

const addresses = (count: number): string[] =>
  Array.from({ length: count }, (_, at) => `203.${(at >> 16) & 255}.${(at >> 8) & 255}.${at & 255}`);
const portsList = (count: number): NonNullable<Spec["ports"]> =>
  Array.from({ length: count }, (_, at) => ({ name: `p${at}`, port: at + 1 }));

/** A Service with so many ports at so many addresses. */
function serviceWith(ports: number, externalIPs: number, spec: Partial<Spec> = {}): Service {
  return {
    metadata,
    spec: { clusterIP: "10.96.0.1", ports: portsList(ports), externalIPs: addresses(externalIPs), ...spec },
  };
}

/** A slice of the Service with all of its ports. */
function sliceWith(ports: number, endpoints: number) {
  return sliceView({
    metadata: { ...metadata, labels: { "kubernetes.io/service-name": "svc" } },
    addressType: "IPv4",
    ports: portsList(ports),
    endpoints: addresses(endpoints).map((one) => ({ addresses: [one], conditions: { ready: true } })),
  });
}

const newTracker = (): Tracker => new Tracker(4, { node: NODE, nodeIPs: [] });

test("elementsOf: front ends with their endpoints, and load balancer addresses with their ranges", () => {
  const spec = { type: "LoadBalancer", loadBalancerSourceRanges: ["192.0.2.0/24", "198.51.100.0/24", "2001:db8::/32"] };
  const status = { loadBalancer: { ingress: [{ ip: "198.51.100.9" }] } };
  const ports = portsOf({ ...serviceWith(3, 4, spec), status }, 4, OPTIONS);
  const slice = sliceWith(2, 5) ?? assert.fail();
  // Six addresses: the cluster IP, four externalIPs and the load balancer's. Two ports have endpoints.
  assert.equal(elementsOf(ports, [slice]), 2 * 6 * (1 + 5) + 6 + 3 * 2);
});

test("Tracker: objects of the largest size whose lists multiply to billions are read in time with the lists, have no ports, and are told once", () => {
  const subjects = [
    serviceWith(10_000, 60_000),
    serviceWith(10_000, 0, {
      type: "LoadBalancer",
      loadBalancerSourceRanges: addresses(50_000).map((one) => `${one}/32`),
    }),
  ];
  const status = { loadBalancer: { ingress: [{ ip: "198.51.100.9" }] } };
  for (const subject of subjects) {
    const tracker = newTracker();
    boundedWork(() => {
      const ports = portsOf({ ...subject, status }, 4, OPTIONS);
      assert.equal(tracker.setService("ns/svc", ports), true);
      assert.equal(tracker.setService("ns/svc", portsOf({ ...subject, status }, 4, OPTIONS)), false);
      for (let at = 0; at < 2; at += 1)
        assert.deepEqual([tracker.plan("ns/svc"), tracker.ports("ns/svc")], [undefined, []]);
    });
    const [[service, elements] = assert.fail(), ...others] = tracker.takeTooLarge();
    assert.deepEqual([service, others], ["ns/svc", []]);
    assert.ok(elements > 100 * MAX_ELEMENTS, String(elements));
    assert.equal(tracker.takeTooLarge().size, 0);
    tracker.setService("ns/svc", portsOf(serviceWith(1, 1), 4, OPTIONS));
    assert.notEqual(tracker.plan("ns/svc"), undefined);
    tracker.setService("ns/svc", portsOf({ ...subject, status }, 4, OPTIONS));
    assert.equal(tracker.plan("ns/svc"), undefined);
    assert.equal(tracker.takeTooLarge().size, 1);
  }
});

test("Tracker: slices that make a Service too large leave it without ports, also those of others", () => {
  const tracker = newTracker();
  tracker.setService("ns/svc", portsOf(serviceWith(2000, 1), 4, OPTIONS));
  tracker.setSlice("ns/one", sliceWith(2000, 1));
  assert.equal(tracker.ports("ns/svc").length, 2000);
  tracker.setSlice("ns/two", sliceWith(2000, 1000));
  assert.equal(tracker.ports("ns/svc").length, 0);
  tracker.setSlice("ns/two", undefined);
  assert.equal(tracker.ports("ns/svc").length, 2000);
});

test("Tracker: whose the endpoints at claimed addresses are is told in time with the slices, however many ports each has", () => {
  const tracker = newTracker();
  tracker.setService("ns/svc", portsOf(serviceWith(1, 1000), 4, OPTIONS));
  const slice = sliceWith(20_000, 1000) ?? assert.fail();
  for (let at = 0; at < 10; at += 1)
    tracker.setSlice(`n${at}/s`, { ...slice, metadata: { ...slice.metadata, namespace: `n${at}` } });
  boundedWork(() => {
    for (const text of addresses(1000)) {
      const address = IpAddress.parse(text);
      assert.equal(tracker.otherEndpoint(address, "n0"), "n1");
      assert.equal(tracker.otherEndpoint(address, "n1", { protocol: "TCP", port: 20_000 }), "n0");
      assert.equal(tracker.otherEndpoint(address, "n1", { protocol: "UDP", port: 20_000 }), undefined);
    }
  });
  assert.equal(tracker.otherEndpoint(IpAddress.parse("192.0.2.1"), "ns"), undefined, "nobody claims it");
});

test("Tracker: ports that differ in one list alone are others", () => {
  const tracker = newTracker();
  const set = (service: Service): boolean => tracker.setService("ns/svc", portsOf(service, 4, OPTIONS));
  const ranges = (...loadBalancerSourceRanges: string[]) =>
    serviceWith(2, 1, { type: "LoadBalancer", loadBalancerSourceRanges });
  const subjects = [
    serviceWith(2, 1),
    serviceWith(2, 2),
    serviceWith(3, 2),
    ranges("10.0.0.0/8"),
    ranges("10.0.0.0/9"),
  ];
  for (const one of subjects) assert.deepEqual([set(one), set(one)], [true, false]);
});
