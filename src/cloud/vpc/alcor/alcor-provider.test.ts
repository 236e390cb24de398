import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { systemClock } from "#base/clock";
import { createLogger } from "#base/log";
import { AlcorClient, alcorFault } from "#cloud/alcor";
import { RestClient } from "#cloud/rest";
import { FakeService, type GotRequest } from "#test/fake-service";
import { ProviderError } from "../errors.ts";
import type { PortRequest, PortWish } from "../provider.ts";
import { uuidV5 } from "../uuid.ts";
import { isPlumbable } from "../vif.ts";
import { AlcorProvider } from "./alcor-provider.ts";

const POD = "3d225262-6fc2-4f31-9a0e-5b6f4cde1a01";
const VPC = "9192a4d4-ffff-4ece-b3f0-8d36e3d88001";
const SUBNET = "9192a4d4-ffff-4ece-b3f0-8d36e3d88101";
const OWNER = "compute:isthmus";

/** Alcor's managers in memory, with the paths and bodies of its code. */
class Alcor {
  readonly ports = new Map<string, Record<string, unknown>>();
  fail: { readonly status: number; readonly body?: unknown } | undefined;

  answer({ method, path, body }: GotRequest) {
    if (this.fail !== undefined) return this.fail;
    const { pathname, searchParams } = new URL(path, "http://alcor");
    const [, , project, resource, id = ""] = pathname.split("/");
    assert.equal(project, "p1");
    const sent = (body as { port?: Record<string, unknown> } | undefined)?.port ?? {};
    if (resource === "vpcs")
      return { status: 200, body: { vpcs: [{ id: VPC, name: "vpc-1", project_id: "p1", mtu: 1400 }] } };
    if (resource === "subnets") {
      const subnet = {
        id: SUBNET,
        name: "subnet-1",
        network_id: VPC,
        cidr: "192.168.0.0/24",
        ip_version: 4,
        gateway_ip: "",
      };
      return { status: 200, body: { subnets: [subnet, { ...subnet, id: "other", network_id: "other" }] } };
    }
    const old = this.ports.get(id);
    if (method === "POST") {
      const port = {
        fixed_ips: [{ subnet_id: SUBNET, ip_address: "192.168.0.7" }],
        mac_address: "aa:bb:cc:00:00:01",
        revision_number: 1,
        create_at: "2026-01-01T00:00:00Z",
        ...sent,
      };
      this.ports.set(String(sent["id"]), port);
      return { status: 201, body: { port } };
    }
    if (id === "") {
      const [[field, value] = ["", ""]] = [...searchParams];
      return { status: 200, body: { ports: [...this.ports.values()].filter((port) => port[field] === value) } };
    }
    if (old === undefined) return { status: 404, body: { status: 404, error: "Not Found", message: "no port" } };
    if (method === "DELETE") this.ports.delete(id);
    if (method === "PUT") this.ports.set(id, { ...old, ...sent, revision_number: Number(old["revision_number"]) + 1 });
    return { status: 200, body: method === "DELETE" ? undefined : { port: this.ports.get(id) } };
  }
}

async function openBed(t: TestContext, options: { readonly nsPrefix?: string } = {}) {
  const alcor = new Alcor();
  const service = await FakeService.open((request) => alcor.answer(request));
  const log = createLogger({ name: "test", level: "error" });
  const auth = { endpoint: async () => service.url, headers: async () => ({}), refused: () => false };
  const rest = new RestClient({ clock: systemClock, log, auth }, { service: "Alcor", faultOf: alcorFault });
  const client = new AlcorClient(rest, { projectId: "p1" });
  const provider = new AlcorProvider(
    { alcor: client, clock: systemClock },
    { name: "alcor", projectId: "p1", resources: [rest], ...options },
  );
  t.after(async () => {
    await provider[Symbol.asyncDispose]();
    await service[Symbol.asyncDispose]();
  });
  const { signal } = t;
  const requestOf = async (nic = "eth0", wish: Partial<PortWish> = {}, deviceId = POD): Promise<PortRequest> => ({
    identity: { name: `nic-${deviceId}-${nic}`, deviceId, deviceOwner: OWNER, description: "{}", tags: ["isthmus"] },
    vpc: await provider.resolve({ vpc: "vpc-1", projectId: "p1" }, { signal }),
    wish: { securityGroups: [], wantsIpv6: false, ...wish },
    host: undefined,
  });
  return { alcor, service, provider, requestOf, signal };
}

