import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { parseSettings } from "#features/uplink-config";
import { FakeKernel } from "#kernel/fake";
import { makeSnapshot, readKernel } from "../state/index.ts";
import { warningsOf } from "./warnings.ts";

function setUp() {
  const kernel = new FakeKernel();
  const stack = kernel.openStack(kernel.createNetNs("node"));
  const uplinks = ["eth0", "eth0.5"].map((name, at) => {
    const { index } = stack.links.create({ kind: "bridge", name, up: true });
    stack.addresses.add({ linkIndex: index, address: IpAddress.parse(`192.0.${at}.10`), prefixLength: 24 });
    return { name: `up${at}`, interface: name };
  });
  const { settings } = parseSettings(
    JSON.stringify({ version: 1, uplinks: [...uplinks, { name: "gone", interface: "usb0" }] }),
    "t",
  );
  const warnings = (): readonly string[] => {
    const listing = readKernel(stack);
    return warningsOf(stack.sysctl, makeSnapshot({ settings, ready: true, listing }).uplinks, listing);
  };
  return { stack, warnings };
}

test("warningsOf: strict rp_filter without a rule is reported, loose and absent ones are not", () => {
  const { stack, warnings } = setUp();
  assert.deepEqual(warnings(), []);
  stack.sysctl.set("net/ipv4/conf/all/rp_filter", 1);
  assert.equal(warnings().length, 2);
  stack.rules.add({ family: 4, priority: 15_000, from: Cidr.parse("192.0.0.10/32"), table: 502 });
  assert.equal(warnings().length, 1);
  assert.match(warnings()[0] ?? "", /^uplink up1: eth0\.5 has strict rp_filter/);
  stack.sysctl.set("net/ipv4/conf/eth0.5/rp_filter", 2);
  assert.deepEqual(warnings(), []);
});

test("warningsOf: an address on two uplinks is reported, with the uplink that keeps it", () => {
  const { stack, warnings } = setUp();
  const linkIndex = stack.links.get({ name: "eth0.5" })?.index ?? 0;
  stack.addresses.add({ linkIndex, address: IpAddress.parse("192.0.0.10"), prefixLength: 24 });
  assert.deepEqual(warnings(), [
    "uplink up1: its address 192.0.0.10 is also the address of uplink up0, which keeps it; use different addresses",
  ]);
});
