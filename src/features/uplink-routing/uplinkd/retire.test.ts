import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { Health } from "#base/health";
import { Cidr, IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { hasError } from "#base/uplink-model";
import { parseSettings } from "#features/uplink-config";
import { FakeKernel } from "#kernel/fake";
import { FakeNft } from "#kernel/nft";
import { Uplinkd } from "./index.ts";

const NAMES = ["eth0", "eth1", "eth2"] as const;
const addressOf = (name: string): IpAddress => IpAddress.parse(`192.0.${NAMES.indexOf(name as "eth0")}.10`);
/** What another process may need to read the settings, and to end its tunnels, milliseconds. */
const RETIRE_MS = 1000;

function settingsOf(names: readonly string[]) {
  const uplinks = names.map((name) => ({ name, interface: name }));
  return parseSettings(JSON.stringify({ version: 1, uplinks }), "settings").settings;
}

/** An uplinkd over three uplinks, whose settings a test changes. */
function setUp() {
  const kernel = new FakeKernel();
  const stack = kernel.openStack(kernel.createNetNs("node"));
  stack.links.set(1, { up: true });
  for (const name of NAMES) {
    const { index } = stack.links.create({ kind: "bridge", name, up: true });
    stack.addresses.add({ linkIndex: index, address: addressOf(name), prefixLength: 24 });
  }
  stack.routes.add({ dst: Cidr.parse("0.0.0.0/0"), gateway: IpAddress.parse("192.0.0.1") });
  const clock = new FakeClock();
  const changed = new Set<() => void>();
  const config = {
    current: { settings: settingsOf(NAMES), ready: true },
    onChange: (listener: () => void) => {
      changed.add(listener);
      return { [Symbol.dispose]: () => void changed.delete(listener) };
    },
    reload: () => undefined,
    run: async () => undefined,
  };
  const uplinkd = new Uplinkd({
    config,
    stack,
    nft: new FakeNft(),
    follow: () => ({ [Symbol.asyncDispose]: async () => undefined }),
    health: new Health().part("uplinkd"),
    log: nullLogger,
    clock,
    prober: { probe: async () => ({ kind: "skipped", reason: "none is wanted" }) },
    resolverOf: () => ({ dnsServers: [], searchDomains: [] }),
  });
  return {
    clock,
    uplinkd,
    set: (names: readonly string[]): void => {
      config.current = { settings: settingsOf(names), ready: true };
      for (const listener of changed) listener();
    },
    isRuled: (name: string): boolean =>
      stack.rules.list(4).some(({ from }) => from?.equals(Cidr.host(addressOf(name))) === true),
  };
}

/** What happens to two uplinks that settings no longer have: from the end of their tunnels to that of their rules, in milliseconds. */
async function waits(meanwhile: (at: number, bed: ReturnType<typeof setUp>) => void): Promise<readonly number[]> {
  const bed = setUp();
  const { clock, uplinkd, set, isRuled } = bed;
  const stop = new AbortController();
  const running = uplinkd.run({ signal: stop.signal });
  await clock.advance(100);
  assert.ok(NAMES.every((name) => isRuled(name)));
  const goneAt = new Map<string, number>();
  const unruledAt = new Map<string, number>();
  set(["eth0", "eth1"]);
  for (let at = 0; at < 400; at += 1) {
    meanwhile(at, bed);
    await clock.advance(10);
    for (const name of NAMES) {
      const now = clock.monotonic();
      if (!uplinkd.uplinks.some((one) => one.name === name) && !goneAt.has(name)) goneAt.set(name, now);
      if (!isRuled(name) && !unruledAt.has(name)) unruledAt.set(name, now);
    }
  }
  assert.ok(isRuled("eth0"));
  stop.abort();
  await running;
  return [...goneAt].map(([name, at]) => (unruledAt.get(name) ?? Number.NaN) - at);
}

test("Uplinkd: the rules of an uplink stay for a second after its tunnels have ended, also if settings change again within it", async () => {
  const found = await waits((at, { set }) => void (at === 50 && set(["eth0"])));
  assert.equal(found.length, 2);
  assert.ok(
    found.every((ms) => ms >= RETIRE_MS),
    found.join(),
  );
});

test("Uplinkd: the rules of an uplink stay for a second after its tunnels have ended, also if another one fails in that moment", async () => {
  const found = await waits((at, { uplinkd }) => {
    const how = { clientKind: "host", waitedMs: 2000 } as const;
    if (at === 0) for (const host of ["a", "b", "c"]) uplinkd.evidence.dialFailed("eth0", host, "timeout", "", how);
    if (at === 1) assert.ok(hasError(uplinkd.uplinks[0]?.status ?? assert.fail()));
  });
  assert.equal(found.length, 1);
  assert.ok(
    found.every((ms) => ms >= RETIRE_MS),
    found.join(),
  );
});
