import assert from "node:assert/strict";
import { Cidr, IpAddress } from "#base/ip";
import type { RouteSpec } from "#kernel/route";
import { type ContractTarget, contractTest, type Fixture, refused, vethPair } from "./target.ts";

const ip = IpAddress.parse;
const cidr = Cidr.parse;

/** A destination of each family, and two gateways on the link of {@link withAddresses}. */
const WAYS = [
  [cidr("10.1.0.0/24"), ip("10.0.0.8"), ip("10.0.0.9")],
  [cidr("fd01::/64"), ip("fd00::8"), ip("fd00::9")],
] as const;

/** A link with 10.0.0.1/24 and fd00::1/64. */
function withAddresses(fixture: Fixture): number {
  const { left } = vethPair(fixture);
  fixture.a.addresses.add({ linkIndex: left, address: ip("10.0.0.1"), prefixLength: 24 });
  fixture.a.addresses.add({ linkIndex: left, address: ip("fd00::1"), prefixLength: 64, noDad: true });
  return left;
}

/** The contract of every {@link RoutePort}. */
export function routeContract(target: ContractTarget): void {
  contractTest(target, "routes: what is added is listed, in both families and any table", (fixture) => {
    const linkIndex = withAddresses(fixture);
    const { routes } = fixture.a;
    const specs: readonly RouteSpec[] = [
      { dst: cidr("10.1.0.0/24"), linkIndex, table: 116, protocol: 30 },
      { dst: cidr("10.2.0.0/24"), gateway: ip("10.0.0.9"), table: 1000, protocol: 30, metric: 7, mtu: 1300 },
      { dst: cidr("10.3.0.0/24"), gateway: ip("192.0.2.9"), linkIndex, onlink: true, table: 100_000, protocol: 30 },
      { dst: cidr("10.4.0.0/24"), gateway: ip("10.0.0.9"), src: ip("10.0.0.1"), table: 116, protocol: 30 },
      { dst: cidr("10.5.0.0/24"), gateway: ip("fe80::1"), linkIndex, table: 116, protocol: 30 },
      { dst: cidr("10.6.0.0/24"), type: "blackhole", table: 116, protocol: 30 },
      { dst: cidr("fd01::/64"), linkIndex, table: 116, protocol: 30 },
      { dst: cidr("fd02::/64"), gateway: ip("fd00::9"), linkIndex, table: 1000, protocol: 30, metric: 7, mtu: 1300 },
      { dst: cidr("::/0"), gateway: ip("fe80::1"), linkIndex, protocol: 30 },
      { dst: cidr("0.0.0.0/0"), gateway: ip("10.0.0.9"), protocol: 30 },
    ];
    for (const spec of specs) routes.add(spec);
    for (const spec of specs) {
      const [found, ...more] = routes
        .list({ family: spec.dst.family, table: spec.table ?? 254, protocol: 30 })
        .filter(({ dst }) => dst.equals(spec.dst));
      assert.deepEqual(more, []);
      for (const [key, value] of Object.entries(spec)) {
        assert.equal(String(found?.[key as keyof typeof found]), String(value), `${spec.dst} ${key}`);
      }
      if (spec.type === undefined) assert.equal(found?.linkIndex, linkIndex, `${spec.dst}`);
    }
    assert.equal(routes.list({ family: 4, protocol: 30 }).length, 7);
    assert.equal(routes.list({ family: 6, protocol: 30 }).length, 3);
    assert.equal(routes.list({ family: 4, table: 116, linkIndex }).length, 3);
    assert.deepEqual(routes.list({ family: 4, table: 4242 }), []);
    assert.deepEqual(routes.list({ family: 6, table: 4242 }), []);
    assert.deepEqual(routes.list({ family: 4, linkIndex: 99 }), []);
  });

  contractTest(target, "routes: scope follows from type and gateway as with iproute2", (fixture) => {
    const linkIndex = withAddresses(fixture);
    const { routes } = fixture.a;
    routes.add({ dst: cidr("10.1.0.0/24"), linkIndex });
    routes.add({ dst: cidr("10.2.0.0/24"), gateway: ip("10.0.0.9") });
    const scopes = routes.list({ family: 4, protocol: 3 }).map(({ dst, scope, type }) => `${dst} ${scope} ${type}`);
    assert.deepEqual(scopes.sort(), ["10.1.0.0/24 link unicast", "10.2.0.0/24 global unicast"]);
  });

  contractTest(target, "routes: add refuses what is there, replace takes its place", (fixture) => {
    const linkIndex = withAddresses(fixture);
    const { routes } = fixture.a;
    for (const [dst, one, two] of WAYS) {
      routes.add({ dst, gateway: one, linkIndex, table: 119 });
      refused(() => routes.add({ dst, gateway: two, linkIndex, table: 119 }), "already-exists");
      routes.replace({ dst, gateway: two, linkIndex, table: 119 });
      const found = routes.list({ family: dst.family, table: 119 });
      assert.deepEqual(
        found.map(({ gateway }) => String(gateway)),
        [String(two)],
      );
      routes.add({ dst, gateway: one, linkIndex, table: 119, metric: 5 });
      assert.equal(routes.list({ family: dst.family, table: 119 }).length, 2);
    }
  });

  contractTest(target, "routes: delete takes the one that matches all that is given", (fixture) => {
    const linkIndex = withAddresses(fixture);
    const { routes } = fixture.a;
    const dst = cidr("10.1.0.0/24");
    routes.add({ dst, gateway: ip("10.0.0.9"), table: 119, protocol: 30 });
    refused(() => routes.delete({ dst, table: 119, protocol: 31 }), "not-found");
    refused(() => routes.delete({ dst, table: 119, gateway: ip("10.0.0.8") }), "not-found");
    refused(() => routes.delete({ dst }), "not-found");
    refused(() => routes.delete({ dst: cidr("fd09::/64"), table: 119 }), "not-found");
    routes.delete({ dst, table: 119, protocol: 30, gateway: ip("10.0.0.9"), linkIndex });
    assert.deepEqual(routes.list({ family: 4, table: 119 }), []);
  });

  contractTest(target, "routes: a way must exist, be up and reach its gateway", (fixture) => {
    const linkIndex = withAddresses(fixture);
    const { routes, links } = fixture.a;
    const dst = cidr("10.1.0.0/24");
    const dst6 = cidr("fd01::/64");
    refused(() => routes.add({ dst, gateway: ip("192.0.2.1") }), "unreachable");
    refused(() => routes.add({ dst: dst6, gateway: ip("fd77::1") }), "unreachable");
    refused(() => routes.add({ dst, linkIndex: 99 }), "no-device");
    refused(() => routes.add({ dst: dst6, linkIndex: 99 }), "no-device");
    refused(() => routes.add({ dst, linkIndex, src: ip("192.0.2.7") }), "invalid");
    refused(() => routes.add({ dst, linkIndex, table: 0 }), "invalid");
    refused(() => routes.add({ dst: dst6, gateway: ip("fd00::1"), linkIndex }), "invalid");
    links.set(linkIndex, { up: false });
    refused(() => routes.add({ dst, linkIndex }), "unreachable");
  });

  contractTest(target, "routes: a multipath route keeps its hops and weights", (fixture) => {
    const linkIndex = withAddresses(fixture);
    const { routes } = fixture.a;
    for (const [dst, one, two] of WAYS) {
      const hops = [
        { gateway: one, linkIndex, weight: 1 },
        { gateway: two, linkIndex, weight: 3 },
      ];
      routes.add({ dst, multipath: hops, table: 119 });
      const [found] = routes.list({ family: dst.family, table: 119, linkIndex });
      const text = found?.multipath?.map((hop) => `${hop.gateway} ${hop.linkIndex} ${hop.weight}`).sort();
      assert.deepEqual(text, [`${one} ${linkIndex} 1`, `${two} ${linkIndex} 3`]);
    }
    refused(() => routes.add({ dst: cidr("10.2.0.0/24"), multipath: [] }), "invalid");
  });

  contractTest(target, "routes: a link that goes takes its routes along", (fixture) => {
    const linkIndex = withAddresses(fixture);
    const { routes, links } = fixture.a;
    routes.add({ dst: cidr("10.1.0.0/24"), linkIndex, table: 116 });
    routes.add({ dst: cidr("fd01::/64"), linkIndex, table: 116 });
    links.delete(linkIndex);
    assert.deepEqual(routes.list({ family: 4, table: 116 }), []);
    assert.deepEqual(routes.list({ family: 6, table: 116 }), []);
  });

  contractTest(
    target,
    "routes: a look-up follows rules, the longest prefix, metrics and throw, and tells what refuses",
    (fixture) => {
      const linkIndex = withAddresses(fixture);
      const { routes, rules } = fixture.a;
      for (const [{ family }, one, two] of WAYS) {
        const at = (text4: string, text6: string) => (family === 4 ? text4 : text6);
        const to = ip(at("198.51.100.7", "2001:db8:7::7"));
        refused(() => routes.lookup({ destination: to }), "unreachable");
        const any = cidr(at("0.0.0.0/0", "::/0"));
        routes.add({ dst: any, gateway: one, linkIndex });
        const seen = (query: object = {}): string => {
          const { table, gateway, dst } = routes.lookup({ destination: to, ...query });
          return `${table} ${dst} ${gateway}`;
        };
        assert.equal(seen(), `254 ${any} ${one}`);
        rules.add({ family, priority: 1900, table: 117 });
        rules.add({ family, priority: 1000, fwmark: 5, table: 1005 });
        const wide = cidr(at("198.51.100.0/24", "2001:db8:7::/48"));
        routes.add({ dst: wide, gateway: two, linkIndex, table: 117, metric: 9 });
        routes.add({ dst: wide, type: "unreachable", table: 117, metric: 1_000_000 });
        assert.equal(seen(), `117 ${wide} ${two}`);
        routes.add({ dst: cidr(`${to}/${to.bits}`), type: "throw", table: 117, metric: 1 });
        assert.equal(seen(), `254 ${any} ${one}`);
        routes.add({ dst: any, gateway: two, linkIndex, table: 1005, metric: 3 });
        assert.equal(seen({ mark: 5 }), `1005 ${any} ${two}`);
        assert.equal(seen({ mark: 6 }), `254 ${any} ${one}`);
        routes.delete({ dst: cidr(`${to}/${to.bits}`), type: "throw", table: 117 });
        routes.delete({ dst: wide, table: 117, gateway: two, metric: 9 });
        refused(() => routes.lookup({ destination: to }), "unreachable");
      }
    },
  );

  if ((target.has ?? (() => true))("encap")) {
    contractTest(target, "routes: lightweight-tunnel encap goes out through an external device", ({ a }) => {
      const device = a.links.create({
        kind: "vxlan",
        name: "x",
        external: true,
        port: 5555,
        learning: false,
        up: true,
      });
      const encap4 = { type: "ip", id: 77n, dst: ip("10.0.0.8") } as const;
      const encap6 = { type: "ip6", id: (1n << 24n) - 1n, dst: ip("fd00::8"), src: ip("fd00::1") } as const;
      a.routes.add({ dst: cidr("10.7.0.1/32"), linkIndex: device.index, table: 118, encap: encap4 });
      a.routes.add({ dst: cidr("fd07::1/128"), linkIndex: device.index, table: 118, encap: encap6 });
      assert.deepEqual(a.routes.list({ family: 4, table: 118 })[0]?.encap, { ...encap4, flags: 4 });
      assert.deepEqual(a.routes.list({ family: 6, table: 118 })[0]?.encap, { ...encap6, flags: 4 });
    });
  }
}
