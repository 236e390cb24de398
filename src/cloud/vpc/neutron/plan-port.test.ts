import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { FakeClock } from "#base/clock";
import type { PortDraft } from "#cloud/neutron";
import { ProviderError, type ProviderReason } from "../errors.ts";
import type { PortWish, Vpc, VpcSubnet } from "../provider.ts";
import { addressesOf, batches } from "./batches.ts";
import { BulkSize } from "./bulk-size.ts";
import { planPort } from "./plan-port.ts";

const subnet = (id: string, cidr: string, more: Partial<VpcSubnet> = {}): VpcSubnet => ({
  id,
  name: `name-${id}`,
  networkId: "n1",
  cidr,
  ipVersion: cidr.includes(":") ? 6 : 4,
  gateway: undefined,
  nameservers: [],
  routes: [],
  ...more,
});
const S1 = subnet("s1", "192.168.0.0/24", { gateway: "192.168.0.1" });
const S2 = subnet("s2", "10.0.0.0/24");
const S6 = subnet("s6", "fd00:1::/64", { gateway: "fd00:1::1" });
const vpcOf = (...subnets: readonly VpcSubnet[]): Vpc => ({
  ref: "vpc-1",
  projectId: "p1",
  networks: new Map(
    [...new Set(["n1", ...subnets.map(({ networkId }) => networkId)])].map((id) => [id, { mtu: 1450 }]),
  ),
  subnets,
});
const identity = {
  name: "nic-u1-eth0",
  deviceId: "u1",
  deviceOwner: "compute:isthmus",
  description: "{}",
  tags: ["isthmus"],
};

function plan(vpc: Vpc, wish: Partial<PortWish> = {}, options = {}): PortDraft {
  const whole = { securityGroups: [], wantsIpv6: false, ...wish };
  return planPort({ identity, vpc, wish: whole, host: undefined }, whole.securityGroups, options);
}

describe("planPort", () => {
  test("a NIC that wants nothing has an address of Neutron's choice, where the network has IPv4 alone", () => {
    assert.deepEqual(plan(vpcOf(S1, S2)), {
      network_id: "n1",
      project_id: "p1",
      name: "nic-u1-eth0",
      admin_state_up: true,
      device_id: "u1",
      device_owner: "compute:isthmus",
      description: "{}",
      tags: ["isthmus"],
      "binding:vnic_type": "normal",
    });
  });

  test("all that a NIC wants is in the request, with the host where it is known: one request in place of two", () => {
    const wish = {
      subnet: "name-s1",
      ip: "192.168.0.12",
      mac: "02:00:00:00:00:01",
      securityGroups: ["g1"],
      wantsIpv6: true,
    };
    const request = { identity, vpc: vpcOf(S1, S6), wish, host: "node-1" };
    const draft = planPort(request, ["g1"]);
    assert.deepEqual(draft.fixed_ips, [{ subnet_id: "s1", ip_address: "192.168.0.12" }, { subnet_id: "s6" }]);
    assert.deepEqual(
      [draft.mac_address, draft.security_groups, draft["binding:host_id"]],
      ["02:00:00:00:00:01", ["g1"], "node-1"],
    );
  });

  test("without ipv6Enabled a port has no IPv6 address, also where the network has such subnets", () => {
    assert.deepEqual(plan(vpcOf(S6, S2, S1)).fixed_ips, [{ subnet_id: "s1" }]);
    assert.equal(plan(vpcOf(S6, S1), { wantsIpv6: true }).fixed_ips, undefined);
    assert.deepEqual(plan(vpcOf(S6, S1), { refusesIpv6: true }).fixed_ips, [{ subnet_id: "s1" }]);
    assert.equal(plan(vpcOf(S6)).fixed_ips, undefined, "in a VPC of IPv6 alone a NIC that says nothing has one");
    assert.deepEqual(plan(vpcOf(S6, S1), { subnet: "s1" }).fixed_ips, [{ subnet_id: "s1" }]);
    assert.deepEqual(plan(vpcOf(S6, S1), { subnet: "s6", wantsIpv6: true }).fixed_ips, [{ subnet_id: "s6" }]);
  });

  const rows: readonly (readonly [
    what: string,
    vpc: Vpc,
    wish: Partial<PortWish>,
    reason: ProviderReason,
    says: RegExp,
  ])[] = [
    ["an unknown subnet", vpcOf(S1), { subnet: "x" }, "SubnetNotFound", /VPC vpc-1 has no subnet x; it has name-s1/],
    [
      "a name of two subnets",
      vpcOf(S1, subnet("s9", "10.9.0.0/24", { name: "name-s1" })),
      { subnet: "name-s1" },
      "AmbiguousSubnet",
      /write the id/,
    ],
    [
      "an address outside",
      vpcOf(S1),
      { subnet: "s1", ip: "192.168.1.1" },
      "IpNotInSubnet",
      /192\.168\.1\.1 is not in subnet name-s1, 192\.168\.0\.0\/24/,
    ],
    ["an address of the other family", vpcOf(S1), { subnet: "s1", ip: "fd00::1" }, "IpNotInSubnet", /is not in/],
    ["the gateway (T-15)", vpcOf(S1), { subnet: "s1", ip: "192.168.0.1" }, "IpIsGateway", /is the gateway of subnet/],
    [
      "the gateway, written otherwise",
      vpcOf(S6),
      { subnet: "s6", ip: "fd00:1:0::0:1", wantsIpv6: true },
      "IpIsGateway",
      /is the gateway/,
    ],
    ["no address", vpcOf(S1), { subnet: "s1", ip: "192.168.0" }, "BadRequest", /cannot be an address/],
    [
      "no subnet of several networks",
      vpcOf(S1, subnet("s8", "10.8.0.0/24", { networkId: "n2" })),
      {},
      "AmbiguousSubnet",
      /name the subnet/,
    ],
    ["IPv6 alone against the wish", vpcOf(S6), { refusesIpv6: true }, "SubnetNotFound", /ipv6Enabled: false/],
  ];
  for (const [what, vpc, wish, reason, says] of rows)
    test(`${what} is refused: ${reason}`, () => {
      assert.throws(
        () => plan(vpc, wish),
        (error) => error instanceof ProviderError && error.code === reason && says.test(error.message),
      );
    });

  test("a provider that allows it gives the gateway's address", () => {
    const draft = plan(vpcOf(S1), { subnet: "s1", ip: "192.168.0.1" }, { allowsGatewayAddress: true });
    assert.deepEqual(draft.fixed_ips, [{ subnet_id: "s1", ip_address: "192.168.0.1" }]);
  });
});

