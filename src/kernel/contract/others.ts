import assert from "node:assert/strict";
import { IpAddress, MacAddress } from "#base/ip";
import { TX_CHECKSUMS } from "#kernel/ethtool";
import { type ContractTarget, contractTest, refused, vethPair } from "./target.ts";

const ip = IpAddress.parse;

/** The contract of every {@link NeighbourPort}. */
export function neighbourContract(target: ContractTarget): void {
  contractTest(target, "neighbours: permanent and proxy entries are put, listed apart, and deleted", (fixture) => {
    const { a } = fixture;
    const { left } = vethPair(fixture);
    const mac = MacAddress.parse("02:00:00:00:55:02");
    a.neighbours.replace({ linkIndex: left, address: ip("169.254.55.1"), mac });
    a.neighbours.replace({ linkIndex: left, address: ip("fe80::55:1"), mac });
    a.neighbours.replace({ linkIndex: left, address: ip("10.0.0.5"), proxy: true });
    const permanent = a.neighbours.list({ linkIndex: left }).filter(({ state }) => state === "permanent");
    assert.deepEqual(permanent.map(({ address, mac }) => `${address} ${mac}`).sort(), [
      `169.254.55.1 ${mac}`,
      `fe80::55:1 ${mac}`,
    ]);
    assert.deepEqual(
      a.neighbours.list({ proxy: true }).map(({ address }) => String(address)),
      ["10.0.0.5"],
    );
    const other = MacAddress.parse("02:00:00:00:55:03");
    a.neighbours.replace({ linkIndex: left, address: ip("169.254.55.1"), mac: other });
    assert.deepEqual(
      a.neighbours.list({ family: 4 }).map(({ mac }) => String(mac)),
      [String(other)],
    );
    a.neighbours.delete({ linkIndex: left, address: ip("169.254.55.1") });
    a.neighbours.delete({ linkIndex: left, address: ip("10.0.0.5"), proxy: true });
    assert.deepEqual(a.neighbours.list({ family: 4 }), []);
    assert.deepEqual(a.neighbours.list({ proxy: true }), []);
  });

  contractTest(target, "neighbours: refuses what is not there", (fixture) => {
    const { a } = fixture;
    const { left } = vethPair(fixture);
    refused(() => a.neighbours.delete({ linkIndex: left, address: ip("10.0.0.5") }), "not-found");
    refused(() => a.neighbours.replace({ linkIndex: left, address: ip("10.0.0.5") }), "invalid");
    const mac = MacAddress.parse("02:00:00:00:55:02");
    refused(() => a.neighbours.replace({ linkIndex: 99, address: ip("10.0.0.5"), mac }), "no-device");
  });
}

/** The contract of every {@link OffloadPort}. */
export function offloadContract(target: ContractTarget): void {
  contractTest(target, "offloads: named features are turned off, unknown ones are left out, others stay", (fixture) => {
    const { a } = fixture;
    const { left } = vethPair(fixture);
    const before = a.offloads.active(left);
    assert.ok(before.includes("tx-checksum-ip-generic"), before.join());
    assert.ok(before.includes("tx-generic-segmentation"), before.join());
    a.offloads.disable(left, ["tx-checksum-ip-generic", "no-such-feature"]);
    const after = a.offloads.active(left);
    assert.ok(!after.includes("tx-checksum-ip-generic"), after.join());
    assert.deepEqual(after, [...after].sort());
    a.offloads.disable(left, TX_CHECKSUMS);
    assert.deepEqual(
      a.offloads.active(left).filter((feature) => feature.startsWith("tx-checksum")),
      [],
    );
  });

  contractTest(target, "offloads: a link that is not there is refused", ({ a }) => {
    refused(() => a.offloads.active(99), "no-device");
    refused(() => a.offloads.disable(99, ["tx-checksum-ip-generic"]), "no-device");
  });
}

/** The contract of every {@link SysctlPort}. */
export function sysctlContract(target: ContractTarget): void {
  contractTest(target, "sysctl: values are those of one namespace, and of one link", (fixture) => {
    const { a, b } = fixture;
    vethPair(fixture);
    a.sysctl.set("net.ipv4.ip_forward", 1);
    assert.equal(a.sysctl.get("net.ipv4.ip_forward"), "1");
    assert.equal(a.sysctl.get("net.ipv4.conf.all.forwarding"), "1");
    assert.equal(b.sysctl.get("net.ipv4.ip_forward"), "0");
    a.sysctl.set("net/ipv6/conf/left/accept_dad", "0");
    assert.equal(a.sysctl.get("net.ipv6.conf.left.accept_dad"), "0");
    a.sysctl.set("net.ipv6.conf.all.forwarding", 1);
    assert.equal(a.sysctl.get("net.ipv6.conf.left.forwarding"), "1");
  });

  contractTest(
    target,
    "sysctl: refuses keys that do not exist or lead elsewhere, and values that make no sense",
    ({ a }) => {
      refused(() => a.sysctl.get("net.ipv4.no_such_thing"), "not-found");
      refused(() => a.sysctl.get("net.ipv4.conf.eth9.rp_filter"), "not-found");
      refused(() => a.sysctl.get("kernel.hostname"), "invalid");
      refused(() => a.sysctl.get("net/../kernel/hostname"), "invalid");
      refused(() => a.sysctl.set("net.ipv4.ip_forward", "yes"), "invalid");
    },
  );
}

