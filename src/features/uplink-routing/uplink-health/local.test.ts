import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { parseSettings } from "#features/uplink-config";
import { FakeKernel } from "#kernel/fake";
import { makeSnapshot, readKernel } from "../state/index.ts";
import { localFault } from "./index.ts";

const ip = IpAddress.parse;

test("localFault: link, then address, then a default route of a family that there is an address of, in the uplink's own table", () => {
  const kernel = new FakeKernel();
  const stack = kernel.openStack(kernel.createNetNs("node"));
  const { settings } = parseSettings(
    JSON.stringify({ version: 1, uplinks: [{ name: "lan", interface: "eth0" }] }),
    "t",
  );
  const fault = (table?: number): string | undefined => {
    const listing = readKernel(stack);
    const tables = table === undefined ? new Map<string, number>() : new Map([["lan", table]]);
    const [lan] = makeSnapshot({ settings, ready: true, listing, tables }).uplinks;
    assert.ok(lan !== undefined);
    return localFault(lan, listing);
  };
  assert.equal(fault(), "link down");
  const { index } = stack.links.create({ kind: "bridge", name: "eth0" });
  assert.equal(fault(), "link down");
  stack.links.set(index, { up: true });
  assert.equal(fault(), "no usable address");
  stack.addresses.add({ linkIndex: index, address: ip("169.254.3.3"), prefixLength: 16 });
  assert.equal(fault(), "no usable address");
  stack.addresses.add({ linkIndex: index, address: ip("192.0.2.10"), prefixLength: 24 });
  assert.equal(fault(), "no default route");
  stack.routes.add({ dst: Cidr.parse("::/0"), linkIndex: index });
  assert.equal(fault(), "no default route", "one of IPv6 is of no use for an IPv4 address");
  stack.routes.add({ dst: Cidr.parse("0.0.0.0/0"), type: "unreachable", table: 502 });
  stack.routes.add({ dst: Cidr.parse("0.0.0.0/0"), gateway: ip("192.0.2.1") });
  assert.equal(fault(), undefined);
  assert.equal(fault(502), "no default route");
  stack.routes.add({ dst: Cidr.parse("0.0.0.0/0"), linkIndex: index, table: 502, metric: 5 });
  assert.equal(fault(502), undefined, "a point-to-point link has no gateway");
});
