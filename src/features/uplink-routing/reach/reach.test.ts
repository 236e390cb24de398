import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { createLogger } from "#base/log";
import { hasError, type ProbeTarget, type Settings, UNTESTED, type Uplink } from "#base/uplink-model";
import { parseSettings } from "#features/uplink-config";
import { type ProbeOutcome, type Prober, Reach } from "./index.ts";

const HOW = { witness: "host", waitedMs: 2000 } as const;

const OK: ProbeOutcome = { kind: "ok" };
const FAILED: ProbeOutcome = { kind: "failed", reason: "timeout" };

/** Answers as told, and keeps when which uplink was asked what. */
class FakeProber implements Prober {
  readonly sent: { readonly at: number; readonly uplink: string; readonly target: ProbeTarget }[] = [];
  readonly outcomes = new Map<string, ProbeOutcome>();
  readonly #clock: FakeClock;
  /** How long an answer takes, milliseconds. */
  takesMs = 0;
  aborted = 0;

  constructor(clock: FakeClock) {
    this.#clock = clock;
  }

  async probe(uplink: Uplink, target: ProbeTarget, options: { readonly signal: AbortSignal }): Promise<ProbeOutcome> {
    this.sent.push({ at: this.#clock.monotonic(), uplink: uplink.name, target });
    if (this.takesMs > 0) {
      await new Promise<void>((resolve) => {
        this.#clock.after(this.takesMs, resolve);
        options.signal.addEventListener("abort", () => resolve());
      });
    }
    if (options.signal.aborted) this.aborted += 1;
    return this.outcomes.get(uplink.name) ?? OK;
  }

  of(uplink: string): readonly number[] {
    return this.sent.filter((one) => one.uplink === uplink).map(({ at }) => at);
  }
}

interface Wish {
  readonly cost?: number;
  readonly mode?: "static" | "observe" | "external";
  readonly management?: boolean;
}

const TCP = { type: "tcp", host: "203.0.113.80", port: 443 } as const;
const HTTP = { type: "http", url: "http://203.0.113.80/" } as const;

function setUp(wishes: Readonly<Record<string, Wish>>, rest: Readonly<Record<string, unknown>> = {}) {
  const clock = new FakeClock();
  const prober = new FakeProber(clock);
  const lines: Record<string, unknown>[] = [];
  const source = {
    version: 1,
    uplinks: Object.entries(wishes).map(([name, wish]) => ({
      name,
      interface: name,
      ...wish,
      ...(wish.mode === "static" ? { addresses: ["192.0.2.10/24"] } : {}),
    })),
    probe: { targets: [TCP] },
    ...rest,
  };
  const settings: Settings = parseSettings(JSON.stringify(source), "test").settings;
  let changes = 0;
  const reach = new Reach({
    prober,
    clock,
    // No jitter: (0.5 * 2 - 1) of it.
    random: () => 0.5,
    log: createLogger({ name: "reach", write: (line) => void lines.push(JSON.parse(line)) }),
    changed: () => {
      changes += 1;
    },
  });
  const faults = new Map<string, string>();
  const observe = (): void =>
    reach.observe(
      settings,
      settings.uplinks.map((one) => ({
        uplink: uplinkOf(one.name, one.cost, one.management),
        fault: faults.get(one.name),
      })),
    );
  observe();
  const controller = new AbortController();
  const running = reach.run({ signal: controller.signal });
  const stop = async (): Promise<void> => {
    controller.abort();
    await running;
  };
  const isFailed = (name: string): boolean => hasError(reach.stateOf(name)?.status ?? UNTESTED);
  const errorOf = (name: string): string | undefined => reach.stateOf(name)?.status.lastError;
  return { clock, prober, reach, faults, observe, stop, isFailed, errorOf, lines, settings, changes: () => changes };
}

function uplinkOf(name: string, cost: number, isManagement: boolean): Uplink {
  return {
    name,
    ifName: name,
    cost,
    isManagement,
    isL3: true,
    isValid: true,
    isUp: true,
    weight: 1,
    addresses: [{ address: IpAddress.parse("192.0.2.10"), prefixLength: 24, isUsable: true }],
    dnsServers: [],
    searchDomains: [],
    status: UNTESTED,
  };
}

test("Reach: a free uplink is probed at once and every interval; failed after three in a row, recovered after two", async () => {
  const { clock, prober, isFailed, errorOf, stop, lines } = setUp({ lan: {} });
  await clock.advance(1);
  assert.deepEqual(prober.of("lan"), [0]);
  prober.outcomes.set("lan", FAILED);
  await clock.advance(30_000);
  assert.deepEqual(prober.of("lan"), [0, 15_000, 30_000]);
  assert.ok(!isFailed("lan"));
  await clock.advance(15_000);
  assert.ok(isFailed("lan"));
  assert.equal(errorOf("lan"), "probe: tcp 203.0.113.80:443: timeout");
  prober.outcomes.set("lan", OK);
  await clock.advance(15_000);
  assert.ok(isFailed("lan"));
  await clock.advance(15_000);
  assert.ok(!isFailed("lan"));
  assert.equal(errorOf("lan"), "");
  await clock.advance(60_000);
  assert.deepEqual(
    lines.map(({ level, uplink, from, to, evidence }) => [level, uplink, from, to, evidence]),
    [
      ["warn", "lan", "ok", "failed", "probe: tcp 203.0.113.80:443 failed: timeout"],
      ["info", "lan", "failed", "ok", "probe: tcp 203.0.113.80:443 ok 0 ms"],
    ],
    "once for each transition",
  );
  await stop();
});

test("Reach: probes are early or late by a fifth of the interval at most", async () => {
  for (const [random, gap] of [
    [0, 12_000],
    [0.999_999, 18_000],
  ] as const) {
    const clock = new FakeClock();
    const prober = new FakeProber(clock);
    const { settings } = setUp({ lan: {} });
    const reach = new Reach({ prober, clock, random: () => random, changed: () => undefined });
    reach.observe(settings, [{ uplink: uplinkOf("lan", 0, true) }]);
    const controller = new AbortController();
    const running = reach.run({ signal: controller.signal });
    await clock.advance(20_000);
    assert.ok(Math.abs((prober.of("lan")[1] ?? 0) - gap) < 1, `${prober.of("lan")}`);
    controller.abort();
    await running;
  }
});

test("Reach: a metered uplink gets no probe while a cheaper one works, one a minute while none does, none after that", async () => {
  const { clock, prober, stop, isFailed, faults, observe } = setUp({ lan: {}, lte: { cost: 10 } }, { maxCost: 10 });
  await clock.advance(300_000);
  assert.deepEqual(prober.of("lte"), []);
  faults.set("lan", "link down");
  observe();
  assert.ok(isFailed("lan"));
  await clock.advance(300_000);
  const asked = prober.of("lte");
  assert.deepEqual(asked, [300_000, 360_000, 420_000, 480_000, 540_000, 600_000]);
  const before = prober.of("lan").length;
  faults.delete("lan");
  observe();
  await clock.advance(300_000);
  assert.ok(prober.of("lan").length > before);
  assert.deepEqual(prober.of("lte"), asked);
  await stop();
});

test("Reach: a probe over a metered uplink is one packet exchange, of one target at a time, and stops when a cheaper one recovers", async () => {
  const targets = [TCP, HTTP];
  const { clock, prober, stop, faults, observe, reach } = setUp(
    { lan: {}, lte: { cost: 10 } },
    { maxCost: 10, probe: { targets } },
  );
  faults.set("lan", "link down");
  observe();
  prober.outcomes.set("lte", FAILED);
  await clock.advance(120_001);
  assert.deepEqual(
    prober.sent.filter(({ uplink }) => uplink === "lte").map(({ at, target }) => [at, target.type]),
    [
      [0, "tcp"],
      [60_000, "http"],
      [120_000, "tcp"],
    ],
  );
  prober.takesMs = 2000;
  await clock.advance(60_000);
  faults.delete("lan");
  observe();
  await clock.advance(2000);
  assert.equal(prober.aborted, 1);
  assert.equal(
    reach.stateOf("lte")?.lastProbe,
    "tcp 203.0.113.80:443 failed: timeout",
    "the one that was cut short tells nothing",
  );
  await stop();
});

test("Reach: uplinks above the maximum cost, not for management, or of an agent get no packet, whatever fails", async () => {
  const { clock, prober, stop, faults, observe } = setUp(
    { lan: {}, lte: { cost: 10 }, sat: { cost: 200 }, oob: { management: false }, ext: { mode: "external" } },
    { maxCost: 10, probe: { targets: [TCP], maxCost: 255 } },
  );
  for (const name of ["lan", "lte"]) faults.set(name, "link down");
  observe();
  await clock.advance(600_000);
  const asked = new Set(prober.sent.map(({ uplink }) => uplink));
  assert.deepEqual(
    ["sat", "oob", "ext"].filter((name) => asked.has(name)),
    [],
  );
  await stop();
});

test("Reach: among three tiers the middle one is asked only when the cheapest failed, the dearest only when both have", async () => {
  const { clock, prober, stop, faults, observe } = setUp(
    { lan: {}, dsl: { cost: 5 }, lte: { cost: 10 } },
    { maxCost: 10 },
  );
  faults.set("lan", "link down");
  observe();
  await clock.advance(61_000);
  assert.equal(prober.of("dsl").length, 2);
  assert.equal(prober.of("lte").length, 0);
  prober.outcomes.set("dsl", FAILED);
  await clock.advance(240_000);
  assert.ok(prober.of("lte").length >= 1);
  await stop();
});

test("Reach: a failed probe weighs nothing while tunnels receive bytes", async () => {
  const { clock, prober, reach, isFailed, stop } = setUp({ lan: {} });
  prober.outcomes.set("lan", FAILED);
  for (let second = 0; second < 120; second += 1) {
    reach.bytesReceived("lan");
    await clock.advance(1000);
  }
  assert.ok(!isFailed("lan"));
  await clock.advance(60_000);
  assert.ok(isFailed("lan"));
  await stop();
});

test("Reach: local faults count at once and hide what was known, which is there again when they are over", async () => {
  const { clock, reach, faults, observe, isFailed, errorOf, stop, changes } = setUp(
    { lan: {} },
    { probe: { targets: [] } },
  );
  reach.firstByte("lan", "a:443");
  const known = reach.stateOf("lan")?.status;
  for (const fault of ["link down", "no usable address", "no default route"]) {
    await clock.advance(1000);
    faults.set("lan", fault);
    observe();
    assert.ok(isFailed("lan"));
    assert.equal(errorOf("lan"), fault);
  }
  faults.clear();
  const before = changes();
  observe();
  assert.deepEqual(reach.stateOf("lan")?.status, known);
  assert.equal(changes(), before + 1);
  await stop();
});

test("Reach: what fails while the link is down blames nobody, so that all is well as soon as it is up", async () => {
  const { reach, faults, observe, isFailed, stop } = setUp({ lan: {} }, { probe: { targets: [] } });
  for (const destination of ["a", "b"]) reach.dialFailed("lan", destination, "unreachable", "EHOSTUNREACH", HOW);
  faults.set("lan", "link down");
  observe();
  for (const destination of ["c", "d", "e", "f"]) {
    reach.dialFailed("lan", destination, "unreachable", "EHOSTUNREACH", HOW);
    reach.blackholed("lan", destination, HOW);
    reach.stalled("lan", destination, HOW);
  }
  faults.clear();
  observe();
  assert.ok(!isFailed("lan"));
  for (const destination of ["g", "h"]) reach.dialFailed("lan", destination, "timeout", "", HOW);
  assert.ok(!isFailed("lan"));
  reach.dialFailed("lan", "i", "timeout", "", HOW);
  assert.ok(isFailed("lan"));
  await stop();
});

test("Reach: three distinct destinations blackholed within 60 s set the flag; one again and again, or a success between, does not", async () => {
  const { clock, reach, isFailed, errorOf, stop } = setUp({ lan: {}, two: {} }, { probe: { targets: [] } });
  for (let time = 0; time < 5; time += 1) reach.blackholed("lan", "a:443", HOW);
  reach.blackholed("lan", "b:443", HOW);
  reach.firstByte("lan", "c:443");
  reach.blackholed("lan", "d:443", HOW);
  reach.blackholed("lan", "e:443", HOW);
  assert.ok(!isFailed("lan"));
  await clock.advance(61_000);
  reach.blackholed("lan", "f:443", HOW);
  assert.ok(!isFailed("lan"));
  reach.blackholed("lan", "g:443", HOW);
  reach.blackholed("lan", "h:443", HOW);
  assert.ok(isFailed("lan"));
  assert.match(errorOf("lan") ?? "", /^blackhole: h:443/);
  assert.ok(!isFailed("two"));
  await stop();
});

test("Reach: a blackhole is not over because handshakes complete, but when bytes come, http answers twice, or its time is up", async () => {
  const blackhole = (reach: Reach): void => {
    for (const destination of ["a:443", "b:443", "c:443"]) {
      reach.dialSucceeded("lan", destination);
      reach.blackholed("lan", destination, HOW);
    }
  };
  const tcp = setUp({ lan: {} });
  blackhole(tcp.reach);
  tcp.reach.dialSucceeded("lan", "d:443");
  tcp.reach.bytesReceived("lan");
  await tcp.clock.advance(59_000);
  assert.ok(tcp.prober.of("lan").length >= 4 && tcp.isFailed("lan"));
  await tcp.clock.advance(2000);
  assert.ok(!tcp.isFailed("lan"));
  blackhole(tcp.reach);
  await tcp.clock.advance(61_000);
  assert.ok(tcp.isFailed("lan"), "the second time it lasts twice as long");
  await tcp.clock.advance(60_000);
  assert.ok(!tcp.isFailed("lan"));
  blackhole(tcp.reach);
  tcp.reach.firstByte("lan", "z:443");
  assert.ok(!tcp.isFailed("lan"));
  await tcp.stop();
  const http = setUp({ lan: {} }, { probe: { targets: [HTTP] } });
  blackhole(http.reach);
  await http.clock.advance(1);
  assert.ok(http.isFailed("lan"));
  await http.clock.advance(15_000);
  assert.ok(!http.isFailed("lan"));
  await http.stop();
});

test("Reach: three destinations that time out, fall silent or cannot be reached blame the uplink; refusals and DNS do not", async () => {
  const { reach, isFailed, errorOf, clock, stop } = setUp({ lan: {} }, { probe: { targets: [] } });
  reach.dialFailed("lan", "a:443", "timeout", "timeout", HOW);
  reach.dialFailed("lan", "b:443", "unreachable", "EHOSTUNREACH", HOW);
  reach.dialFailed("lan", "c:443", "dns", "NXDOMAIN", HOW);
  reach.dialFailed("lan", "d:443", "ports-exhausted", "", HOW);
  reach.dialFailed("lan", "e:443", "address-gone", "", HOW);
  assert.ok(!isFailed("lan"));
  reach.dialFailed("lan", "f:443", "refused", "ECONNREFUSED", HOW);
  reach.dialFailed("lan", "g:443", "timeout", "timeout", HOW);
  reach.stalled("lan", "h:443", HOW);
  assert.ok(!isFailed("lan"), "a refusal is an answer");
  reach.dialFailed("lan", "i:443", "timeout", "no answer in 10 s", HOW);
  assert.ok(isFailed("lan"));
  assert.equal(errorOf("lan"), "dial: i:443: no answer in 10 s");
  reach.dialSucceeded("lan", "j:443");
  assert.ok(!isFailed("lan"));
  await clock.advance(1);
  await stop();
});

test("Reach: what an agent says of its uplink holds against our evidence; elsewhere it is one voice among others", async () => {
  const { clock, reach, isFailed, stop } = setUp({ ext: { mode: "external" }, lan: {} }, { probe: { targets: [] } });
  const failure = { lastFailed: 5, lastError: "the agent says so", lastWarning: "" };
  assert.ok(reach.tell("ext", failure) && reach.tell("lan", failure) && !reach.tell("none", failure));
  assert.ok(isFailed("ext") && isFailed("lan"));
  for (const name of ["ext", "lan"]) reach.firstByte(name, "a:443");
  assert.ok(isFailed("ext") && !isFailed("lan"));
  reach.tell("ext", { lastFailed: 5, lastSucceeded: 5, lastError: "", lastWarning: "" });
  assert.ok(!isFailed("ext"));
  await clock.advance(3000);
  for (const destination of ["a", "b", "c"]) reach.blackholed("ext", destination, HOW);
  assert.ok(isFailed("ext"), "what it swallows is seen here first");
  reach.firstByte("ext", "a");
  assert.ok(!isFailed("ext"));
  await stop();
});

test("Reach: a clock that jumps by an hour turns no flag round", async () => {
  for (const jump of [-3_600_000, 3_600_000]) {
    const { clock, reach, isFailed, stop } = setUp({ lan: {} }, { probe: { targets: [] } });
    const fail = (): void => {
      for (const destination of ["a", "b", "c"]) reach.dialFailed("lan", destination, "timeout", "", HOW);
    };
    reach.firstByte("lan", "a");
    await clock.advance(3000);
    clock.jumpWall(jump);
    fail();
    assert.ok(isFailed("lan"));
    clock.jumpWall(jump);
    reach.firstByte("lan", "a");
    assert.ok(!isFailed("lan"));
    await clock.advance(3000);
    clock.jumpWall(-2 * jump);
    fail();
    assert.ok(isFailed("lan"));
    await clock.advance(59_000);
    assert.ok(isFailed("lan"));
    await clock.advance(2000);
    assert.ok(!isFailed("lan"), "blame lasts by the clock that never jumps");
    assert.match(reach.stateOf("lan")?.status.lastWarning ?? "", /^on trial after dial: c: timeout/);
    await stop();
  }
});

test("Reach: a success keeps when it failed last, a failure when it worked last", async () => {
  const { clock, reach, stop } = setUp({ lan: {} }, { probe: { targets: [] } });
  await clock.advance(1000);
  reach.firstByte("lan", "a");
  const worked = clock.now();
  await clock.advance(3000);
  for (const destination of ["a", "b", "c"]) reach.blackholed("lan", destination, HOW);
  assert.deepEqual(reach.stateOf("lan")?.status, {
    lastSucceeded: worked,
    lastFailed: clock.now(),
    lastError: "blackhole: c: connected, then nothing came",
    lastWarning: "",
  });
  const failed = clock.now();
  await clock.advance(1000);
  reach.firstByte("lan", "a");
  assert.deepEqual(reach.stateOf("lan")?.status, {
    lastSucceeded: clock.now(),
    lastFailed: failed,
    lastError: "",
    lastWarning: "",
  });
  await stop();
  assert.equal(clock.pending, 0);
});

test("Reach: what pods see counts as one destination, and never fails an uplink alone", async () => {
  const { reach, isFailed, stop } = setUp({ lan: {} }, { probe: { targets: [] } });
  for (let at = 0; at < 40; at += 1) {
    reach.blackholed("lan", `own-${at}.example:443`, { ...HOW, witness: "pod" });
    reach.dialFailed("lan", `own-${at}.example:443`, "timeout", "", { ...HOW, witness: "pod" });
  }
  assert.ok(!isFailed("lan"));
  reach.blackholed("lan", "a:443", HOW);
  assert.ok(!isFailed("lan"));
  reach.blackholed("lan", "b:443", HOW);
  assert.ok(isFailed("lan"), "the host has met the same twice");
  await stop();
});

test("Reach: while bytes come in over an uplink, the silence of some destinations is their own", async () => {
  const { clock, reach, isFailed, stop } = setUp({ lan: {} }, { probe: { targets: [] } });
  const waited = { witness: "host", waitedMs: 5000 } as const;
  for (let round = 0; round < 5; round += 1) {
    reach.bytesReceived("lan");
    await clock.advance(1000);
    for (const destination of ["a", "b", "c", "d"]) reach.blackholed("lan", destination, waited);
    for (const destination of ["a", "b", "c", "d"]) reach.dialFailed("lan", destination, "timeout", "", waited);
    assert.ok(!isFailed("lan"));
  }
  await clock.advance(6000);
  for (const destination of ["a", "b", "c"]) reach.blackholed("lan", destination, waited);
  assert.ok(isFailed("lan"));
  await stop();
});