/** The contract of every {@link NetnsIdPort}. */
export function netnsIdContract(target: ContractTarget): void {
  contractTest(target, "netnsIds: an id is given once, chosen or not", ({ a, b, nsA, nsB }) => {
    assert.equal(a.netnsIds.get(nsB), undefined);
    a.netnsIds.set(nsB, 42);
    assert.equal(a.netnsIds.get(nsB), 42);
    refused(() => a.netnsIds.set(nsB, 43), "already-exists");
    b.netnsIds.set(nsA, -1);
    assert.equal(b.netnsIds.get(nsA), 0);
  });
}

/** The contract of every {@link FouPort}. */
export function fouContract(target: ContractTarget): void {
  if (!(target.has ?? (() => true))("fou")) {
    contractTest(target, "fou: a kernel without it says so", ({ a }) => {
      assert.equal(a.fou.available(), false);
      refused(() => a.fou.list(4), "unsupported");
      refused(() => a.fou.add({ family: 4, port: 5555, ipProtocol: 4 }), "unsupported");
    });
    return;
  }
  contractTest(target, "fou: a port is opened once per family, and closed", ({ a, b }) => {
    assert.equal(a.fou.available(), true);
    a.fou.add({ family: 4, port: 5555, ipProtocol: 4 });
    a.fou.add({ family: 6, port: 5555, ipProtocol: 41 });
    assert.deepEqual(a.fou.list(4), [{ family: 4, port: 5555, ipProtocol: 4 }]);
    assert.deepEqual(a.fou.list(6), [{ family: 6, port: 5555, ipProtocol: 41 }]);
    assert.deepEqual(b.fou.list(4), []);
    refused(() => a.fou.add({ family: 4, port: 5555, ipProtocol: 4 }), "already-exists", "busy");
    a.fou.delete({ family: 4, port: 5555 });
    assert.deepEqual(a.fou.list(4), []);
    refused(() => a.fou.delete({ family: 4, port: 5555 }), "not-found", "invalid");
  });
}

/** The contract of every {@link FouPort} beside VXLAN. */
export function fouVxlanContract(target: ContractTarget): void {
  const has = target.has ?? (() => true);
  if (!has("fou") || !has("vxlan")) return;
  contractTest(target, "fou: an up VXLAN link has its UDP port, and FOU has its own", ({ a }) => {
    const vxlan = { kind: "vxlan", vni: 7, port: 5555, local: ip("10.0.0.1"), remote: ip("10.0.0.2") } as const;
    const { index } = a.links.create({ ...vxlan, name: "vx" });
    a.fou.add({ family: 4, port: 5555, ipProtocol: 4 });
    refused(() => a.links.set(index, { up: true }), "busy", "already-exists");
    a.fou.delete({ family: 4, port: 5555 });
    a.links.set(index, { up: true });
    refused(() => a.fou.add({ family: 4, port: 5555, ipProtocol: 4 }), "busy", "already-exists");
    a.fou.add({ family: 6, port: 5555, ipProtocol: 41 });
    a.links.delete(index);
    a.fou.add({ family: 4, port: 5555, ipProtocol: 4 });
  });
}

/** The contract of every {@link Kernel} for namespaces. */
export function netnsContract(target: ContractTarget): void {
  contractTest(target, "netns: names are made once, listed, opened, and forgotten", ({ kernel }) => {
    const name = `isk-${process.pid}-names`;
    using made = kernel.createNetNs(name);
    try {
      using again = kernel.openNetNs({ name });
      using byPath = kernel.openNetNs({ path: `/run/netns/${name}` });
      assert.equal(again.inode, made.inode);
      assert.equal(byPath.inode, made.inode);
      // As container runtimes spell it; where /var/run is no link, too.
      using byOldPath = kernel.openNetNs({ path: `/var/run/netns/${name}` });
      assert.deepEqual([byOldPath.inode, byOldPath.path], [made.inode, byPath.path]);
      assert.ok(kernel.listNetNs().includes(name));
      refused(() => kernel.createNetNs(name), "already-exists");
    } finally {
      kernel.deleteNetNs(name);
    }
    assert.ok(!kernel.listNetNs().includes(name));
    refused(() => kernel.openNetNs({ name }), "not-found");
    refused(() => kernel.deleteNetNs(name), "not-found");
    refused(() => kernel.createNetNs("a/b"), "invalid");
    using own = kernel.openNetNs("own");
    assert.notEqual(own.inode, made.inode);
  });

  contractTest(target, "netns: a stack outlives the handle and the name it was opened by", ({ kernel }) => {
    const name = `isk-${process.pid}-outlive`;
    const handle = kernel.createNetNs(name);
    using stack = kernel.openStack(handle);
    handle[Symbol.dispose]();
    kernel.deleteNetNs(name);
    assert.equal(stack.links.get({ name: "lo" })?.index, 1);
    stack.links.create({ kind: "bridge", name: "br0" });
    assert.equal(stack.links.list().length, 2);
  });
}
