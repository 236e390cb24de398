import assert from "node:assert/strict";
import { IpAddress, MacAddress } from "#base/ip";
import { type LinkSpec, MAX_DELETE_MANY } from "#kernel/link";
import { type ContractTarget, contractTest, refused, vethPair } from "./target.ts";

/** The contract of every {@link LinkPort}. */
export function linkContract(target: ContractTarget): void {
  const has = target.has ?? (() => true);

  contractTest(target, "links: a new namespace has loopback alone, down", ({ a }) => {
    const links = a.links.list();
    assert.deepEqual(
      links.map(({ name, index, up, mtu }) => ({ name, index, up, mtu })),
      [{ name: "lo", index: 1, up: false, mtu: 65536 }],
    );
    assert.equal(links[0]?.kind, undefined);
    assert.equal(a.links.get({ name: "eth0" }), undefined);
    assert.equal(a.links.get({ index: 77 }), undefined);
  });

  contractTest(target, "links: a veth spans two namespaces, each end knowing the other", (fixture) => {
    const { a, b, nsA, nsB } = fixture;
    const mac = MacAddress.parse("02:00:00:aa:bb:01");
    const left = a.links.create({
      kind: "veth",
      name: "veth0a1b2c3d",
      mtu: 1400,
      alias: "COIL:default:1234:eth0",
      up: true,
      peer: { name: "eth0", netns: nsB, mac, mtu: 1400, up: true },
    });
    const right = b.links.get({ name: "eth0" });
    assert.equal(left.kind, "veth");
    assert.equal(left.alias, "COIL:default:1234:eth0");
    assert.equal(left.mtu, 1400);
    assert.equal(left.up, true);
    assert.equal(right?.up, true);
    assert.equal(right?.mtu, 1400);
    assert.equal(right?.mac?.toString(), mac.toString());
    assert.equal(left.peerIndex, right?.index);
    assert.equal(right?.peerIndex, left.index);
    assert.equal(left.peerNetNsId, a.netnsIds.get(nsB));
    assert.equal(right?.peerNetNsId, b.netnsIds.get(nsA));
    a.links.delete(left.index);
    assert.equal(b.links.get({ name: "eth0" }), undefined, "the peer goes with it");
  });

  contractTest(target, "links: a veth inside one namespace has no namespace id", ({ a }) => {
    const left = a.links.create({ kind: "veth", name: "v0", peer: { name: "v1" } });
    assert.equal(left.peerNetNsId, undefined);
    assert.equal(left.peerIndex, a.links.get({ name: "v1" })?.index);
  });

  contractTest(
    target,
    "links: create can make the link in another namespace and reads it back from there",
    ({ a, b, nsB }) => {
      const made = a.links.create({ kind: "bridge", name: "br0", netns: nsB, alias: "x", up: true });
      assert.equal(made.alias, "x");
      assert.equal(a.links.get({ name: "br0" }), undefined);
      assert.equal(b.links.get({ name: "br0" })?.index, made.index);
    },
  );

  contractTest(
    target,
    "links: names are unique in a namespace, for the peer too, and nothing is left of a failure",
    ({ a, b, nsB }) => {
      a.links.create({ kind: "bridge", name: "br0" });
      b.links.create({ kind: "bridge", name: "eth0" });
      refused(() => a.links.create({ kind: "bridge", name: "br0" }), "already-exists");
      refused(() => a.links.create({ kind: "veth", name: "v0", peer: { name: "eth0", netns: nsB } }), "already-exists");
      assert.equal(a.links.get({ name: "v0" }), undefined);
      refused(() => a.links.create({ kind: "bridge", name: "sixteen-bytes-xx" }), "invalid");
      refused(() => a.links.create({ kind: "bridge", name: "a/b" }), "invalid");
      refused(() => a.links.create({ kind: "bridge", name: "" }), "invalid");
      refused(() => a.links.create({ kind: "bridge", name: "br1", alias: "x".repeat(256) }), "invalid");
      assert.equal(a.links.get({ name: "br1" }), undefined);
    },
  );

  contractTest(target, "links: promiscuous is a flag of its own", ({ a }) => {
    const { index } = a.links.create({ kind: "veth", name: "v0", peer: { name: "v1" } });
    const isPromiscuous = (): boolean => ((a.links.get({ index })?.flags ?? 0) & 0x100) !== 0;
    assert.equal(isPromiscuous(), false);
    a.links.set(index, { promiscuous: true, up: true });
    assert.deepEqual([isPromiscuous(), a.links.get({ index })?.up], [true, true]);
    a.links.set(index, { promiscuous: false });
    assert.deepEqual([isPromiscuous(), a.links.get({ index })?.up], [false, true]);
  });

  contractTest(target, "links: set changes what it is given and nothing else", ({ a }) => {
    const { index } = a.links.create({ kind: "veth", name: "v0", alias: "one", peer: { name: "v1" } });
    const mac = MacAddress.parse("02:00:00:00:00:09");
    a.links.set(index, { mtu: 1300, mac, up: true });
    const changed = a.links.get({ index });
    assert.equal(changed?.mtu, 1300);
    assert.equal(changed?.mac?.toString(), mac.toString());
    assert.equal(changed?.up, true);
    assert.equal(changed?.alias, "one");
    a.links.set(index, { alias: "two" });
    assert.equal(a.links.get({ index })?.alias, "two");
    a.links.set(index, { alias: "" });
    assert.equal(a.links.get({ index })?.alias, undefined);
    assert.equal(a.links.get({ index })?.group, 0);
    a.links.set(index, { group: 0x4a00_0000 });
    assert.equal(a.links.list().find((link) => link.index === index)?.group, 0x4a00_0000);
    a.links.set(index, { group: 0 });
    assert.equal(a.links.get({ index })?.group, 0);
    for (const group of [-1, 0x8000_0000, 0x4900_0001]) refused(() => a.links.set(index, { group }), "invalid");
    a.links.set(index, { up: false });
    a.links.set(index, { name: "renamed" });
    assert.equal(a.links.get({ name: "renamed" })?.index, index);
    assert.equal(a.links.get({ name: "v0" }), undefined);
    a.links.set(index, { arp: false });
    assert.notEqual((a.links.get({ index })?.flags ?? 0) & 0x80, 0);
    refused(() => a.links.set(index, { mtu: 10 }), "invalid");
    refused(() => a.links.set(index, { name: "lo" }), "already-exists");
    refused(() => a.links.set(99, { up: true }), "no-device");
  });

  contractTest(target, "links: a bridge takes ports and lets them go", ({ a }) => {
    const bridge = a.links.create({ kind: "bridge", name: "br0", ageingSeconds: 60 });
    assert.deepEqual(bridge.details, {
      kind: "bridge",
      stp: false,
      vlanFiltering: false,
      multicastSnooping: true,
      ageingSeconds: 60,
    });
    const port = a.links.create({ kind: "veth", name: "v0", masterIndex: bridge.index, peer: { name: "v1" } });
    assert.equal(port.masterIndex, bridge.index);
    a.links.set(port.index, { masterIndex: null });
    assert.equal(a.links.get({ index: port.index })?.masterIndex, undefined);
    a.links.set(port.index, { masterIndex: bridge.index });
    a.links.delete(bridge.index);
    assert.equal(a.links.get({ index: port.index })?.masterIndex, undefined);
    refused(() => a.links.set(port.index, { masterIndex: 99 }), "invalid", "no-device");
  });

  contractTest(target, "links: moving a link to another namespace takes its addresses and routes away", (fixture) => {
    const { a, b, nsB } = fixture;
    const { index } = a.links.create({ kind: "veth", name: "v0", up: true, peer: { name: "v1", up: true } });
    a.addresses.add({ linkIndex: index, address: IpAddress.parse("10.9.0.1"), prefixLength: 24 });
    a.links.set(index, { netns: nsB });
    assert.equal(a.links.get({ name: "v0" }), undefined);
    const moved = b.links.get({ name: "v0" });
    assert.equal(moved?.up, false);
    assert.deepEqual(b.addresses.list({ linkIndex: moved?.index }), []);
    assert.deepEqual(a.routes.list({ family: 4, linkIndex: index }), []);
  });

  contractTest(target, "links: delete and deleteAsync refuse what is not there, and loopback", async (fixture) => {
    const { a, b } = fixture;
    const { left } = vethPair(fixture);
    await a.links.deleteAsync(left);
    assert.equal(b.links.get({ name: "right" }), undefined);
    refused(() => a.links.delete(left), "no-device");
    await assert.rejects(a.links.deleteAsync(left), { name: "KernelError", code: "no-device" });
    refused(() => a.links.delete(1), "unsupported");
    await assert.rejects(a.links.deleteAsync(1, { signal: AbortSignal.abort(new Error("no more")) }), /no more/);
  });

  contractTest(target, "links: deleteMany removes what it can and says what it could not", async ({ a, b, nsB }) => {
    const links = [0, 1, 2, 3].map((at) =>
      a.links.create({ kind: "veth", name: `v${at}`, up: true, peer: { name: `p${at}`, netns: nsB, up: true } }),
    );
    const pair = a.links.create({ kind: "veth", name: "near", peer: { name: "far" } });
    const bridge = a.links.create({ kind: "bridge", name: "stays" });
    const [first, second, ...rest] = links;
    const [loopback, far] = [a.links.get({ name: "lo" }), a.links.get({ name: "far" })];
    assert.ok(first !== undefined && second !== undefined && loopback !== undefined && far !== undefined);
    a.links.delete(first.index);
    const failures = await a.links.deleteMany([first, second, loopback, pair, far, second, ...rest]);
    assert.deepEqual(
      [...failures].map(([index, { code }]) => [index, code]).sort(([x = 0], [y = 0]) => Number(x) - Number(y)),
      [
        [loopback.index, "unsupported"],
        [first.index, "no-device"],
      ],
    );
    assert.deepEqual(
      a.links.list().map(({ name }) => name),
      ["lo", "stays"],
    );
    assert.deepEqual(
      b.links.list().map(({ name }) => name),
      ["lo"],
    );
    assert.deepEqual([...(await a.links.deleteMany([]))], []);
    const again = await a.links.deleteMany([second, pair]);
    assert.deepEqual([...again.keys()], [second.index, pair.index]);
    assert.deepEqual([...(await a.links.deleteMany([bridge]))], [], "one alone");
    assert.deepEqual(
      [...(await a.links.deleteMany([bridge])).values()].map(({ code }) => code),
      ["no-device"],
    );
  });

  contractTest(target, "links: deleteMany does nothing when it may not or need not start", async ({ a }) => {
    const link = a.links.create({ kind: "veth", name: "v0", peer: { name: "v1" } });
    const signal = AbortSignal.abort(new Error("no more"));
    await assert.rejects(a.links.deleteMany([link, { index: 99, kind: "veth" }], { signal }), /no more/);
    const many = Array.from({ length: MAX_DELETE_MANY + 1 }, () => link);
    await assert.rejects(a.links.deleteMany(many), { name: "KernelError", code: "invalid" });
    assert.equal(a.links.get({ name: "v0" })?.index, link.index);
  });

  for (const { title, spec } of kindSamples()) {
    if (!has(spec.kind)) continue;
    contractTest(target, `links: ${title} reads back as it was made`, ({ a }) => {
      const made = a.links.create(spec);
      assert.equal(made.kind, spec.kind);
      assert.equal(made.up, spec.up ?? false);
      const details: Record<string, unknown> = { ...made.details };
      for (const [key, value] of Object.entries(spec)) {
        if (["name", "up", "alias", "mtu", "masterIndex", "mac", "netns", "kind", "peer"].includes(key)) continue;
        assert.deepEqual(details[key], value, key);
      }
      refused(() => a.links.create(spec), "already-exists");
      a.links.delete(made.index);
      assert.equal(a.links.get({ name: spec.name }), undefined);
    });
  }

  for (const kind of ["ipip", "ip6tnl"] as const) {
    if (!has(kind)) continue;
    contractTest(target, `links: a namespace has one external ${kind} tunnel`, ({ a, b }) => {
      const first = a.links.create({ kind, name: "x", external: true });
      refused(() => a.links.create({ kind, name: "y", external: true }), "already-exists");
      b.links.create({ kind, name: "y", external: true });
      a.links.delete(first.index);
      a.links.create({ kind, name: "y", external: true });
    });
  }

  if (has("macvlan")) {
    contractTest(target, "links: a macvlan hangs on its lower link and goes with it", ({ a }) => {
      const lower = a.links.create({ kind: "veth", name: "v0", up: true, peer: { name: "v1", up: true } });
      const upper = a.links.create({ kind: "macvlan", name: "mv0", parentIndex: lower.index, mode: "bridge" });
      assert.deepEqual(upper.details, { kind: "macvlan", mode: "bridge" });
      assert.equal(upper.peerIndex, lower.index);
      a.links.delete(lower.index);
      assert.equal(a.links.get({ name: "mv0" }), undefined);
      refused(() => a.links.create({ kind: "macvlan", name: "mv1", parentIndex: 99, mode: "bridge" }), "no-device");
    });
  }
}

