import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { MacAddress } from "#base/ip";
import {
  type PortRequest,
  type PortResult,
  type PortWish,
  ProviderError,
  type ProviderReason,
  type Vpc,
  type VpcPort,
  type VpcProvider,
} from "#cloud/vpc";

/** A cloud on which the contract is tested, empty at the start of each test. */
export interface ContractBed extends AsyncDisposable {
  readonly provider: VpcProvider;
  /** The name of a VPC with a subnet that gives addresses of IPv4. */
  readonly vpc: string;
  /** The project of the VPC. */
  readonly projectId: string | undefined;
  /** An address of the subnet that no port has. */
  readonly freeIp: string;
  /** The id of a security group of the project. */
  readonly group: string;
  /** A host on which ports can be plugged. */
  readonly host: string;
  /** While it is away, the cloud answers no request. */
  readonly setAway: (isAway: boolean) => void;
}

const OWNER = "compute:isthmus-contract";
const PODS = ["3d225262-6fc2-4f31-9a0e-5b6f4cde1a01", "3d225262-6fc2-4f31-9a0e-5b6f4cde1a02"] as const;
const ABSENT = "00000000-0000-4000-8000-0000000000ff";

interface Fixture extends ContractBed {
  readonly signal: AbortSignal;
  readonly found: Vpc;
  readonly request: (nic: string, wish?: Partial<PortWish>, pod?: string) => PortRequest;
  /** The wish of the free address; an address is wanted in a subnet. */
  readonly free: Pick<PortWish, "subnet" | "ip">;
  /** Makes ports, all of which must succeed. */
  readonly made: (...requests: readonly PortRequest[]) => Promise<readonly VpcPort[]>;
}

/** Registers the tests of the contract. `open` gives each test a cloud of its own, which is disposed of at the end of the test. */
export function providerContract(label: string, open: (t: TestContext) => Promise<ContractBed>): void {
  describe(`${label} keeps the contract of providers`, () => {
    const promise = (claim: string, work: (fixture: Fixture) => Promise<void>): void => {
      test(claim, async (t) => {
        await using bed = await open(t);
        await work(await fixtureOf(bed, t.signal));
      });
    };
    lookUps(promise);
    creation(promise);
    changes(promise);
    endings(promise);
    failures(promise);
  });
}

type Promised = (claim: string, work: (fixture: Fixture) => Promise<void>) => void;

async function fixtureOf(bed: ContractBed, signal: AbortSignal): Promise<Fixture> {
  const { provider, vpc, projectId } = bed;
  const found = await provider.resolve({ vpc, projectId }, { signal });
  const request: Fixture["request"] = (nic, wish = {}, deviceId = PODS[0]) => ({
    identity: {
      name: `nic-${deviceId}-${nic}`,
      deviceId,
      deviceOwner: OWNER,
      description: `{"nic":"${nic}"}`,
      tags: ["isthmus"],
    },
    vpc: found,
    wish: { securityGroups: [], wantsIpv6: false, ...wish },
    host: undefined,
  });
  const made: Fixture["made"] = async (...requests) =>
    (await provider.createPorts(requests, { signal })).map((result) => {
      if ("port" in result) return result.port;
      throw result.error;
    });
  const free = { subnet: found.subnets[0]?.id, ip: bed.freeIp };
  // A bed has members of its class, which a spread would drop.
  return Object.assign(Object.create(bed) as ContractBed, { signal, found, free, request, made });
}

function lookUps(promise: Promised): void {
  promise("a VPC has its networks and the subnets of its networks", async ({ found, vpc }) => {
    assert.equal(found.ref, vpc);
    assert.ok(found.networks.size > 0 && found.subnets.length > 0);
    assert.ok(found.subnets.every(({ networkId }) => found.networks.has(networkId)));
    assert.ok([...found.networks.values()].every(({ mtu }) => mtu >= 1280));
  });

  promise(
    "a VPC that does not exist is VpcNotFound, which somebody else can mend",
    async ({ provider, projectId, signal }) => {
      const refused = provider.resolve({ vpc: "no-such-vpc", projectId }, { signal });
      await rejects(refused, "VpcNotFound", { retry: "slow", isAmbiguous: false });
    },
  );

  promise(
    "ports are found by their devices, and whole by their ids; what does not exist is left out",
    async (fixture) => {
      const { provider, request, made, signal } = fixture;
      const [one, other] = await made(request("eth0"), request("eth0", {}, PODS[1]));
      const byDevice = await provider.findPorts([PODS[0], ABSENT], { signal });
      assert.deepEqual(
        byDevice.map(({ id }) => id),
        [one?.id],
      );
      const byId = await provider.getPorts([one?.id ?? "", other?.id ?? "", ABSENT], { signal });
      assert.deepEqual([...byId.keys()].sort(), [one?.id, other?.id].sort());
      assert.deepEqual(byId.get(one?.id ?? "")?.addresses, one?.addresses);
    },
  );

  promise(
    "a poll has identity, status and binding of the ports of devices",
    async ({ provider, request, made, signal }) => {
      const [port] = await made(request("eth0"));
      const [polled, ...more] = await provider.pollPorts([PODS[0]], { signal });
      assert.deepEqual(
        [polled?.id, polled?.name, polled?.deviceId, polled?.deviceOwner, polled?.binding.host, more.length],
        [port?.id, port?.name, PODS[0], OWNER, "", 0],
      );
      assert.equal(polled?.status, (await provider.getPorts([port?.id ?? ""], { signal })).get(port?.id ?? "")?.status);
    },
  );

  promise(
    "all ports of an owner are listed, and by tag none that is not tagged so",
    async ({ provider, request, made, signal }) => {
      const ports = await made(request("eth0"), request("eth1"));
      assert.deepEqual(await idsOf(provider.eachOwned(OWNER, { signal })), ports.map(({ id }) => id).sort());
      assert.deepEqual(await idsOf(provider.eachOwned("compute:nobody", { signal })), []);
      assert.deepEqual(await idsOf(provider.eachTagged("no-such-tag", { signal })), []);
    },
  );

  promise("a host is described in words, one without an agent too", async ({ provider, host, signal }) => {
    for (const one of [host, "no-such-host"])
      assert.notEqual((await provider.describeHost(one, { signal })).trim(), "");
  });
}

