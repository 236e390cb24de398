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
/** The time that another process may need to read the settings and to end its tunnels, in milliseconds. */
const RETIRE_MS = 1000;

function settingsOf(names: readonly string[]) {
  const uplinks = names.map((name) => ({ name, interface: name }));
  return parseSettings(JSON.stringify({ version: 1, uplinks }), "settings").settings;
}

/** An uplinkd on a host with three links, whose settings a test changes. */
function setUp(first: readonly string[]) {
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
    current: { settings: settingsOf(first), ready: true },
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

/** Changes the settings and what else may happen, step by step of 10 ms. No uplink may be offered without its rule, at any moment. */
async function after(
  first: readonly string[],
  meanwhile: (at: number, bed: ReturnType<typeof setUp>) => void,
): Promise<{
  /** From the end of the tunnels of an uplink to that of its rules, in milliseconds. */
  readonly waitedMs: readonly number[];
  readonly isRuled: (name: string) => boolean;
  readonly usable: readonly string[];
}> {
  const bed = setUp(first);
  const { clock, uplinkd, isRuled } = bed;
  const usable = (): string[] =>
    uplinkd.uplinks.filter(({ addresses }) => addresses.some((own) => own.isUsable)).map(({ name }) => name);
  const goneAt = new Map<string, number>();
  const waitedMs: number[] = [];
  const look = (): void => {
    const now = clock.monotonic();
    for (const name of usable()) assert.ok(isRuled(name), `${now}: ${name} is offered, and has no rule`);
    for (const name of NAMES) {
      if (usable().includes(name)) goneAt.delete(name);
      else if (!goneAt.has(name)) goneAt.set(name, now);
    }
  };
  const stop = new AbortController();
  const running = uplinkd.run({ signal: stop.signal });
  using _changes = uplinkd.snapshots.onChange(look);
  await clock.advance(100);
  assert.deepEqual(usable(), first);
  const had = new Set(first);
  for (let at = 0; at < 400; at += 1) {
    meanwhile(at, bed);
    await clock.advance(10);
    look();
    for (const name of [...had].filter((one) => !isRuled(one))) {
      waitedMs.push(clock.monotonic() - (goneAt.get(name) ?? Number.NaN));
      had.delete(name);
    }
  }
  stop.abort();
  await running;
  return { waitedMs, isRuled, usable: usable() };
}

/** Three destinations do not answer over an uplink: it has failed, and a snapshot is published. */
function fail({ evidence }: Uplinkd): void {
  const how = { clientKind: "host", waitedMs: 2000 } as const;
  for (const host of ["a", "b", "c"]) evidence.dialFailed("eth0", host, "timeout", "", how);
}

test("Uplinkd: the rules of an uplink stay for a second after its tunnels have ended, also if settings change again within it", async () => {
  const { waitedMs, isRuled } = await after(NAMES, (at, { set }) => {
    if (at === 0) set(["eth0", "eth1"]);
    if (at === 50) set(["eth0"]);
  });
  assert.equal(waitedMs.length, 2);
  assert.ok(
    waitedMs.every((ms) => ms >= RETIRE_MS),
    waitedMs.join(),
  );
  assert.ok(isRuled("eth0"));
});

test("Uplinkd: the rules of an uplink stay for a second after its tunnels have ended, also if another one fails in that moment", async () => {
  const { waitedMs } = await after(NAMES, (at, { set, uplinkd }) => {
    if (at === 0) set(["eth0", "eth1"]);
    if (at === 0) fail(uplinkd);
    if (at === 1) assert.ok(hasError(uplinkd.uplinks[0]?.status ?? assert.fail()));
  });
  assert.equal(waitedMs.length, 1);
  assert.ok(
    waitedMs.every((ms) => ms >= RETIRE_MS),
    waitedMs.join(),
  );
});

test("Uplinkd: an uplink that takes another one's place has its rules before it is offered, and does not wait for the other one's", async () => {
  const { waitedMs, usable } = await after(["eth0", "eth1"], (at, { set, uplinkd, isRuled }) => {
    if (at === 0) set(["eth0", "eth2"]);
    if (at === 0 || at === 50) fail(uplinkd);
    if (at === 10) assert.ok(isRuled("eth2") && uplinkd.uplinks[1]?.addresses.some((own) => own.isUsable));
  });
  assert.equal(waitedMs.length, 1);
  assert.deepEqual(usable, ["eth0", "eth2"]);
});

test("Uplinkd: an uplink that settings have again within the second keeps its rules", async () => {
  const { waitedMs, usable } = await after(NAMES, (at, { set, uplinkd }) => {
    if (at === 0) set(["eth0", "eth1"]);
    if (at === 50) set(NAMES);
    if (at === 51) fail(uplinkd);
  });
  assert.deepEqual([waitedMs, usable], [[], [...NAMES]]);
});
