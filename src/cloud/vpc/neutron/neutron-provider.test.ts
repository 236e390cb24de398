import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { NeutronClient, type NeutronSecurityGroup, neutronFault } from "#cloud/neutron";
import { RestClient } from "#cloud/rest";
import { ProviderError } from "../errors.ts";
import { NeutronProvider } from "./neutron-provider.ts";

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
  const auth = {
    endpoint: async () => new URL("http://neutron.test"),
    headers: async () => ({}),
    refused: () => false,
  };
  await using rest = new RestClient({ clock, log: nullLogger, auth }, { service: "Neutron", faultOf: neutronFault });
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