function creation(promise: Promised): void {
  promise("each request has its result, in their order, with the identity that was asked for", async (fixture) => {
    const { request, made, found } = fixture;
    const requests = [request("eth0"), request("eth1"), request("eth0", {}, PODS[1])];
    const ports = await made(...requests);
    for (const [at, port] of ports.entries()) {
      const { name, deviceId, deviceOwner, description } = requests[at]?.identity ?? assert.fail();
      assert.deepEqual(
        [port.name, port.deviceId, port.deviceOwner, port.description],
        [name, deviceId, deviceOwner, description],
      );
      assert.doesNotThrow(() => MacAddress.parse(port.mac), port.mac);
      assert.ok(port.addresses.length > 0 && found.networks.has(port.networkId));
      assert.ok(port.addresses.every(({ subnetId }) => found.subnets.some(({ id }) => id === subnetId)));
      assert.ok(Date.parse(port.createdAt) > 0, port.createdAt);
      assert.equal(port.binding.host, "");
    }
    assert.equal(new Set(ports.map(({ id }) => id)).size, 3);
  });

  promise("a wanted address and MAC are those of the port", async ({ request, made, free }) => {
    const mac = "fa:16:3e:12:34:56";
    const [port] = await made(request("eth0", { ...free, mac }));
    assert.deepEqual([port?.addresses.map(({ ip }) => ip), port?.mac.toLowerCase()], [[free.ip], mac]);
  });

  promise("a request that cannot be met fails alone", async ({ provider, request, free, signal }) => {
    const taken = request("eth0", free);
    const [first] = await provider.createPorts([taken], { signal });
    assert.ok(first !== undefined && "port" in first);
    const [again, lost, well] = await provider.createPorts(
      [request("eth1", free), request("eth2", { subnet: "no-such-subnet" }), request("eth3")],
      { signal },
    );
    assert.deepEqual([codeOf(again), codeOf(lost)], ["IpInUse", "SubnetNotFound"]);
    assert.ok(well !== undefined && "port" in well);
  });

  promise("a port for a pod whose host is known is bound at once", async ({ made, request, host }) => {
    const [port] = await made({ ...request("eth0"), host });
    assert.equal(port?.binding.host, host);
    assert.notEqual(port?.binding.vifType, "unbound");
  });
}

