import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { openKernel } from "./index.ts";

const kernel = openKernel();
const NAME = `isk-oracle-${process.pid}`;

function ip(...words: readonly string[]): string {
  return execFileSync("ip", ["-n", NAME, ...words], { encoding: "utf8" }).trim();
}

test("ip(8) reads the objects of the ports, and the ports read those of ip(8)", () => {
  using ns = kernel.createNetNs(NAME);
  try {
    using stack = kernel.openStack(ns);
    const link = stack.links.create({ kind: "bridge", name: "br0", up: true, alias: "COIL:default:1:eth0" });
    stack.addresses.add({ linkIndex: link.index, address: IpAddress.parse("10.0.0.1"), prefixLength: 24 });
    stack.addresses.add({ linkIndex: link.index, address: IpAddress.parse("fd00::1"), noDad: true });
    stack.routes.add({
      dst: Cidr.parse("10.1.0.0/27"),
      gateway: IpAddress.parse("10.0.0.9"),
      table: 119,
      protocol: 30,
    });
    stack.routes.add({ dst: Cidr.parse("10.2.0.1/32"), linkIndex: link.index, table: 116, protocol: 30 });
    stack.rules.add({ family: 4, priority: 2000, table: 116 });
    stack.rules.add({ family: 6, priority: 1000, table: 1005, fwmark: 5 });
    assert.match(ip("link", "show", "br0"), /alias COIL:default:1:eth0/);
    assert.match(ip("address", "show", "br0"), /inet 10\.0\.0\.1\/24 scope global br0/);
    assert.match(ip("address", "show", "br0"), /inet6 fd00::1\/128 scope global nodad/);
    assert.equal(ip("route", "show", "table", "119"), "10.1.0.0/27 via 10.0.0.9 dev br0 proto 30");
    assert.equal(ip("route", "show", "table", "116"), "10.2.0.1 dev br0 proto 30 scope link");
    assert.match(ip("rule"), /^2000:\tfrom all lookup 116$/m);
    assert.match(ip("-6", "rule"), /^1000:\tfrom all fwmark 0x5 lookup 1005$/m);

    ip(
      "route",
      "add",
      "192.0.2.0/24",
      "via",
      "10.0.0.7",
      "table",
      "4000",
      "proto",
      "static",
      "metric",
      "9",
      "mtu",
      "1280",
    );
    assert.deepEqual(stack.routes.list({ family: 4, table: 4000 }), [
      {
        family: 4,
        dst: Cidr.parse("192.0.2.0/24"),
        table: 4000,
        protocol: 4,
        scope: "global",
        type: "unicast",
        linkIndex: link.index,
        gateway: IpAddress.parse("10.0.0.7"),
        metric: 9,
        mtu: 1280,
      },
    ]);
    ip("rule", "add", "priority", "700", "not", "from", "10.0.0.0/8", "iif", "br0", "blackhole");
    assert.deepEqual(
      stack.rules.list(4).find(({ priority }) => priority === 700),
      {
        family: 4,
        priority: 700,
        table: 0,
        action: "blackhole",
        from: Cidr.parse("10.0.0.0/8"),
        iif: "br0",
        invert: true,
        ...protocolOf(stack.rules.list(4).find(({ priority }) => priority === 700)?.protocol),
      },
    );
  } finally {
    kernel.deleteNetNs(NAME);
  }
});

/** iproute2 marks its rules as boot (3). */
function protocolOf(protocol: number | undefined): { protocol?: number } {
  return protocol === undefined ? {} : { protocol };
}

test("a list of 5,000 routes arrives whole, filtered or not", () => {
  using ns = kernel.createNetNs(NAME);
  try {
    using stack = kernel.openStack(ns);
    const link = stack.links.create({ kind: "bridge", name: "br0", up: true });
    for (let at = 0; at < 5000; at += 1) {
      const dst = Cidr.host(IpAddress.parse("10.1.0.0").plus(at));
      stack.routes.add({ dst, linkIndex: link.index, table: at % 2 === 0 ? 116 : 117, protocol: 30 });
    }
    assert.equal(stack.routes.list({ family: 4, protocol: 30 }).length, 5000);
    const even = stack.routes.list({ family: 4, table: 116 });
    assert.equal(new Set(even.map(({ dst }) => String(dst))).size, 2500);
  } finally {
    kernel.deleteNetNs(NAME);
  }
});
