import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { type Draft, KubeClient, staticConnection } from "#kube/client";
import { type SeedObject, startApiServer } from "#lab/api-server";
import { type NicClaim, type NicPolicy, type NicPolicySpec, nicCrds, nicResources } from "./index.ts";

const { nicClaims, nicPolicies } = nicResources;
const UID = "0a64ecb8-6f54-4d0f-9e42-7c8d7f8c3a10";
const CLAIM: Draft<NicClaim> = {
  metadata: { name: UID, namespace: "default", labels: { "isthmus.dev/pod": "nginx", "isthmus.dev/node": "node1" } },
  spec: {
    podName: "nginx",
    podUID: UID,
    vpc: "vpc-1",
    provider: "neutron",
    nics: [
      { name: "eth0", subnet: "subnet-1", ip: "192.168.0.12" },
      { name: "eth1", portID: "a2815656-76f7-46d4-9d11-057063db1a14" },
    ],
    vm: { flavor: "m1.large" },
  },
};

/** An API server with our CRDs. */
async function open(t: TestContext) {
  const server = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    log: nullLogger,
    clock: systemClock,
  });
  t.after(() => server[Symbol.asyncDispose]());
  server.seed(nicCrds as unknown as readonly SeedObject[]);
  await server.settled();
  const api = new KubeClient(staticConnection({ server: server.urls[0] ?? "" }), { clock: systemClock });
  t.after(() => api.close());
  return { api, url: server.urls[0] ?? "" };
}

test("nic crds: an API server stores a claim whole, and its status only as the subresource", async (t) => {
  const { api } = await open(t);
  const status: NonNullable<NicClaim["status"]> = {
    observedGeneration: 1,
    nodeName: "node1",
    phase: "Plumbable",
    conditions: [{ type: "Plugged", status: "True", lastTransitionTime: "2026-01-01T00:00:00Z" }],
    nics: [
      {
        name: "eth0",
        portID: "30b6911d-1111-4111-8111-111111111111",
        portName: `nic-${UID}-eth0`,
        createdByController: true,
        state: "InProgress",
        mac: "fa:16:3e:00:00:01",
        mtu: 1450,
        ips: [{ ip: "192.168.0.12", prefixLength: 24, subnetID: "s", gateway: "192.168.0.1" }],
        routes: [{ dst: "10.0.0.0/8", via: "192.168.0.254" }],
        dns: { nameservers: ["192.168.0.2"], search: [] },
        host: "node1",
        vifType: "ovs",
        vifDetails: { ovsHybridPlug: true, bridgeName: "br-int", datapathType: "system", portFilter: true },
        savedDevice: { deviceID: "", deviceOwner: "", host: "" },
        lostAt: "2026-01-01T00:00:00Z",
        createdAt: "2026-01-01T00:00:00Z",
        attempts: 0,
      },
    ],
  };
  const created = await api.create(nicClaims, { ...CLAIM, status });
  assert.equal(created.status, undefined);
  const withStatus = await api.replaceStatus(nicClaims, { ...created, status });
  assert.deepEqual(withStatus.status, status);
  assert.deepEqual(withStatus.spec, CLAIM.spec);
});

test("nic crds: conditions and NICs of two writers are applied side by side", async (t) => {
  const { api } = await open(t);
  await api.create(nicClaims, CLAIM);
  const apply = (fieldManager: string, status: NicClaim["status"]) =>
    api.patch(
      nicClaims,
      { namespace: "default", name: UID },
      {
        type: "apply",
        fieldManager,
        body: { apiVersion: "isthmus.dev/v1alpha1", kind: "NicClaim", metadata: { name: UID }, status },
      },
      { subresource: "status" },
    );
  await apply("agent", { conditions: [{ type: "Plugged", status: "True" }] });
  const both = await apply("controller", { phase: "Plumbable", conditions: [{ type: "Quota", status: "True" }] });
  assert.deepEqual(
    both.status?.conditions?.map(({ type }) => type),
    ["Plugged", "Quota"],
  );
});

test("nic crds: an API server refuses claims and policies that are none, and unknown fields under Strict", async (t) => {
  const { api, url } = await open(t);
  const { spec } = CLAIM;
  const nic = (one: object) => ({ ...CLAIM, spec: { ...spec, nics: [{ name: "eth0", ...one }] } });
  const cases: readonly [Draft<NicClaim>, RegExp][] = [
    [{ ...CLAIM, spec: { ...spec, nics: [] } }, /spec.nics/],
    [{ ...CLAIM, spec: { ...spec, nics: Array.from({ length: 33 }, (_, at) => ({ name: `eth${at}` })) } }, /spec.nics/],
    [{ ...CLAIM, spec: { ...spec, nics: [{ name: "eth0" }, { name: "eth0" }] } }, /Duplicate value/],
    [nic({ portID: "A2815656-76F7-46D4-9D11-057063DB1A14" }), /portID/],
    [nic({ mac: "02-00-00-00-00-01" }), /mac/],
    [nic({ name: "a-name-of-16-byte" }), /name/],
  ];
  for (const [claim, says] of cases)
    await assert.rejects(api.create(nicClaims, claim), { code: "invalid", message: says });
  const policy = (name: string, policySpec: object): Draft<NicPolicy> => ({ metadata: { name }, spec: policySpec });
  await assert.rejects(api.create(nicPolicies, policy("other", {})), {
    message: /the only NicPolicy of a cluster is named default/,
  });
  const unknown = await fetch(`${url}/apis/isthmus.dev/v1alpha1/nicpolicies?fieldValidation=Strict`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      apiVersion: "isthmus.dev/v1alpha1",
      kind: "NicPolicy",
      ...policy("default", { hotPlug: true }),
    }),
  });
  assert.equal(unknown.status, 400);
  assert.match(await unknown.text(), /unknown field .*spec.hotPlug/);
  const good: NicPolicySpec = {
    containers: { maxNics: 4 },
    flavors: { "m1.small": { maxNics: 2 } },
    unknownFlavor: { maxNics: 1 },
    tenants: [
      { name: "blue", selector: { names: ["blue-1"], matchLabels: { tenant: "blue" } }, maxNics: 2, maxPorts: 10 },
    ],
    defaultSecurityGroups: ["default"],
    hotplug: true,
    providers: [{ name: "neutron", type: "neutron", default: true, config: { authUrl: "http://127.0.0.1:5000" } }],
    vpcBindings: [{ vpc: "vpc-1", provider: "neutron", projectID: "p", namespaces: ["blue-1"] }],
  };
  assert.deepEqual((await api.create(nicPolicies, policy("default", good))).spec, good);
});

test("nic crds: names, scopes, subresources and columns", () => {
  const summary = nicCrds.map(({ metadata, spec }) => {
    const [version] = spec.versions;
    const columns = version?.additionalPrinterColumns?.map(({ name }) => name);
    return [metadata.name, spec.scope, Object.keys(version?.subresources ?? {}), columns];
  });
  assert.deepEqual(summary, [
    ["nicclaims.isthmus.dev", "Namespaced", ["status"], ["Pod", "Node", "VPC", "Phase", "Age"]],
    ["nicpolicies.isthmus.dev", "Cluster", [], undefined],
  ]);
});
