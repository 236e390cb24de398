import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import fc from "fast-check";
import { systemClock } from "#base/clock";
import { createLogger } from "#base/log";
import { CloudError, RestClient } from "#cloud/rest";
import { type FakeAnswer, FakeService, type GotRequest } from "#test/fake-service";
import { NeutronClient } from "./client.ts";
import { neutronFault } from "./faults.ts";
import { read } from "./objects.ts";

const ID = "30b6911d-1111-4222-8333-444444444444";

async function collect<Item>(items: AsyncIterable<Item>): Promise<readonly Item[]> {
  const all: Item[] = [];
  for await (const item of items) all.push(item);
  return all;
}

async function openBed(t: TestContext, answer: (request: GotRequest) => FakeAnswer) {
  const service = await FakeService.open(answer);
  const log = createLogger({ name: "test", level: "error" });
  const auth = { endpoint: async () => service.url, headers: async () => ({}), refused: () => false };
  const rest = new RestClient({ clock: systemClock, log, auth }, { service: "Neutron", faultOf: neutronFault });
  t.after(async () => {
    await rest[Symbol.asyncDispose]();
    await service[Symbol.asyncDispose]();
  });
  return { service, neutron: new NeutronClient(rest), signal: t.signal };
}

describe("NeutronClient", () => {
  test("a list asks for several ids by repeating them, for fields one by one, and for a page with as many keys as directions", async (t) => {
    const { neutron, service, signal } = await openBed(t, () => ({ status: 200, body: { ports: [] } }));
    await neutron.listPorts(
      { deviceIds: ["a", "b"], deviceOwner: "compute:isthmus" },
      { signal, fields: ["id", "status"], limit: 2, marker: "m" },
    );
    assert.equal(
      service.requests[0]?.path,
      "/v2.0/ports?device_id=a&device_id=b&device_owner=compute%3Aisthmus&fields=id&fields=status&limit=2&sort_key=id&sort_dir=asc&marker=m",
    );
  });

  test("all pages are read, and a server that ignores the marker ends them", async (t) => {
    const ports = Array.from({ length: 1100 }, (_, at) => ({ id: `p${String(at).padStart(4, "0")}` }));
    const { neutron, service, signal } = await openBed(t, ({ path }) => {
      const { searchParams } = new URL(path, "http://n");
      const marker = searchParams.get("marker") ?? "";
      return {
        status: 200,
        body: { ports: ports.filter(({ id }) => id > marker).slice(0, Number(searchParams.get("limit"))) },
      };
    });
    const ids = (await collect(neutron.eachPort({}, { signal }))).map(({ id }) => id);
    assert.deepEqual(
      ids,
      ports.map(({ id }) => id),
    );
    assert.equal(service.requests.length, 3);
    service.answer = () => ({ status: 200, body: { ports: ports.slice(0, 500) } });
    assert.equal((await collect(neutron.eachPort({}, { signal }))).length, 1000);
  });

  test("a server's own limit of a page hides nothing: its links say that there is more, and are not followed", async (t) => {
    const ports = Array.from({ length: 7 }, (_, at) => ({ id: `p${at}` }));
    const { neutron, service, signal } = await openBed(t, ({ path }) => {
      const marker = new URL(path, "http://n").searchParams.get("marker") ?? "";
      const page = ports.filter(({ id }) => id > marker).slice(0, 3);
      const links = page.length < 3 ? [] : [{ rel: "next", href: "http://elsewhere.test/v2.0/ports" }];
      return { status: 200, body: { ports: page, ports_links: [...links, { rel: "previous", href: "x" }] } };
    });
    const wanted = ports.map(({ id }) => id);
    const found = await neutron.listPorts({ deviceIds: ["a"] }, { signal, fields: ["id"] });
    assert.deepEqual(
      found.map(({ id }) => id),
      wanted,
    );
    assert.deepEqual(
      service.requests.map(({ path }) => path),
      ["", "&marker=p2", "&marker=p5"].map((marker) => `/v2.0/ports?device_id=a&fields=id${marker}`),
    );
    assert.deepEqual(
      (await collect(neutron.eachPort({}, { signal }))).map(({ id }) => id),
      wanted,
    );
    // One that promises a next page for ever.
    service.answer = () => ({ status: 200, body: { ports: [{ id: "p0" }], ports_links: [{ rel: "next" }] } });
    assert.equal((await neutron.listPorts({ ids: ["p0"] }, { signal })).length, 2);
  });

  test("a change of a port that must have a revision says so in If-Match", async (t) => {
    const { neutron, service, signal } = await openBed(t, () => ({
      status: 200,
      body: { port: { id: ID, "binding:vif_type": "ovs" } },
    }));
    const port = await neutron.updatePort(ID, { "binding:host_id": "node-1" }, { signal, ifRevision: 7 });
    assert.deepEqual(
      [port.vifType, service.requests[0]?.headers["if-match"], service.requests[0]?.body],
      ["ovs", "revision_number=7", { port: { "binding:host_id": "node-1" } }],
    );
  });

  test("ids and names are put into paths and queries as they are", async (t) => {
    const { neutron, service, signal } = await openBed(t, () => ({ status: 200, body: { networks: [] } }));
    await neutron.listNetworks({ name: "a&b=c/../d", projectId: "p 1" }, { signal });
    assert.equal(service.requests[0]?.path, "/v2.0/networks?name=a%26b%3Dc%2F..%2Fd&project_id=p+1&limit=3");
  });
});

