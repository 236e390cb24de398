// The provider of VPCs against a real Neutron without agents: every answer is the server's own.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { systemClock } from "#base/clock";
import { createLogger } from "#base/log";
import { openSession, parseCredentials } from "#cloud/keystone";
import { NeutronClient, neutronFault } from "#cloud/neutron";
import { RestClient, type RestSample } from "#cloud/rest";
import {
  NeutronProvider,
  type PortRequest,
  type PortResult,
  type PortWish,
  ProviderError,
  type VpcPort,
} from "#cloud/vpc";
import type { MadeNetwork } from "#lab/neutron";
import { NeutronServer } from "#test/neutron-server";

const OWNER = "compute:isthmus";
/** Ports that the project can have: few, because each takes Neutron a tenth of a second. */
const QUOTA = 60;
const log = createLogger({ name: "test", level: "error" });

function openProvider(url: URL): NeutronProvider & { readonly samples: RestSample[] } {
  const access = parseCredentials(`clouds: {test: {auth_type: none, auth: {endpoint: '${url.href}'}}}`);
  const auth = openSession({ clock: systemClock, log }, { access, service: "network" });
  const samples: RestSample[] = [];
  const onRequest = (sample: RestSample): void => void samples.push(sample);
  const rest = new RestClient(
    { clock: systemClock, log, auth },
    { service: "Neutron", faultOf: neutronFault, onRequest },
  );
  const provider = new NeutronProvider(
    { neutron: new NeutronClient(rest), clock: systemClock },
    { name: "test", resources: [rest, auth] },
  );
  return Object.assign(provider, { samples });
}

