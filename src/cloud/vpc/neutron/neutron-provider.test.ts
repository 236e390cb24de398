import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { nullLogger } from "#base/log";
import {
  NeutronClient,
  type NeutronPort,
  type NeutronSecurityGroup,
  neutronFault,
  type PortDraft,
  read,
} from "#cloud/neutron";
import { CloudError, RestClient } from "#cloud/rest";
import { ProviderError } from "../errors.ts";
import { NeutronProvider } from "./neutron-provider.ts";

/** A Neutron with a network that gives no address to some ports, and that does not delete them. */
class Addressless extends NeutronClient {
  override async listExtensions(): Promise<ReadonlySet<string>> {
    return new Set(["tag-ports-during-bulk-creation"]);
  }

  override async createPorts(drafts: readonly PortDraft[]): Promise<readonly NeutronPort[]> {
    return read.ports({
      ports: drafts.map(({ name, network_id }) => ({
        id: `port-${name}`,
        name,
        network_id,
        fixed_ips: name === "eth1" ? [] : [{ subnet_id: "s", ip_address: "10.0.0.1" }],
      })),
    });
  }

  override async deletePort(): Promise<void> {
    throw new CloudError("unavailable", "Cannot delete port: Neutron answered HTTP 503", { httpStatus: 503 });
  }
}

test("NeutronProvider: a port without an address that cannot be deleted costs the others of its request nothing", async (t) => {
  const clock = new FakeClock();
  await using rest = unusedRest(clock);
  await using provider = new NeutronProvider({ neutron: new Addressless(rest), clock }, { name: "n" });
  const vpc = { ref: "v", projectId: "p", networks: new Map([["n", { mtu: 1500 }]]), subnets: [] };
  const results = await provider.createPorts(
    ["eth0", "eth1", "eth2"].map((name) => ({
      identity: { name, deviceId: "d", deviceOwner: "o", description: "", tags: [] },
      vpc,
      wish: { securityGroups: [], wantsIpv6: false },
      host: undefined,
    })),
    { signal: t.signal },
  );
  const ends = results.map((one) => ("port" in one ? one.port.id : [one.error.code, one.error.isAmbiguous]));
  assert.deepEqual(ends, ["port-eth0", ["NoAddress", true], "port-eth2"]);
});

/** A REST client for a client of Neutron that sends nothing. */
function unusedRest(clock: FakeClock): RestClient {
  const auth = {
    endpoint: async () => new URL("http://neutron.test"),
    headers: async () => ({}),
    refused: () => false,
  };
  return new RestClient({ clock, log: nullLogger, auth }, { service: "Neutron", faultOf: neutronFault });
}

/** A Neutron without security groups, which takes a moment to say so. */
class Groupless extends NeutronClient {
  asked = 0;
  atOnce = 0;
  most = 0;

  override async listSecurityGroups(): Promise<readonly NeutronSecurityGroup[]> {
    this.asked += 1;
    this.atOnce += 1;
    this.most = Math.max(this.most, this.atOnce);
    await new Promise(setImmediate);
    this.atOnce -= 1;
    return [];
  }
}

test("NeutronProvider: a pod that names hundreds of groups leaves others their connections", async (t) => {
  const clock = new FakeClock();
  await using rest = unusedRest(clock);
  const neutron = new Groupless(rest);
  await using provider = new NeutronProvider({ neutron, clock }, { name: "n" });
  const vpc = { ref: "v", projectId: "p", networks: new Map([["n", { mtu: 1500 }]]), subnets: [] };
  const identity = { deviceId: "d", deviceOwner: "o", description: "", tags: [] };
  const results = await provider.createPorts(
    ["eth0", "eth1", "eth2", "eth3"].map((name) => ({
      identity: { ...identity, name },
      vpc,
      wish: { securityGroups: Array.from({ length: 100 }, (_, at) => `${name}-${at}`), wantsIpv6: false },
      host: undefined,
    })),
    { signal: t.signal },
  );
  assert.deepEqual(
    results.map((one) => "error" in one && one.error instanceof ProviderError && one.error.code),
    Array(4).fill("SecurityGroupNotFound"),
  );
  assert.ok(neutron.asked > 100, `${neutron.asked} look-ups`);
  assert.equal(neutron.most, 4);
});

/** A Neutron that does not answer requests that make ports. */
class Busy extends Addressless {
  readonly sent: string[] = [];

  override async createPorts([first]: readonly PortDraft[]): Promise<readonly NeutronPort[]> {
    this.sent.push(first?.project_id ?? "");
    return new Promise(() => undefined);
  }
}

test("NeutronProvider: at most two requests that make ports are under way for a project, and six in all, each after its turn", async (t) => {
  const clock = new FakeClock();
  await using rest = unusedRest(clock);
  const neutron = new Busy(rest);
  await using provider = new NeutronProvider({ neutron, clock }, { name: "n" });
  let turns = 0;
  const stop = new AbortController();
  const ends = ["a", "b", "c", "d"].map((projectId) => {
    const requests = Array.from({ length: 200 }, (_, at) => ({
      identity: { name: `${projectId}-${at}`, deviceId: "d", deviceOwner: "o", description: "", tags: [] },
      vpc: { ref: "v", projectId, networks: new Map([["n", { mtu: 1500 }]]), subnets: [] },
      wish: { securityGroups: [], wantsIpv6: false },
      host: undefined,
    }));
    const pace = async (): Promise<void> => {
      turns += 1;
    };
    return provider.createPorts(requests, { signal: AbortSignal.any([t.signal, stop.signal]), pace });
  });
  for (const end of ends) end.catch(() => undefined);
  for (let moments = 0; moments < 20; moments += 1) await new Promise(setImmediate);
  assert.deepEqual([neutron.sent, turns], [["a", "a", "b", "b", "c", "c"], 6]);
  stop.abort(new Error("enough"));
});

/** A Neutron that counts how many lists of ports it is asked for at a time. */
class Counting extends Addressless {
  atOnce = 0;
  most = 0;

  override async listPorts(): Promise<readonly NeutronPort[]> {
    this.atOnce += 1;
    this.most = Math.max(this.most, this.atOnce);
    await new Promise(setImmediate);
    this.atOnce -= 1;
    return [];
  }
}

test("NeutronProvider: many projects whose small networks are counted at the same time leave others their connections", async (t) => {
  const clock = new FakeClock();
  await using rest = unusedRest(clock);
  const neutron = new Counting(rest);
  await using provider = new NeutronProvider({ neutron, clock }, { name: "n" });
  const identity = { deviceId: "d", deviceOwner: "o", description: "", tags: [] };
  const subnet = { id: "s", name: "s", networkId: "n", cidr: "10.0.0.0/24", ipVersion: 4 } as const;
  const subnets = [{ ...subnet, gateway: undefined, nameservers: [], routes: [] }];
  const ends = await Promise.all(
    Array.from({ length: 40 }, (_, at) =>
      provider.createPorts(
        ["eth0", "eth2"].map((name) => ({
          identity: { ...identity, name },
          vpc: { ref: "v", projectId: `p${at}`, networks: new Map([["n", { mtu: 1500 }]]), subnets },
          wish: { securityGroups: [], wantsIpv6: false },
          host: undefined,
        })),
        { signal: t.signal },
      ),
    ),
  );
  assert.ok(ends.flat().every((one) => "port" in one));
  assert.equal(neutron.most, 4);
});