function changes(promise: Promised): void {
  promise("a port is bound, and loses its binding", async ({ provider, request, made, host, signal }) => {
    const [port] = await made(request("eth0"));
    const device = { deviceId: PODS[0], deviceOwner: OWNER };
    const bound = await provider.bindPort(port?.id ?? "", { ...device, host }, { signal });
    assert.deepEqual([bound.id, bound.binding.host], [port?.id, host]);
    const unbound = await provider.bindPort(port?.id ?? "", { ...device, host: "" }, { signal });
    assert.equal(unbound.binding.host, "");
  });

  promise(
    "a binding for an older revision is PortChanged and changes nothing; for the last one it is done",
    async (fixture) => {
      const { provider, request, made, host, signal } = fixture;
      const [port] = await made(request("eth0"));
      const { id = "", revision = 0 } = port ?? {};
      const binding = { host, deviceId: PODS[0], deviceOwner: OWNER };
      const old = provider.bindPort(id, binding, { signal, ifRevision: revision + 7 });
      await rejects(old, "PortChanged", { retry: "at-once" });
      assert.equal((await provider.getPorts([id], { signal })).get(id)?.binding.host, "");
      const bound = await provider.bindPort(id, binding, { signal, ifRevision: revision });
      assert.equal(bound.binding.host, host);
      assert.notEqual(bound.revision, revision);
    },
  );

  promise(
    "security groups replace those that the port has",
    async ({ provider, request, made, found, group, signal }) => {
      const [port] = await made(request("eth0"));
      await provider.setSecurityGroups(port?.id ?? "", { vpc: found, securityGroups: [group] }, { signal });
      const after = (await provider.getPorts([port?.id ?? ""], { signal })).get(port?.id ?? "");
      assert.deepEqual(after?.securityGroups, [group]);
    },
  );

  promise(
    "a change of a port that does not exist is PortNotFound",
    async ({ provider, found, group, host, signal }) => {
      const binding = { host, deviceId: PODS[0], deviceOwner: OWNER };
      await rejects(provider.bindPort(ABSENT, binding, { signal }), "PortNotFound", { retry: "slow" });
      const groups = { vpc: found, securityGroups: [group] };
      await rejects(provider.setSecurityGroups(ABSENT, groups, { signal }), "PortNotFound", { retry: "slow" });
    },
  );
}

function endings(promise: Promised): void {
  promise("a user's port that is given back has what it had; one that is gone is no error", async (fixture) => {
    const { provider, request, made, host, signal } = fixture;
    const [port] = await made(request("eth0"));
    const id = port?.id ?? "";
    await provider.bindPort(id, { host, deviceId: PODS[1], deviceOwner: OWNER }, { signal });
    const saved = { deviceId: "their-device", deviceOwner: "their:own", host: "" };
    await provider.releasePort(id, saved, { signal });
    const after = (await provider.getPorts([id], { signal })).get(id);
    assert.deepEqual(
      [after?.deviceId, after?.deviceOwner, after?.binding.host],
      [saved.deviceId, saved.deviceOwner, ""],
    );
    await provider.releasePort(ABSENT, saved, { signal });
  });

  promise("a deleted port is gone; to delete it again is no error, and its address is free", async (fixture) => {
    const { provider, request, made, free, signal } = fixture;
    const [port] = await made(request("eth0", free));
    for (let times = 0; times < 2; times += 1) await provider.deletePort(port?.id ?? "", { signal });
    assert.deepEqual(await provider.findPorts([PODS[0]], { signal }), []);
    assert.equal((await provider.getPorts([port?.id ?? ""], { signal })).size, 0);
    const [next] = await made(request("eth1", free));
    assert.deepEqual(
      next?.addresses.map(({ ip }) => ip),
      [free.ip],
    );
  });
}

function failures(promise: Promised): void {
  promise(
    "while the cloud is away, requests are ProviderUnavailable; nobody knows what a write has done",
    async (fixture) => {
      const { provider, request, made, setAway, signal } = fixture;
      const [port] = await made(request("eth0"));
      setAway(true);
      await rejects(provider.findPorts([PODS[0]], { signal }), "ProviderUnavailable", { retry: "fast" });
      await rejects(provider.deletePort(port?.id ?? "", { signal }), "ProviderUnavailable", {
        retry: "fast",
        isAmbiguous: true,
      });
      const results = await provider.createPorts([request("eth1"), request("eth2")], { signal });
      assert.deepEqual(results.map(codeOf), ["ProviderUnavailable", "ProviderUnavailable"]);
      assert.ok(
        results.every((result) => "error" in result && result.error.isAmbiguous && result.error.retry === "fast"),
      );
    },
  );

  promise("a caller that has gone ends its requests with its own reason", async ({ provider }) => {
    const reason = new Error("the caller has gone");
    const signal = AbortSignal.abort(reason);
    for (const ask of [
      () => provider.findPorts([PODS[0]], { signal }),
      () => provider.getPorts([ABSENT], { signal }),
      () => provider.pollPorts([PODS[0]], { signal }),
      () => provider.deletePort(ABSENT, { signal }),
    ])
      await assert.rejects(ask, (error) => error === reason);
  });
}

async function rejects(
  work: Promise<unknown>,
  code: ProviderReason,
  more: Partial<Pick<ProviderError, "retry" | "isAmbiguous">>,
): Promise<void> {
  await assert.rejects(work, (error) => {
    assert.ok(error instanceof ProviderError, `not a ProviderError: ${String(error)}`);
    const { retry, isAmbiguous } = error;
    assert.deepEqual({ code: error.code, retry, isAmbiguous }, { code, retry, isAmbiguous, ...more }, error.message);
    return true;
  });
}

function codeOf(result: PortResult | undefined): string {
  return result === undefined || "port" in result ? "no error" : result.error.code;
}

async function idsOf(ports: AsyncIterable<VpcPort>): Promise<readonly string[]> {
  const ids: string[] = [];
  for await (const { id } of ports) ids.push(id);
  return ids.sort();
}