describe("NeutronProvider on a real Neutron", () => {
  let server: NeutronServer;
  let provider: ReturnType<typeof openProvider>;
  let network: MadeNetwork;
  let count = 0;
  const signal = AbortSignal.timeout(300_000);

  before(async () => {
    server = await NeutronServer.start({ quota: QUOTA });
    provider = openProvider(server.url);
    network = await server.makeNetwork({ name: "vpc-1" }, ["192.168.0.0/24"]);
    server.remember();
  });
  after(async () => {
    await provider[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
  });

  async function requestOf(wish: Partial<PortWish> = {}, vpc = "vpc-1"): Promise<PortRequest> {
    count += 1;
    const deviceId = `pod-${count}`;
    const identity = {
      name: `nic-${deviceId}-eth0`,
      deviceId,
      deviceOwner: OWNER,
      description: '{"cluster":"c1"}',
      tags: ["isthmus", "cluster-c1"],
    };
    const found = await provider.resolve({ vpc, projectId: undefined }, { signal });
    return { identity, vpc: found, wish: { securityGroups: [], wantsIpv6: false, ...wish }, host: undefined };
  }
  async function make(...wishes: readonly Partial<PortWish>[]): Promise<readonly PortResult[]> {
    return provider.createPorts(await Promise.all(wishes.map((wish) => requestOf(wish))), { signal });
  }
  function port(result: PortResult | undefined): VpcPort {
    assert.ok(
      result !== undefined && "port" in result,
      result !== undefined && "error" in result ? result.error.message : "no result",
    );
    return result.port;
  }
  function error(result: PortResult | undefined): ProviderError {
    assert.ok(result !== undefined && "error" in result, "a port was made");
    return result.error;
  }
  test("a VPC is found by name and by id, with its subnets (T-11)", async () => {
    const byName = await provider.resolve({ vpc: "vpc-1", projectId: undefined }, { signal });
    assert.deepEqual([...byName.networks.keys()], [network.id]);
    assert.deepEqual(
      byName.subnets.map(({ cidr, gateway }) => [cidr, gateway]),
      [["192.168.0.0/24", "192.168.0.1"]],
    );
    const byId = await provider.resolve({ vpc: network.id.toUpperCase(), projectId: undefined }, { signal });
    assert.deepEqual([...byId.networks.keys()], [network.id]);
  });

  test("a default NIC gets a port with an address, an identity and tags (T-11, T-20)", async () => {
    const made = port((await make({}))[0]);
    assert.match(made.addresses[0]?.ip ?? "", /^192\.168\.0\.\d+$/);
    assert.deepEqual([made.deviceOwner, made.description, made.status], [OWNER, '{"cluster":"c1"}', "DOWN"]);
    const [found] = await provider.findPorts([made.deviceId, "no-such-pod"], { signal });
    assert.deepEqual(found, made);
    const [raw] = await server.list(`ports?id=${made.id}`);
    assert.deepEqual(raw?.["tags"], ["cluster-c1", "isthmus"]);
    server.restore();
  });

  test("wanted addresses and MACs; one that is taken names the fault (T-12, T-13)", async () => {
    const wish = { subnet: "subnet-1", ip: "192.168.0.12", mac: "02:00:00:00:00:12" };
    const first = port((await make(wish))[0]);
    assert.deepEqual([first.addresses[0]?.ip, first.mac], ["192.168.0.12", "02:00:00:00:00:12"]);
    const second = error((await make({ ...wish, mac: "02:00:00:00:00:13" }))[0]);
    assert.deepEqual(
      [second.code, second.retry, second.providerType],
      ["IpInUse", "slow", "IpAddressAlreadyAllocated"],
    );
    const third = error((await make({ mac: wish.mac }))[0]);
    assert.deepEqual([third.code, third.retry], ["MacInUse", "slow"]);
    await provider.deletePort(first.id, { signal });
    assert.equal(port((await make(wish))[0]).addresses[0]?.ip, "192.168.0.12");
    server.restore();
  });

  test("what the server refuses has its reason (T-14 to T-16)", async () => {
    const [outside, broadcast, gateway, group, subnet] = await make(
      { subnet: "subnet-1", ip: "10.0.0.1" },
      { subnet: "subnet-1", ip: "192.168.0.255" },
      { subnet: "subnet-1", ip: "192.168.0.1" },
      { securityGroups: ["aa5db150-a63d-4bd1-8d70-2dff67c6a5d9"] },
      { subnet: "subnet-9" },
    );
    assert.deepEqual(
      [outside, broadcast, gateway, group, subnet].map((one) => error(one).code),
      ["IpNotInSubnet", "IpNotInSubnet", "IpIsGateway", "SecurityGroupNotFound", "SubnetNotFound"],
    );
    await assert.rejects(provider.resolve({ vpc: "no-such-vpc", projectId: undefined }, { signal }), (fault) => {
      assert.ok(fault instanceof ProviderError);
      return fault.code === "VpcNotFound" && fault.message === "there is no network no-such-vpc";
    });
    await server.makeNetwork({ name: "twice" }, []);
    await server.makeNetwork({ name: "twice" }, []);
    await assert.rejects(
      provider.resolve({ vpc: "twice", projectId: undefined }, { signal }),
      /several networks are named twice/,
    );
  });

  test("a network without a subnet gives no port, and leaves none", async () => {
    await server.makeNetwork({ name: "empty" }, []);
    const [result] = await provider.createPorts([await requestOf({}, "empty")], { signal });
    assert.equal(error(result).code, "NoAddress");
    assert.deepEqual(await server.list(`ports?device_owner=${encodeURIComponent(OWNER)}`), []);
  });

  test("a subnet that is full: the last address is had, and no other request loses one (T-17)", async () => {
    // Neutron keeps the addresses of a request for several ports that it refuses, so these are requests for one.
    await server.makeNetwork({ name: "small" }, ["10.9.0.0/29"]);
    const results = await provider.createPorts(
      await Promise.all(Array.from({ length: 7 }, () => requestOf({}, "small"))),
      { signal },
    );
    const made = results.filter((one) => "port" in one).map(port);
    assert.equal(made.length, 5, "of eight addresses three are the network's, the broadcast's and the gateway's");
    for (const one of results.filter((result) => "error" in result)) assert.equal(error(one).code, "SubnetFull");
    await provider.deletePort(made[0]?.id ?? "", { signal });
    assert.ok("port" in ((await provider.createPorts([await requestOf({}, "small")], { signal }))[0] ?? {}));
    server.restore();
  });

  test("of ports with wanted addresses one that is taken costs the others nothing", async () => {
    const taken = port((await make({ subnet: "subnet-1", ip: "192.168.0.70" }))[0]);
    const results = await make(
      ...[66, 67, 68, 69, 70, 71].map((at) => ({ subnet: "subnet-1", ip: `192.168.0.${at}` })),
    );
    assert.deepEqual(
      results.map((one) => ("error" in one ? one.error.code : one.port.addresses[0]?.ip)),
      ["192.168.0.66", "192.168.0.67", "192.168.0.68", "192.168.0.69", "IpInUse", "192.168.0.71"],
    );
    assert.equal(taken.addresses[0]?.ip, "192.168.0.70");
    server.restore();
  });

  test("of 50 ports in one request the bad one fails alone (T-19)", async () => {
    provider.samples.length = 0;
    const requests = await Promise.all(Array.from({ length: 50 }, () => requestOf()));
    const bad = requests[17];
    assert.ok(bad !== undefined);
    const broken = {
      ...bad,
      wish: { ...bad.wish, securityGroups: [] },
      identity: { ...bad.identity, description: "x".repeat(300) },
    };
    const results = await provider.createPorts(requests.with(17, broken), { signal });
    assert.deepEqual(
      results.flatMap((result, at) => ("error" in result ? [[at, result.error.code]] : [])),
      [[17, "BadRequest"]],
    );
    const creates = provider.samples.filter(({ operation }) => operation === "create-ports");
    assert.ok(creates.length <= 13, `${creates.length} requests`);
    assert.equal((await server.list(`ports?device_owner=${encodeURIComponent(OWNER)}`)).length, 49);
    const names = new Set(results.flatMap((result) => ("port" in result ? [result.port.name] : [])));
    assert.equal(names.size, 49);
  });

  test("many devices are asked for in few requests, and all owned ports come page after page", async () => {
    const ids = (await server.list(`ports?device_owner=${encodeURIComponent(OWNER)}`)).map((one) => String(one["id"]));
    const devices = Array.from({ length: count }, (_, at) => `pod-${at + 1}`);
    provider.samples.length = 0;
    const found = await provider.findPorts(devices, { signal });
    assert.deepEqual(found.map(({ id }) => id).sort(), ids.sort());
    assert.equal(provider.samples.length, Math.ceil(count / 50));
    const owned: string[] = [];
    for await (const { id } of provider.eachOwned(OWNER, { signal })) owned.push(id);
    assert.deepEqual(owned.sort(), ids);
    const tagged: string[] = [];
    for await (const { id } of provider.eachTagged("cluster-c1", { signal })) tagged.push(id);
    assert.deepEqual(tagged.sort(), ids);
  });

  test("a quota that is reached is told for the ports above it; raised, they are made (T-18)", async () => {
    const requests = await Promise.all(Array.from({ length: 20 }, () => requestOf()));
    const results = await provider.createPorts(requests, { signal });
    const refused = results.flatMap((result, at) => ("error" in result ? [[at, result.error.code]] : []));
    // 49 ports are there, so 11 fit.
    assert.equal(refused.length, 9, JSON.stringify(refused));
    for (const [, code] of refused) assert.equal(code, "ProviderQuota");
    server.restore();
  });

  test("a binding that fails is a result, and the message has what is known of the host's agents", async () => {
    const made = port((await make({}))[0]);
    const bound = await provider.bindPort(
      made.id,
      { host: "node-1", deviceId: made.deviceId, deviceOwner: OWNER },
      { signal },
    );
    assert.deepEqual([bound.binding.host, bound.binding.vifType], ["node-1", "binding_failed"]);
    assert.equal(
      await provider.describeHost("node-1", { signal }),
      "there is no agent on host node-1; hosts with agents: none",
    );
    const [polled] = await provider.pollPorts([made.deviceId], { signal });
    assert.deepEqual([polled?.id, polled?.binding.vifType, polled?.mac], [made.id, "binding_failed", ""]);
    server.restore();
  });

  test("a user's port is taken at its revision, and given back as it was (T-25)", async () => {
    const own = await server.request("POST", "ports", {
      port: { network_id: network.id, device_id: "router-7", device_owner: "their:own" },
    });
    const id = String(own["port"]?.["id"]);
    const before = (await provider.getPorts([id], { signal })).get(id);
    assert.ok(before?.revision !== undefined);
    const binding = { host: "node-1", deviceId: "pod-x", deviceOwner: OWNER };
    const taken = await provider.bindPort(id, binding, { signal, ifRevision: before.revision });
    assert.equal(taken.deviceId, "pod-x");
    await assert.rejects(
      provider.bindPort(id, binding, { signal, ifRevision: before.revision }),
      (fault) => fault instanceof ProviderError && fault.code === "PortChanged" && fault.retry === "at-once",
    );
    await provider.releasePort(id, { deviceId: "router-7", deviceOwner: "their:own", host: "" }, { signal });
    const back = (await provider.getPorts([id], { signal })).get(id);
    assert.deepEqual([back?.deviceId, back?.deviceOwner, back?.binding.host], ["router-7", "their:own", ""]);
    await server.request("DELETE", `ports/${id}`);
    await provider.releasePort(id, { deviceId: "", deviceOwner: "", host: "" }, { signal });
    await provider.deletePort(id, { signal });
    assert.equal((await provider.getPorts([id], { signal })).size, 0);
  });
});

test("NeutronProvider: a server that drops tags in bulk requests has them afterwards (T-20)", async () => {
  await using server = await NeutronServer.start({ tagsOnCreate: false });
  await using provider = openProvider(server.url);
  await server.makeNetwork({ name: "vpc-1" }, ["192.168.0.0/24"]);
  const signal = AbortSignal.timeout(60_000);
  const vpc = await provider.resolve({ vpc: "vpc-1", projectId: undefined }, { signal });
  const identity = { name: "nic-a-eth0", deviceId: "a", deviceOwner: OWNER, description: "{}", tags: ["isthmus"] };
  const [result] = await provider.createPorts(
    [{ identity, vpc, wish: { securityGroups: [], wantsIpv6: false }, host: undefined }],
    { signal },
  );
  assert.ok(result !== undefined && "port" in result);
  const [raw] = await server.list(`ports?id=${result.port.id}`);
  assert.deepEqual(raw?.["tags"], ["isthmus"]);
});

test("a security group of another project is not to be had, unless it is shared or the operator names it", async () => {
  const signal = AbortSignal.timeout(240_000);
  await using server = await NeutronServer.start();
  await using provider = openProvider(server.url);
  await server.makeNetwork({ name: "vpc-a", project_id: "a" }, ["10.1.0.0/24"], { project_id: "a" });
  const vpc = await provider.resolve({ vpc: "vpc-a", projectId: undefined }, { signal });
  const group = async (projectId: string) =>
    (await server.make("security_group", { name: "web", project_id: projectId })).id;
  const [own, theirs, shared] = [await group("a"), await group("b"), await group("b")];
  const rbac = { object_type: "security_group", object_id: shared, target_tenant: "a", action: "access_as_shared" };
  await server.request("POST", "rbac-policies", { rbac_policy: { ...rbac, project_id: "b" } });
  const wishes: readonly Pick<PortWish, "securityGroups" | "trustsGroups">[] = [
    { securityGroups: [own] },
    { securityGroups: [theirs] },
    { securityGroups: [shared] },
    { securityGroups: [theirs], trustsGroups: true },
  ];
  const made = await provider.createPorts(
    wishes.map((wish, at): PortRequest => {
      const deviceId = `pod-${at}`;
      const identity = { name: `nic-${deviceId}-eth0`, deviceId, deviceOwner: OWNER, description: "", tags: [] };
      return { identity, vpc, wish: { wantsIpv6: false, ...wish }, host: undefined };
    }),
    { signal },
  );
  assert.deepEqual(
    made.map((one) => ("port" in one ? one.port.securityGroups : one.error.code)),
    [[own], "SecurityGroupNotFound", [shared], [theirs]],
  );
  const [first] = made;
  assert.ok(first !== undefined && "port" in first);
  const change = { vpc, securityGroups: [theirs] };
  await assert.rejects(provider.setSecurityGroups(first.port.id, change, { signal }), {
    code: "SecurityGroupNotFound",
  });
  assert.deepEqual((await provider.getPorts([first.port.id], { signal })).get(first.port.id)?.securityGroups, [own]);
});

test("a Neutron whose answers have two objects at most hides no port, no subnet and no network", async () => {
  const signal = AbortSignal.timeout(240_000);
  await using server = await NeutronServer.start({ pageLimit: 2 });
  await using provider = openProvider(server.url);
  const cidrs = ["10.1.0.0/24", "10.2.0.0/24", "10.3.0.0/24"];
  await server.makeNetwork({ name: "vpc-1" }, cidrs);
  const vpc = await provider.resolve({ vpc: "vpc-1", projectId: undefined }, { signal });
  assert.deepEqual(vpc.subnets.map(({ cidr }) => cidr).sort(), cidrs);
  const uid = "6f0e1c1a-0000-4000-8000-000000000001";
  const requests = Array.from({ length: 5 }, (_, at): PortRequest => {
    const identity = { name: `nic-${uid}-eth${at}`, deviceId: uid, deviceOwner: OWNER, description: "", tags: ["t"] };
    return { identity, vpc, wish: { securityGroups: [], wantsIpv6: false }, host: undefined };
  });
  const made = await provider.createPorts(requests, { signal });
  const ids = made.map((one) => ("port" in one ? one.port.id : assert.fail(one.error.message))).sort();
  const idsOf = (ports: Iterable<VpcPort>): readonly string[] => Array.from(ports, ({ id }) => id).sort();
  assert.deepEqual(idsOf(await provider.findPorts([uid], { signal })), ids);
  assert.deepEqual(idsOf(await provider.pollPorts([uid], { signal })), ids);
  assert.deepEqual(idsOf((await provider.getPorts(ids, { signal })).values()), ids);
  for (const list of [provider.eachOwned(OWNER, { signal }), provider.eachTagged("t", { signal })]) {
    const owned: VpcPort[] = [];
    for await (const one of list) owned.push(one);
    assert.deepEqual(idsOf(owned), ids);
  }
});
