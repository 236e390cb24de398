import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { Cidr, IpAddress, MacAddress } from "#base/ip";
import { loadModules } from "#kernel/modules";
import { type NetNs, type NetStack, openKernel } from "#kernel/net";
import { openIcmpSocket, whenReadable } from "#kernel/socket";

await loadModules(["fou", "fou6"]);
const kernel = openKernel();
const ip = IpAddress.parse;

interface Host {
  readonly name: string;
  readonly ns: NetNs;
  readonly stack: NetStack;
  readonly eth0: number;
}

/** Two namespaces on one wire, `fd00::1` and 10.0.0.1 against `fd00::2` and 10.0.0.2. */
async function withHosts(work: (client: Host, router: Host) => Promise<void>): Promise<void> {
  const names = [`isk-vm-${process.pid}-a`, `isk-vm-${process.pid}-b`] as const;
  using nsA = kernel.createNetNs(names[0]);
  using nsB = kernel.createNetNs(names[1]);
  try {
    using a = kernel.openStack(nsA);
    using b = kernel.openStack(nsB);
    const left = a.links.create({ kind: "veth", name: "eth0", up: true, peer: { name: "eth0", netns: nsB, up: true } });
    const right = b.links.get({ name: "eth0" });
    assert.ok(right !== undefined);
    for (const [stack, index, last] of [
      [a, left.index, 1],
      [b, right.index, 2],
    ] as const) {
      stack.links.set(1, { up: true });
      stack.addresses.add({ linkIndex: index, address: ip(`10.0.0.${last}`), prefixLength: 24 });
      stack.addresses.add({ linkIndex: index, address: ip(`fd00::${last}`), prefixLength: 64, noDad: true });
      stack.sysctl.set("net.ipv4.conf.all.rp_filter", 0);
      stack.sysctl.set("net.ipv4.conf.default.rp_filter", 0);
    }
    await work(
      { name: names[0], ns: nsA, stack: a, eth0: left.index },
      { name: names[1], ns: nsB, stack: b, eth0: right.index },
    );
  } finally {
    for (const name of names) kernel.deleteNetNs(name);
  }
}

async function ping(from: Host, to: IpAddress, source: IpAddress): Promise<boolean> {
  using socket = openIcmpSocket(to.family, { netns: from.ns, source });
  socket.send(to, 1);
  await whenReadable([socket], { atMostMs: 10_000, clock: systemClock });
  return socket.receive().some((reply) => reply.from.equals(to));
}

function show(host: Host, link: string): string {
  return execFileSync("ip", ["-n", host.name, "-d", "link", "show", link], { encoding: "utf8" });
}

const CASES = [
  { family: 4, kind: "ipip", ipProtocol: 4, inner: ["192.0.2.1", "192.0.2.2"], outer: ["10.0.0.1", "10.0.0.2"] },
  { family: 6, kind: "ip6tnl", ipProtocol: 41, inner: ["fd77::1", "fd77::2"], outer: ["fd00::1", "fd00::2"] },
] as const;

for (const { family, kind, ipProtocol, inner, outer } of CASES) {
  test(`${kind} in FOU: packets reach the other end and come back through a flow-based device`, async () => {
    await withHosts(async (client, router) => {
      const ends = [
        { host: client, own: 0, far: 1 },
        { host: router, own: 1, far: 0 },
      ] as const;
      for (const { host, own, far } of ends) {
        host.stack.fou.add({ family, port: 5555, ipProtocol });
        host.stack.links.create({ kind, name: "receive", external: true, up: true });
        const tunnel = host.stack.links.create({
          kind,
          name: "tunnel",
          local: ip(outer[own]),
          remote: ip(outer[far]),
          ttl: 225,
          encap: { type: "fou", sourcePort: own === 0 ? 5555 : 0, destinationPort: 5555 },
          up: true,
        });
        host.stack.addresses.add({ linkIndex: 1, address: ip(inner[own]), noDad: true });
        host.stack.routes.add({
          dst: Cidr.host(ip(inner[far])),
          linkIndex: tunnel.index,
          src: ip(inner[own]),
          protocol: 30,
        });
      }
      assert.equal(await ping(client, ip(inner[1]), ip(inner[0])), true);
      assert.match(
        show(client, "tunnel"),
        new RegExp(`remote ${outer[1]} local ${outer[0]} .*encap fou encap-sport 5555 encap-dport 5555`, "s"),
      );
      assert.match(show(router, "tunnel"), /encap fou encap-sport auto encap-dport 5555/);
      assert.match(show(client, "receive"), /external/);
      const fou = execFileSync("ip", ["-n", client.name, ...(family === 6 ? ["-6"] : []), "fou", "show"], {
        encoding: "utf8",
      });
      assert.match(fou, new RegExp(`port 5555 ipproto ${ipProtocol}`));
    });
  });
}

test("vxlan with encap routes: one external device on the router serves a client, in both families", async () => {
  await withHosts(async (client, router) => {
    for (const { family, inner, outer } of CASES) {
      const id = family === 4 ? 77 : 78;
      const port = family === 4 ? 5555 : 5556;
      const gateway = family === 4 ? ip("169.254.55.1") : ip("fe80::55:2");
      const back = family === 4 ? ip("169.254.55.2") : ip("fe80::55:1");
      const macs = { client: "02:00:00:00:55:01", router: "02:00:00:00:55:02" } as const;
      const near = client.stack.links.create({
        kind: "vxlan",
        name: `nat${family}`,
        mac: MacAddress.parse(macs.client),
        vni: id,
        local: ip(outer[0]),
        remote: ip(outer[1]),
        port,
        learning: false,
        udp6ZeroCsumRx: true,
      });
      client.stack.links.set(near.index, { arp: false, up: true });
      client.stack.neighbours.replace({ linkIndex: near.index, address: gateway, mac: MacAddress.parse(macs.router) });
      client.stack.addresses.add({ linkIndex: 1, address: ip(inner[0]), noDad: true });
      client.stack.routes.add({
        dst: Cidr.host(ip(inner[1])),
        gateway,
        linkIndex: near.index,
        onlink: true,
        src: ip(inner[0]),
      });
      const far = router.stack.links.create({
        kind: "vxlan",
        name: `all${family}`,
        mac: MacAddress.parse(macs.router),
        external: true,
        port,
        learning: false,
        udp6ZeroCsumRx: true,
      });
      router.stack.links.set(far.index, { arp: false, up: true });
      router.stack.neighbours.replace({ linkIndex: far.index, address: back, mac: MacAddress.parse(macs.client) });
      router.stack.addresses.add({ linkIndex: 1, address: ip(inner[1]), noDad: true });
      router.stack.routes.add({
        dst: Cidr.host(ip(inner[0])),
        gateway: back,
        linkIndex: far.index,
        onlink: true,
        src: ip(inner[1]),
        encap: { type: family === 4 ? "ip" : "ip6", id: BigInt(id), dst: ip(outer[0]) },
      });
      assert.equal(await ping(client, ip(inner[1]), ip(inner[0])), true, `IPv${family}`);
      assert.match(show(router, `all${family}`), /vxlan external/);
    }
  });
});
