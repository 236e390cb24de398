import assert from "node:assert/strict";
import { IpAddress, MacAddress } from "#base/ip";
import { type ContractTarget, contractTest, eventually, type Fixture, refused, vethPair } from "./target.ts";

const ip = IpAddress.parse;

function texts({ a }: Fixture, linkIndex: number): string[] {
  return a.addresses
    .list({ linkIndex })
    .filter(({ address }) => !(address.family === 6 && address.isLinkLocal))
    .map(({ address, prefixLength }) => `${address}/${prefixLength}`)
    .sort();
}

/** The contract of every {@link AddressPort}. */
export function addressContract(target: ContractTarget): void {
  contractTest(target, "addresses: add, list by link and family, delete", (fixture) => {
    const { a } = fixture;
    const { left } = vethPair(fixture);
    a.addresses.add({ linkIndex: left, address: ip("10.1.0.1") });
    a.addresses.add({ linkIndex: left, address: ip("10.2.0.1"), prefixLength: 24, scope: "link" });
    a.addresses.add({ linkIndex: left, address: ip("fd00::1"), noDad: true });
    assert.deepEqual(texts(fixture, left), ["10.1.0.1/32", "10.2.0.1/24", "fd00::1/128"]);
    const inet = a.addresses.list({ linkIndex: left, family: 4 });
    const first = inet.find(({ prefixLength }) => prefixLength === 32);
    const second = inet.find(({ prefixLength }) => prefixLength === 24);
    assert.equal(first?.scope, "global");
    assert.equal(first?.permanent, true);
    assert.equal(second?.scope, "link");
    const inet6 = a.addresses.list({ family: 6 }).find(({ address }) => address.equals(ip("fd00::1")));
    assert.equal(inet6?.noDad, true);
    assert.equal(inet6?.tentative, false);
    assert.equal(inet6?.dadFailed, false);
    a.addresses.delete({ linkIndex: left, address: ip("10.2.0.1"), prefixLength: 24 });
    a.addresses.delete({ linkIndex: left, address: ip("fd00::1") });
    assert.deepEqual(texts(fixture, left), ["10.1.0.1/32"]);
  });

  contractTest(target, "addresses: who set one is kept with it, and nothing is said of the others", (fixture) => {
    const { a } = fixture;
    const { left } = vethPair(fixture);
    for (const [text, protocol] of [
      ["10.1.0.1", 0x49],
      ["fd00::1", 255],
      ["10.1.0.2", undefined],
    ] as const) {
      a.addresses.add({ linkIndex: left, address: ip(text), noDad: true, protocol });
    }
    const kept = a.addresses
      .list({ linkIndex: left })
      .map(({ address, protocol }) => `${address.isLinkLocal ? "link-local" : address} ${protocol}`)
      .sort();
    assert.deepEqual(kept, ["10.1.0.1 73", "10.1.0.2 undefined", "fd00::1 255", "link-local 3"]);
    for (const protocol of [0, 3, 256, 4.5]) {
      refused(() => a.addresses.add({ linkIndex: left, address: ip("10.1.0.3"), protocol }), "invalid");
    }
  });

  contractTest(target, "addresses: a second add is refused, a replace is not", (fixture) => {
    const { a } = fixture;
    const { left } = vethPair(fixture);
    for (const address of [ip("10.1.0.1"), ip("fd00::1")]) {
      a.addresses.add({ linkIndex: left, address, noDad: true });
      refused(() => a.addresses.add({ linkIndex: left, address, noDad: true }), "already-exists");
      a.addresses.replace({ linkIndex: left, address, noDad: true });
    }
    a.addresses.replace({ linkIndex: left, address: ip("10.3.0.1"), prefixLength: 16 });
    assert.deepEqual(texts(fixture, left), ["10.1.0.1/32", "10.3.0.1/16", "fd00::1/128"]);
  });

  contractTest(target, "addresses: what does not exist cannot be deleted, and needs its prefix length", (fixture) => {
    const { a } = fixture;
    const { left } = vethPair(fixture);
    a.addresses.add({ linkIndex: left, address: ip("10.1.0.1"), prefixLength: 24 });
    refused(() => a.addresses.delete({ linkIndex: left, address: ip("10.1.0.1") }), "not-found");
    refused(() => a.addresses.delete({ linkIndex: left, address: ip("10.1.0.9") }), "not-found");
    refused(() => a.addresses.delete({ linkIndex: left, address: ip("fd00::9") }), "not-found");
    refused(() => a.addresses.add({ linkIndex: 99, address: ip("10.1.0.1") }), "no-device");
    refused(() => a.addresses.add({ linkIndex: 99, address: ip("fd00::1") }), "no-device");
    refused(() => a.addresses.add({ linkIndex: left, address: ip("10.1.0.1"), prefixLength: 33 }), "invalid");
    assert.deepEqual(a.addresses.list({ linkIndex: 99 }), []);
  });

  contractTest(target, "addresses: the same address can be on two links", (fixture) => {
    const { a } = fixture;
    const one = a.links.create({ kind: "bridge", name: "br0", up: true });
    const two = a.links.create({ kind: "bridge", name: "br1", up: true });
    for (const { index } of [one, two]) a.addresses.add({ linkIndex: index, address: ip("10.1.0.1") });
    assert.equal(a.addresses.list({ family: 4 }).length, 2);
  });

  contractTest(target, "addresses: a prefix brings its connected route, and takes it away", (fixture) => {
    const { a } = fixture;
    const { left } = vethPair(fixture);
    a.addresses.add({ linkIndex: left, address: ip("10.1.0.1"), prefixLength: 24 });
    a.addresses.add({ linkIndex: left, address: ip("fd00::1"), prefixLength: 64, noDad: true });
    const connected = (family: 4 | 6): string[] =>
      a.routes
        .list({ family, table: 254, linkIndex: left })
        .map((route) => `${route.dst} proto ${route.protocol}`)
        .filter((text) => !text.startsWith("fe80"));
    assert.deepEqual(connected(4), ["10.1.0.0/24 proto 2"]);
    assert.deepEqual(connected(6), ["fd00::/64 proto 2"]);
    a.addresses.delete({ linkIndex: left, address: ip("10.1.0.1"), prefixLength: 24 });
    a.addresses.delete({ linkIndex: left, address: ip("fd00::1"), prefixLength: 64 });
    assert.deepEqual(connected(4), []);
    assert.deepEqual(connected(6), []);
  });

  contractTest(target, "addresses: a link that goes down keeps IPv4 and loses IPv6", (fixture) => {
    const { a } = fixture;
    const { left } = vethPair(fixture);
    a.addresses.add({ linkIndex: left, address: ip("10.1.0.1"), prefixLength: 24 });
    a.addresses.add({ linkIndex: left, address: ip("fd00::1"), noDad: true });
    a.links.set(left, { up: false });
    assert.deepEqual(texts(fixture, left), ["10.1.0.1/24"]);
    assert.deepEqual(a.routes.list({ family: 4, table: 254, linkIndex: left }), []);
    a.links.set(left, { up: true });
    assert.equal(a.routes.list({ family: 4, table: 254, linkIndex: left }).length, 1);
  });

  contractTest(
    target,
    "addresses: a link that comes up gets its link-local address, usable at once with accept_dad off",
    async ({ a }) => {
      const mac = MacAddress.parse("02:00:00:00:00:09");
      const { index } = a.links.create({ kind: "veth", name: "v0", mac, peer: { name: "v1", up: true } });
      a.sysctl.set("net.ipv6.conf.v0.accept_dad", 0);
      a.links.set(index, { up: true });
      // The kernel adds the address a moment later, when it has noticed the carrier.
      const own = await eventually(() => {
        const list = a.addresses.list({ linkIndex: index, family: 6 });
        // It adds it as tentative, and takes that back when a task of it finds that there is no detection.
        return list.length > 0 && list.every(({ tentative }) => !tentative) ? list : undefined;
      });
      assert.deepEqual(
        own.map(({ address, scope }) => `${address} ${scope}`),
        ["fe80::ff:fe00:9 link"],
      );
    },
  );
}
