import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { Health } from "#base/health";
import { Cidr, IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import type { Settings } from "#base/uplink-model";
import { parseSettings } from "#features/uplink-config";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import { FakeNft } from "#kernel/nft";
import { installTransparent } from "../guard/index.ts";
import { describeFlush, Uplinkd } from "./index.ts";

const ip = IpAddress.parse;

/** With everything that wants objects of both families, wherever the kernel has both. */
const SETTINGS = {
  version: 1,
  uplinks: [{ name: "lan", interface: "eth0" }],
  routing: {
    localRulePriority: 12_000,
    podCIDRs: ["10.42.0.0/16", "fd00:42::/56"],
    serviceCIDRs: ["10.43.0.0/16", "fd00:43::/108"],
  },
  transparent: { enabled: true },
};

/** A kernel that was started with `ipv6.disable=1`: it has no family of that number, for rules or routes, and says so to all requests. */
function withoutIpv6(): { readonly stack: NetStack; readonly nft: FakeNft } {
  const kernel = new FakeKernel();
  const stack = kernel.openStack(kernel.createNetNs("node"));
  stack.links.set(1, { up: true });
  for (const { address, linkIndex, prefixLength } of stack.addresses.list({ family: 6 }))
    stack.addresses.delete({ address, linkIndex, prefixLength });
  const { index } = stack.links.create({ kind: "bridge", name: "eth0", up: true });
  stack.addresses.add({ linkIndex: index, address: ip("192.0.2.10"), prefixLength: 24 });
  stack.routes.add({ dst: Cidr.parse("0.0.0.0/0"), gateway: ip("192.0.2.1") });
  for (const operation of ["rules.list", "rules.add", "rules.delete"])
    kernel.fail(operation, "unsupported", { times: Number.POSITIVE_INFINITY, about: "IPv6" });
  for (const operation of ["routes.add", "routes.replace", "routes.delete"])
    kernel.fail(operation, "unsupported", { times: Number.POSITIVE_INFINITY, about: ":" });
  return { stack, nft: new FakeNft() };
}

function runOn({ stack, nft }: ReturnType<typeof withoutIpv6>, settings: Settings, readOnly = false) {
  const clock = new FakeClock();
  const health = new Health();
  const dirty: (() => void)[] = [];
  const uplinkd = new Uplinkd(
    {
      config: {
        current: { settings, ready: true },
        onChange: () => ({ [Symbol.dispose]: () => undefined }),
        reload: () => undefined,
        run: async () => undefined,
      },
      stack,
      nft,
      follow: (changed) => {
        dirty.push(changed);
        return { [Symbol.asyncDispose]: async () => undefined };
      },
      health: health.part("uplinkd"),
      log: nullLogger,
      clock,
      prober: { probe: async () => ({ kind: "skipped", reason: "none is wanted" }) },
      resolverOf: () => ({ dnsServers: [], searchDomains: [] }),
    },
    { readOnly },
  );
  const controller = new AbortController();
  const running = uplinkd.run({ signal: controller.signal });
  return {
    uplinkd,
    pass: async (): Promise<string> => {
      for (const mark of dirty) mark();
      await clock.advance(1000);
      const [part] = health.parts;
      return `${part?.status} ${part?.reason}`;
    },
    stop: async (): Promise<void> => {
      controller.abort();
      await running;
    },
  };
}

test("Uplinkd: a kernel without IPv6 gets tables and rules of IPv4, a second pass changes nothing, and a flush removes all", async () => {
  const node = withoutIpv6();
  const { stack, nft } = node;
  const { settings } = parseSettings(JSON.stringify(SETTINGS), "test");
  const before = { rules: stack.rules.list(4), routes: stack.routes.list({ family: 4 }) };
  const { uplinkd, pass, stop } = runOn(node, settings);
  assert.match(await pass(), /^ok /);
  assert.equal(await pass(), "ok 0 changes");
  assert.ok(uplinkd.snapshots.current.ready);
  assert.deepEqual(
    uplinkd.uplinks.map(({ name, table, status }) => [name, table, status.lastError]),
    [["lan", 502, ""]],
  );
  assert.deepEqual(
    stack.rules.list(4).map(({ priority, table }) => [priority, table]),
    [
      [12_000, 255],
      [13_000, 254],
      [13_000, 254],
      [15_000, 502],
      [32_766, 254],
      [32_767, 253],
    ],
  );
  assert.deepEqual(
    stack.routes
      .list({ family: 4, table: 502 })
      .map(({ type, dst }) => `${type} ${dst}`)
      .sort(),
    ["unicast 0.0.0.0/0", "unicast 192.0.2.0/24", "unreachable 0.0.0.0/0"],
  );
  assert.deepEqual(stack.routes.list({ family: 6, table: 502 }), []);
  installTransparent(stack, nft, settings, { log: nullLogger });
  assert.match(describeFlush({ stack, nft }, settings).join("\n"), /transparent mode/);
  assert.ok(uplinkd.flush() > 0);
  assert.deepEqual({ rules: stack.rules.list(4), routes: stack.routes.list({ family: 4 }) }, before);
  assert.equal(uplinkd.flush(), 0);
  assert.deepEqual(describeFlush({ stack, nft }, settings), []);
  await stop();
});

test("Uplinkd: the process that only reads is ready on a kernel without IPv6 too", async () => {
  const { settings } = parseSettings(JSON.stringify(SETTINGS), "test");
  const { uplinkd, pass, stop } = runOn(withoutIpv6(), settings, true);
  assert.equal(await pass(), "ok 0 changes");
  assert.ok(uplinkd.snapshots.current.ready);
  await stop();
});