describe("AlcorProvider", () => {
  test("a VPC is found by name and id, with the subnets that are its own", async (t) => {
    const { provider, signal } = await openBed(t);
    for (const vpc of ["vpc-1", VPC]) {
      const found = await provider.resolve({ vpc, projectId: "p1" }, { signal });
      assert.deepEqual(
        [[...found.networks], found.subnets.map(({ id, gateway }) => [id, gateway])],
        [[[VPC, { mtu: 1400 }]], [[SUBNET, undefined]]],
      );
    }
    await assert.rejects(provider.resolve({ vpc: "none", projectId: "p1" }, { signal }), /project p1 has no VPC none/);
  });

  test("the device and its namespace are pinned in the request, and the id follows from pod and NIC (T-48)", async (t) => {
    const { provider, requestOf, service, signal } = await openBed(t);
    const [first] = await provider.createPorts([await requestOf()], { signal });
    assert.ok(first !== undefined && "port" in first);
    const id = uuidV5(POD, "eth0");
    const sent = (service.requests.at(-1)?.body as { port: Record<string, unknown> } | undefined)?.port ?? {};
    assert.deepEqual(
      [sent["id"], sent["veth_name"], sent["network_ns"], sent["network_id"], sent["project_id"], sent["tags"]],
      [id, `veth${id.slice(0, 11)}`, `/run/netns/vpc-ns${VPC}`, VPC, "p1", undefined],
    );
    assert.equal(String(sent["veth_name"]).length, 15);
    assert.deepEqual(
      [first.port.id, first.port.binding.vethName, first.port.createdAt],
      [id, sent["veth_name"], "2026-01-01T00:00:00Z"],
    );
    assert.equal(isPlumbable(first.port), false);
    const [again] = await provider.createPorts([await requestOf()], { signal });
    assert.ok(again !== undefined && "port" in again && again.port.id === id);
    const other = await openBed(t, { nsPrefix: "ns-" });
    const [made] = await other.provider.createPorts([await other.requestOf()], { signal });
    assert.ok(made !== undefined && "port" in made && made.port.binding.netns === `/run/netns/ns-${VPC}`);
  });

  test("a port is found by its device, bound, given back and deleted; what is gone is no error", async (t) => {
    const { provider, requestOf, signal } = await openBed(t);
    await provider.createPorts(
      [await requestOf(), await requestOf("eth1"), await requestOf("eth0", {}, "static-pod")],
      { signal },
    );
    const [port, second] = await provider.findPorts([POD], { signal });
    assert.ok(port !== undefined && second !== undefined);
    const binding = { host: "node-1", deviceId: POD, deviceOwner: OWNER };
    await assert.rejects(
      provider.bindPort(port.id, binding, { signal, ifRevision: 9 }),
      (error) => error instanceof ProviderError && error.code === "PortChanged",
    );
    const bound = await provider.bindPort(port.id, binding, { signal, ifRevision: 1 });
    assert.deepEqual([bound.binding.host, isPlumbable(bound)], ["node-1", true]);
    await provider.releasePort(port.id, { deviceId: "", deviceOwner: "", host: "" }, { signal });
    const owned: string[] = [];
    for await (const one of provider.eachOwned(OWNER, { signal })) owned.push(one.deviceId);
    assert.deepEqual(owned.sort(), [POD, "static-pod"].sort());
    for (let times = 0; times < 2; times += 1) {
      await provider.deletePort(port.id, { signal });
      await provider.releasePort(port.id, { deviceId: "", deviceOwner: "", host: "" }, { signal });
    }
    assert.deepEqual([...(await provider.getPorts([port.id, second.id], { signal })).keys()], [second.id]);
  });

  for (const [status, reason, retry, isAmbiguous] of [
    [412, "IpInUse", "slow", false],
    [400, "BadRequest", "never", false],
    [500, "ProviderUnavailable", "fast", true],
    [401, "AuthFailed", "slow", false],
  ] as const)
    test(`HTTP ${status} is ${reason}, retried ${retry} (T-47)`, async (t) => {
      const { provider, requestOf, alcor, signal } = await openBed(t);
      const request = await requestOf("eth0", { subnet: "subnet-1", ip: "192.168.0.9" });
      alcor.fail = { status, body: { status, error: "Fault", message: "fixed ips invalid" } };
      const [result] = await provider.createPorts([request], { signal });
      assert.ok(result !== undefined && "error" in result);
      const { error } = result;
      assert.deepEqual([error.code, error.retry, error.isAmbiguous], [reason, retry, isAmbiguous]);
      assert.match(error.message, /Cannot create port .*: Alcor at .* answered HTTP \d+ Fault fixed ips invalid/);
    });

  test("a bad wish fails alone, before any request", async (t) => {
    const { provider, requestOf, service, signal } = await openBed(t);
    const requests = [await requestOf("eth0", { subnet: "none" }), await requestOf("eth1")];
    const before = service.requests.length;
    const [bad, good] = await provider.createPorts(requests, { signal });
    assert.ok(bad !== undefined && "error" in bad && bad.error.code === "SubnetNotFound");
    assert.ok(good !== undefined && "port" in good);
    assert.equal(service.requests.length, before + 1);
  });
});

