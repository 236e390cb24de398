import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import { applyHost, planHost } from "./host.ts";

const OPTIONS = { tableId: 116, rulePriority: 2000 };
const planned = (host: NetStack): string[] =>
  planHost(host, OPTIONS).map((step) => (step.kind === "sysctl" ? step.key : `rule IPv${step.family}`));
const FORWARDING = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"];

for (const { name, before, want } of [
  { name: "a new node", before: () => undefined, want: [...FORWARDING, "rule IPv4", "rule IPv6"] },
  {
    name: "one that forwards IPv4",
    before: (host: NetStack) => host.sysctl.set("net/ipv4/ip_forward", "1"),
    want: ["net/ipv6/conf/all/forwarding", "rule IPv4", "rule IPv6"],
  },
  {
    name: "one with the rule for IPv6",
    before: (host: NetStack) => host.rules.add({ family: 6, priority: 2000, table: 116 }),
    want: [...FORWARDING, "rule IPv4"],
  },
  {
    name: "one whose rule of that priority is for another table",
    before: (host: NetStack) => host.rules.add({ family: 4, priority: 2000, table: 7 }),
    want: [...FORWARDING, "rule IPv4", "rule IPv6"],
  },
  {
    name: "one that has everything",
    before: (host: NetStack) => applyHost(host, planHost(host, OPTIONS)),
    want: [],
  },
]) {
  test(`planHost: ${name}`, () => {
    const kernel = new FakeKernel();
    using own = kernel.openNetNs("own");
    using host = kernel.openStack(own);
    before(host);
    assert.deepEqual(planned(host), want);
  });
}
