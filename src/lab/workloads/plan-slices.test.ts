import assert from "node:assert/strict";
import { test } from "node:test";
import type { Pod, Service } from "#kube/client";
import { planSlices } from "./plan-slices.ts";

function service(spec: object = {}): Service {
  return {
    metadata: { name: "web", namespace: "default", uid: "s", resourceVersion: "1" },
    spec: { ipFamilies: ["IPv4"], ports: [{ name: "http", port: 80, targetPort: 8080, protocol: "TCP" }], ...spec },
  } as unknown as Service;
}

function pod(name: string, changes: { status?: object; metadata?: object; spec?: object } = {}): Pod {
  return {
    metadata: { name, namespace: "default", uid: name, resourceVersion: "1", ...changes.metadata },
    spec: { nodeName: "node1", containers: [], ...changes.spec },
    status: {
      phase: "Running",
      podIPs: [{ ip: "10.0.0.1" }, { ip: "fd00::1" }],
      conditions: [{ type: "Ready", status: "True" }],
      ...changes.status,
    },
  } as unknown as Pod;
}

const conditions = (one: Pod, spec: object = {}) => planSlices(service(spec), [one])[0]?.endpoints[0]?.conditions;

test("planSlices: a slice for each family of the Service, owned by it", () => {
  const slices = planSlices(service({ ipFamilies: ["IPv6", "IPv4"] }), [pod("a")]);
  assert.deepEqual(
    slices.map(({ addressType, endpoints, metadata }) => [addressType, endpoints[0]?.addresses, metadata.name]),
    [
      ["IPv6", ["fd00::1"], "web-ipv6-0-0"],
      ["IPv4", ["10.0.0.1"], "web-ipv4-0-0"],
    ],
  );
  assert.deepEqual(slices[0]?.metadata.labels, { "kubernetes.io/service-name": "web" });
  assert.deepEqual(
    planSlices(service({ clusterIP: "None" }), [pod("a")])[0]?.metadata.labels["service.kubernetes.io/headless"],
    "",
  );
});

test("planSlices: ready, terminating and unready pods have the conditions of KEP-1672", () => {
  const ending = { metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } };
  const unready = { status: { conditions: [{ type: "Ready", status: "False" }] } };
  assert.deepEqual(conditions(pod("a")), { ready: true, serving: true, terminating: false });
  assert.deepEqual(conditions(pod("a", ending)), { ready: false, serving: true, terminating: true });
  assert.deepEqual(conditions(pod("a", unready)), { ready: false, serving: false, terminating: false });
  assert.deepEqual(conditions(pod("a", { ...ending, ...unready })), {
    ready: false,
    serving: false,
    terminating: true,
  });
  assert.deepEqual(conditions(pod("a", unready), { publishNotReadyAddresses: true }), {
    ready: true,
    serving: true,
    terminating: false,
  });
});

test("planSlices: pods without an address of the family and pods that have ended are not endpoints", () => {
  assert.equal(planSlices(service(), [pod("a", { status: { podIPs: [{ ip: "fd00::1" }] } })]).length, 0);
  assert.equal(planSlices(service(), [pod("a", { status: { phase: "Succeeded" } })]).length, 0);
  assert.equal(planSlices(service(), []).length, 0);
});

test("planSlices: a named target port may differ by pod; many endpoints make several slices", () => {
  const named = service({ ports: [{ name: "http", port: 80, targetPort: "web", protocol: "TCP" }] });
  const at = (name: string, containerPort: number): Pod =>
    pod(name, { spec: { containers: [{ name: "c", ports: [{ name: "web", containerPort }] }] } });
  const slices = planSlices(named, [at("a", 8080), at("b", 9090), at("c", 8080)]);
  assert.deepEqual(
    slices.map(({ ports, endpoints }) => [ports[0]?.port, endpoints.map(({ targetRef }) => targetRef.name)]),
    [
      [8080, ["a", "c"]],
      [9090, ["b"]],
    ],
  );
  const many = planSlices(
    service(),
    Array.from({ length: 250 }, (_, number) => pod(`p${number}`)),
  );
  assert.deepEqual(
    many.map(({ endpoints }) => endpoints.length),
    [100, 100, 50],
  );
});
