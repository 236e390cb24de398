import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { KernelError } from "#kernel/errors";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import { vxlanDriver } from "../tunnel/index.ts";
import { lackOfClient, observeClosed, syncClient } from "./sync.ts";

/** The stack of a kernel that was started with `ipv6.disable=1`. */
function withoutIpv6(stack: NetStack): NetStack {
  const refusing = <Port extends object>(port: Port): Port =>
    new Proxy(port, {
      get: (target, name) => {
        const found = Reflect.get(target, name);
        if (typeof found !== "function") return found;
        return (...args: readonly unknown[]) => {
          if (args.some((one) => one === 6 || familyOf(one) === 6))
            throw new KernelError("unsupported", "this kernel has no IPv6");
          return Reflect.apply(found, target, args);
        };
      },
    });
  return Object.create(stack, { rules: { value: refusing(stack.rules) }, routes: { value: refusing(stack.routes) } });
}

function familyOf(spec: unknown): unknown {
  const { family, dst } = spec as { readonly family?: number; readonly dst?: Cidr };
  return family ?? dst?.family;
}

test("syncClient: a kernel without IPv6 closes the destinations of IPv4 alone, and one with IPv6 also those of a family without an address", async () => {
  const addresses = { 4: IpAddress.parse("10.64.0.7") };
  const annotation = ["203.0.113.0/24", "2001:db8:1::/48"].map((text) => Cidr.parse(text));
  const unused = () => assert.fail("no packet filter and no connection tracking is opened");
  const ports = { openFilter: unused, openConntrack: unused };
  const options = { driver: vxlanDriver, port: 5555, inCluster: [] };
  for (const [hasIpv6, expected] of [
    [true, "203.0.113.0/24,2001:db8:1::/48"],
    [false, "203.0.113.0/24"],
  ] as const) {
    const kernel = new FakeKernel();
    using netns = kernel.createNetNs("a");
    using real = kernel.openStack(netns);
    real.links.create({ kind: "dummy", name: "eth0", up: true });
    const stack = hasIpv6 ? real : withoutIpv6(real);
    const pod = { addresses, ifname: "eth0", mtuBytes: 1500, closed: { annotation, selector: [] } };
    await syncClient(stack, pod, [], { ...options, ...ports });
    assert.equal(String(observeClosed(real, options).annotation), expected);
    assert.equal(lackOfClient(stack, pod, [], options), undefined);
    await syncClient(stack, { ...pod, closed: { annotation: [], selector: [] } }, [], { ...options, ...ports });
    assert.equal(String(observeClosed(real, options).annotation), "");
  }
});