test("addressesOf: of the pools if they are told, else of the CIDR; the smallest subnet of IPv4 counts", () => {
  const pools = [
    { start: "10.0.0.2", end: "10.0.0.9" },
    { start: "10.0.0.200", end: "10.0.0.200" },
  ];
  assert.deepEqual(
    [
      addressesOf([S1]),
      addressesOf([subnet("s", "10.0.0.0/16"), { ...S2, pools }]),
      addressesOf([S6]),
      addressesOf([]),
    ],
    [253, 9, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY],
  );
});

test("batches: at most 50 ports in a request, 8 with wanted MACs; one with a wanted address or of a scarce network alone", () => {
  const drafts = Array.from({ length: 130 }, (_, at) => ({
    ...plan(
      vpcOf(S1),
      at % 10 === 0 ? { subnet: "s1", ip: `192.168.0.${at + 2}` } : at % 10 === 1 ? { mac: "02:00:00:00:00:01" } : {},
    ),
    name: `p${at}`,
  }));
  const sizes = batches(drafts, 50).map((batch) => batch.length);
  assert.deepEqual(sizes, [50, 50, 4, 8, 5, ...Array.from({ length: 13 }, () => 1)]);
  assert.equal(batches(drafts, 50, new Set(["n1"])).length, 130);
  assert.equal(
    new Set(
      batches(drafts, 50)
        .flat()
        .map(({ name }) => name),
    ).size,
    130,
  );
  assert.deepEqual(
    batches(drafts.slice(0, 3), 1).map((batch) => batch.length),
    [1, 1, 1],
  );
});

test("BulkSize: a request above 15 s halves it, quick ones let it grow again, and a failure counts as any end", async () => {
  const clock = new FakeClock();
  const bulk = new BulkSize({ clock });
  const slow = async (ms: number): Promise<void> => void (await bulk.measure(() => clock.advance(ms)));
  await slow(16_000);
  assert.equal(bulk.size, 25);
  await assert.rejects(
    bulk.measure(async () => {
      await clock.advance(20_000);
      throw new Error("lost");
    }),
    /lost/,
  );
  assert.equal(bulk.size, 12);
  for (let at = 0; at < 10; at += 1) await slow(20_000);
  assert.equal(bulk.size, 1);
  await slow(10_000);
  assert.equal(bulk.size, 1);
  for (let at = 0; at < 60; at += 1) await slow(100);
  assert.equal(bulk.size, 50);
});
