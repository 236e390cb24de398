import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Cidr, IpAddress } from "#base/ip";
import { FakeKernel } from "#kernel/fake";
import type { RuleSpec } from "#kernel/rule";
import { agrees, askKernel, traceWay, viewWay } from "./trace.ts";

const ip = IpAddress.parse;
const cidr = Cidr.parse;

/** A namespace of a fake kernel with one interface, eth0. */
function space() {
  const kernel = new FakeKernel();
  const stack = kernel.openStack(kernel.createAnonymousNetNs());
  stack.links.set(1, { up: true });
  const link = stack.links.create({ kind: "bridge", name: "eth0", up: true });
  stack.addresses.add({ linkIndex: link.index, address: ip("10.64.0.7") });
  return { stack, eth0: link.index };
}

const seen = (stack: ReturnType<typeof space>["stack"], to: string, more: { mark?: number; source?: string } = {}) => {
  const source = more.source === undefined ? undefined : ip(more.source);
  const packet = { destination: ip(to), mark: more.mark ?? 0, source };
  return traceWay(viewWay(stack, 4), packet).map(({ rule, route, result }) =>
    [rule.priority, route?.dst ?? rule.action, result].join(" "),
  );
};

test("traceWay: rules in their order, the longest prefix, the lowest metric, throw and refusals", () => {
  const { stack, eth0 } = space();
  stack.routes.add({ dst: cidr("0.0.0.0/0"), linkIndex: eth0 });
  assert.deepEqual(seen(stack, "203.0.113.9"), ["0 lookup next", "32766 0.0.0.0/0 leaves"]);
  stack.rules.add({ family: 4, priority: 1900, table: 117 });
  stack.rules.add({ family: 4, priority: 2000, to: cidr("10.0.0.0/8"), table: 254 });
  stack.rules.add({ family: 4, priority: 2100, table: 118 });
  stack.routes.add({ dst: cidr("0.0.0.0/0"), linkIndex: eth0, table: 118, metric: 1024 });
  stack.routes.add({ dst: cidr("0.0.0.0/0"), type: "unreachable", table: 118, metric: 1_000_000 });
  stack.routes.add({ dst: cidr("203.0.113.9/32"), type: "throw", table: 118, metric: 1 });
  assert.deepEqual(seen(stack, "10.9.9.9"), ["0 lookup next", "1900 lookup next", "2000 0.0.0.0/0 leaves"]);
  assert.deepEqual(seen(stack, "198.51.100.1").at(-1), "2100 0.0.0.0/0 leaves");
  assert.deepEqual(seen(stack, "203.0.113.9").slice(-2), ["2100 203.0.113.9/32 next", "32766 0.0.0.0/0 leaves"]);
  stack.routes.delete({ dst: cidr("0.0.0.0/0"), table: 118, metric: 1024 });
  assert.deepEqual(seen(stack, "198.51.100.1").at(-1), "2100 0.0.0.0/0 refused");
});

test("traceWay: marks, masks, sources, jumps, inverted rules, suppressed prefixes and rules that refuse", () => {
  const { stack, eth0 } = space();
  stack.routes.add({ dst: cidr("0.0.0.0/0"), linkIndex: eth0 });
  const without = seen(stack, "198.51.100.1");
  const withRule = (rule: Omit<RuleSpec, "family" | "priority">, more = {}): string[] => {
    const spec = { family: 4, priority: 700, ...rule } as const;
    stack.rules.add(spec);
    try {
      return seen(stack, "198.51.100.1", more);
    } finally {
      stack.rules.delete(spec);
    }
  };
  const refuses = ["0 lookup next", "700 blackhole refused"];
  const action = "blackhole";
  assert.deepEqual(withRule({ action }), refuses);
  assert.deepEqual(withRule({ action, fwmark: 5 }), without);
  assert.deepEqual(withRule({ action, fwmark: 5 }, { mark: 5 }), refuses);
  assert.deepEqual(withRule({ action, fwmark: 5, fwmask: 0xf }, { mark: 0x25 }), refuses);
  assert.deepEqual(withRule({ action, from: cidr("10.64.0.7/32") }), without);
  assert.deepEqual(withRule({ action, from: cidr("10.64.0.7/32") }, { source: "10.64.0.7" }), refuses);
  assert.deepEqual(withRule({ action, iif: "lo" }), refuses);
  assert.deepEqual(withRule({ action, iif: "eth0" }), without);
  assert.deepEqual(withRule({ action, invert: true, to: cidr("10.0.0.0/8") }), refuses);
  assert.deepEqual(withRule({ action: "goto", goto: 32_767 }), ["0 lookup next", "700 goto jump", "32767 lookup next"]);
  assert.deepEqual(withRule({ table: 254, suppressPrefixLength: 0 })[1], "700 0.0.0.0/0 next");
});

test("traceWay: of any rules and routes it names the route that a look-up gives", () => {
  const prefix = fc
    .tuple(fc.constantFrom("203.0.113.9", "203.0.112.1", "10.9.9.9"), fc.constantFrom(0, 8, 24, 32))
    .map(([base, length]) => Cidr.of(ip(base), length));
  const route = fc.record({
    dst: prefix,
    table: fc.constantFrom(117, 118, 254),
    metric: fc.integer({ min: 1, max: 3 }),
    type: fc.constantFrom("unicast", "throw", "unreachable"),
  });
  const rule = fc.record({
    priority: fc.integer({ min: 1000, max: 1005 }),
    table: fc.constantFrom(117, 118, 254),
    to: fc.option(prefix, { nil: undefined }),
    fwmark: fc.option(fc.constantFrom(5, 6), { nil: undefined }),
  });
  fc.assert(
    fc.property(fc.array(route), fc.array(rule), fc.constantFrom(0, 5), (routes, rules, mark) => {
      const { stack, eth0 } = space();
      for (const { type, ...one } of routes)
        stack.routes.replace({ ...one, type, ...(type === "unicast" ? { linkIndex: eth0 } : {}) });
      for (const one of new Map(rules.map((each) => [JSON.stringify(each), each])).values())
        stack.rules.add({ family: 4, ...one });
      const packet = { destination: ip("203.0.113.9"), mark };
      assert.ok(agrees(traceWay(viewWay(stack, 4), packet), askKernel(stack, packet)));
    }),
  );
});