test("uuidV5: the UUID of RFC 9562's example, and another for any other name", () => {
  assert.equal(
    uuidV5("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "www.example.com"),
    "2ed6657d-e927-568b-95e1-2665a8aea6a2",
  );
  const ids = new Set(["eth0", "eth1"].flatMap((nic) => [POD, "static", "other"].map((pod) => uuidV5(pod, nic))));
  assert.equal(ids.size, 6);
});

/** An Alcor that does not answer requests that make ports. */
class Busy extends AlcorClient {
  making = 0;

  override async createPort(): Promise<never> {
    this.making += 1;
    return new Promise(() => undefined);
  }

  override async listPorts(): Promise<readonly []> {
    return [];
  }
}

test("AlcorProvider: looks at ports do not wait for requests that make ports, which leave them connections", async (t) => {
  const auth = { endpoint: async () => new URL("http://alcor.test"), headers: async () => ({}), refused: () => false };
  const log = createLogger({ name: "test", level: "error" });
  await using rest = new RestClient({ clock: systemClock, log, auth }, { service: "Alcor", faultOf: alcorFault });
  const alcor = new Busy(rest, { projectId: "p1" });
  await using provider = new AlcorProvider({ alcor, clock: systemClock }, { name: "alcor", projectId: "p1" });
  const vpc = { ref: "vpc-1", projectId: "p1", networks: new Map([[VPC, { mtu: 1400 }]]), subnets: [] };
  const requests = Array.from({ length: 50 }, (_, at) => ({
    identity: { name: `nic-${POD}-eth${at}`, deviceId: POD, deviceOwner: OWNER, description: "", tags: [] },
    vpc,
    wish: { securityGroups: [], wantsIpv6: false },
    host: undefined,
  }));
  const stop = new AbortController();
  let turns = 0;
  const pace = async (): Promise<void> => {
    turns += 1;
  };
  const made = provider.createPorts(requests, { signal: AbortSignal.any([t.signal, stop.signal]), pace });
  made.catch(() => undefined);
  for (let moments = 0; moments < 20; moments += 1) await new Promise(setImmediate);
  // Whether this process leads is asked with the turn, so not long before the request.
  assert.deepEqual([alcor.making, turns], [6, 6]);
  const found = await Promise.race([provider.findPorts([POD], { signal: t.signal }), soon()]);
  assert.deepEqual(found, []);
  stop.abort(new Error("enough"));
});

async function soon(): Promise<string> {
  for (let moments = 0; moments < 50; moments += 1) await new Promise(setImmediate);
  return "it waits";
}
