import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { Cidr } from "#base/ip";
import { nullLogger } from "#base/log";
import { KubeClient, resources, type Service, staticConnection } from "#kube/client";
import { startApiServer } from "../index.ts";

/** A server with few addresses and ports, and a client of it. */
async function open(cidrs: readonly string[] = ["10.96.0.0/28", "fd10:96::/124"]) {
  const serviceRanges = { cidrs: cidrs.map((text) => Cidr.parse(text)), nodePorts: { first: 30_000, last: 30_003 } };
  const server = await startApiServer({
    listen: { host: "127.0.0.1", port: 0 },
    log: nullLogger,
    serviceRanges,
    clock: systemClock,
  });
  const client = new KubeClient(staticConnection({ server: server.urls[0] ?? "" }), { clock: systemClock });
  const create = (name: string, spec: object): Promise<Service> =>
    client.create(resources.services, {
      metadata: { name, namespace: "default" },
      spec: { ports: [{ port: 80, protocol: "TCP" }], ...spec },
    });
  return {
    client,
    create,
    async [Symbol.asyncDispose]() {
      await client.close();
      await server.stop();
    },
  };
}

test("services: an address of the primary family, or of both, all different, until the range is exhausted", async () => {
  await using at = await open();
  const addresses = new Set<string>();
  for (let number = 0; number < 13; number += 1) {
    const { spec } = await at.create(`s${number}`, {});
    assert.deepEqual(
      [spec?.clusterIPs, spec?.ipFamilies, spec?.ipFamilyPolicy],
      [[spec?.clusterIP], ["IPv4"], "SingleStack"],
    );
    addresses.add(spec?.clusterIP ?? "");
  }
  assert.equal(addresses.size, 13);
  await assert.rejects(at.create("one-more", {}), { code: "invalid", message: /the range 10\.96\.0\.0\/28 is full/ });
  const dual = await at
    .create("dual", { ipFamilyPolicy: "PreferDualStack", ipFamilies: ["IPv6", "IPv4"] })
    .catch((error: Error) => error);
  assert.match(String((dual as Error).message), /is full/);
});

test("services: dual stack in the requested order; single-stack clusters refuse RequireDualStack", async () => {
  await using at = await open();
  const { spec } = await at.create("dual", { ipFamilyPolicy: "RequireDualStack", ipFamilies: ["IPv6", "IPv4"] });
  assert.deepEqual(spec?.ipFamilies, ["IPv6", "IPv4"]);
  assert.match(spec?.clusterIPs?.join(" ") ?? "", /^fd10:96::[0-9a-f]+ 10\.96\.0\.\d+$/);
  await using single = await open(["10.96.0.0/24"]);
  await assert.rejects(single.create("dual", { ipFamilyPolicy: "RequireDualStack" }), { code: "invalid" });
  assert.deepEqual((await single.create("prefer", { ipFamilyPolicy: "PreferDualStack" })).spec?.ipFamilies, ["IPv4"]);
});

test("services: a given address is taken when it is free and in range; headless and ExternalName Services have none", async () => {
  await using at = await open();
  assert.equal((await at.create("given", { clusterIP: "10.96.0.9" })).spec?.clusterIPs?.[0], "10.96.0.9");
  await assert.rejects(at.create("again", { clusterIP: "10.96.0.9" }), {
    code: "invalid",
    message: /already allocated/,
  });
  await assert.rejects(at.create("out", { clusterIP: "10.97.0.9" }), {
    code: "invalid",
    message: /not in the valid range/,
  });
  const headless = await at.create("headless", { clusterIP: "None" });
  assert.deepEqual([headless.spec?.clusterIP, headless.spec?.clusterIPs], ["None", ["None"]]);
  assert.equal(
    (await at.create("name", { type: "ExternalName", externalName: "x.example" })).spec?.clusterIP,
    undefined,
  );
  await at.client.delete(resources.services, { namespace: "default", name: "given" });
  assert.equal((await at.create("again", { clusterIP: "10.96.0.9" })).spec?.clusterIP, "10.96.0.9");
});

test("services: NodePorts and health check ports are drawn, kept over updates, refused when taken, and given back", async () => {
  await using at = await open();
  const { spec } = await at.create("np", {
    type: "NodePort",
    ports: [
      { name: "a", port: 80, protocol: "TCP" },
      { name: "b", port: 80, protocol: "UDP" },
    ],
  });
  const [tcp, udp] = spec?.ports?.map(({ nodePort }) => nodePort) ?? [];
  assert.ok(tcp !== undefined && tcp === udp && tcp >= 30_000 && tcp <= 30_003);
  await assert.rejects(at.create("taken", { type: "NodePort", ports: [{ port: 1, nodePort: tcp, protocol: "TCP" }] }), {
    code: "invalid",
    message: /already allocated/,
  });
  await assert.rejects(at.create("low", { type: "NodePort", ports: [{ port: 1, nodePort: 80, protocol: "TCP" }] }), {
    code: "invalid",
    message: /valid range/,
  });
  const balanced = await at.create("lb", { type: "LoadBalancer", externalTrafficPolicy: "Local" });
  assert.notEqual(balanced.spec?.healthCheckNodePort ?? 0, 0);
  const ref = { namespace: "default", name: "lb" };
  const same = await at.client.patch(resources.services, ref, {
    type: "merge",
    body: { metadata: { labels: { a: "b" } } },
  });
  assert.deepEqual(same.spec, balanced.spec);
  const plain = await at.client.patch(resources.services, ref, {
    type: "merge",
    body: { spec: { type: "ClusterIP" } },
  });
  assert.deepEqual(
    [plain.spec?.ports?.[0]?.nodePort, plain.spec?.healthCheckNodePort, plain.spec?.externalTrafficPolicy],
    [undefined, undefined, undefined],
  );
  assert.equal(plain.spec?.clusterIP, balanced.spec?.clusterIP);
});