interface KindSample {
  readonly title: string;
  readonly spec: LinkSpec;
}

function kindSamples(): readonly KindSample[] {
  const [v4, remote4] = [IpAddress.parse("10.0.0.1"), IpAddress.parse("10.0.0.2")];
  const [v6, remote6] = [IpAddress.parse("fd00::1"), IpAddress.parse("fd00::2")];
  const fou = { type: "fou", sourcePort: 5555, destinationPort: 5555, csum: false, csum6: false } as const;
  return [
    {
      title: "a vxlan over IPv4",
      spec: { kind: "vxlan", name: "x", vni: 77, local: v4, remote: remote4, port: 5555, learning: false },
    },
    {
      title: "a vxlan over IPv6",
      spec: {
        kind: "vxlan",
        name: "x",
        vni: 77,
        local: v6,
        remote: remote6,
        port: 5555,
        learning: false,
        udp6ZeroCsumRx: true,
      },
    },
    {
      title: "an external vxlan",
      spec: { kind: "vxlan", name: "x", external: true, port: 5555, learning: false, up: true },
    },
    { title: "a tun", spec: { kind: "tun", name: "x", mode: "tun", up: true } },
    { title: "a tap", spec: { kind: "tun", name: "x", mode: "tap" } },
    { title: "a tap of a user", spec: { kind: "tun", name: "x", mode: "tap", multiQueue: true, ownerUid: 1234 } },
    { title: "a dummy", spec: { kind: "dummy", name: "x", up: true } },
    {
      title: "an ipip tunnel in FOU",
      spec: {
        kind: "ipip",
        name: "x",
        local: v4,
        remote: remote4,
        ttl: 225,
        pmtuDiscovery: true,
        payload: "ipv4",
        encap: fou,
      },
    },
    { title: "an external ipip tunnel", spec: { kind: "ipip", name: "x", external: true, up: true } },
    {
      title: "an ip6tnl tunnel in FOU",
      spec: {
        kind: "ip6tnl",
        name: "x",
        local: v6,
        remote: remote6,
        ttl: 225,
        payload: "ipv6",
        encap: { ...fou, sourcePort: 0 },
      },
    },
    { title: "an external ip6tnl tunnel", spec: { kind: "ip6tnl", name: "x", external: true, up: true } },
  ];
}