describe("read", () => {
  test("a subnet whose addresses are none is refused before a port is made in it", () => {
    const subnet = { id: "s", network_id: "n", cidr: "10.0.0.0/24", ip_version: 4, gateway_ip: "10.0.0.1" };
    assert.equal(read.subnets({ subnets: [subnet, { ...subnet, gateway_ip: null }] }).length, 2);
    const faults = [
      { cidr: "10.0.0.0/33" },
      { gateway_ip: "10.0.0" },
      { allocation_pools: [{ start: "10.0.0.2", end: "x" }] },
    ];
    for (const fault of faults) {
      assert.throws(() => read.subnets({ subnets: [{ ...subnet, ...fault }] }), { code: "bad-response" });
    }
  });

  test("a port has all that Neutron says of its binding; missing and null fields are empty", () => {
    const port = read.port({
      port: {
        id: ID,
        name: "nic",
        status: "ACTIVE",
        mtu: 1450,
        fixed_ips: [{ subnet_id: "s", ip_address: "192.168.0.12" }],
        mac_address: "fa:16:3e:00:00:01",
        "binding:vif_details": {
          ovs_hybrid_plug: true,
          bridge_name: "br-int",
          datapath_type: "netdev",
          connectivity: "l2",
          port_filter: "yes",
        },
        "binding:host_id": null,
        revision_number: 4,
      },
    });
    assert.deepEqual(port.vifDetails, { ovsHybridPlug: true, bridgeName: "br-int", datapathType: "netdev" });
    assert.deepEqual(
      [port.fixedIps, port.host, port.description, port.revision],
      [[{ subnetId: "s", ip: "192.168.0.12" }], "", "", 4],
    );
  });

  test("whatever a server answers, the only error is ours, and it names the field", () => {
    const some = fc.oneof(fc.anything(), fc.constant({ id: "../x" }), fc.constant({ id: ID, fixed_ips: 7 }));
    fc.assert(
      fc.property(some, fc.array(some), (value, list) => {
        for (const [key, reader] of Object.entries({
          port: read.port,
          ports: read.ports,
          networks: read.networks,
          subnets: read.subnets,
          security_groups: read.securityGroups,
          agents: read.agents,
          extensions: read.extensions,
        })) {
          for (const body of [value, { [key]: value }, { [key]: list }]) {
            try {
              reader(body);
            } catch (error) {
              assert.ok(error instanceof CloudError && error.code === "bad-response", String(error));
            }
          }
          neutronFault(value);
        }
      }),
    );
    assert.throws(() => read.ports({ ports: [{ id: ID }, { id: "a/../b" }] }), /ports\.1\.id: is not an id/);
  });
});
