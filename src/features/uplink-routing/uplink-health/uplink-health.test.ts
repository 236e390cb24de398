import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { createLogger, nullLogger } from "#base/log";
import { hasError, type ProbeTarget, type Settings, UNTESTED, type Uplink } from "#base/uplink-model";
import { parseSettings } from "#features/uplink-config";
import { type ProbeOutcome, type Prober, UplinkHealth } from "./index.ts";

const HOW = { clientKind: "host", waitedMs: 2000 } as const;

const OK: ProbeOutcome = { kind: "ok" };
const FAILED: ProbeOutcome = { kind: "failed", reason: "timeout" };

/** Answers as told, and keeps when which uplink was asked what. */
class FakeProber implements Prober {
  readonly sent: { readonly at: number; readonly uplink: string; readonly target: ProbeTarget }[] = [];
  readonly outcomes = new Map<string, ProbeOutcome>();
  readonly #clock: FakeClock;
  answer: (uplink: string, target: ProbeTarget) => ProbeOutcome = (uplink) => this.outcomes.get(uplink) ?? OK;
  /** The time that an answer takes, in milliseconds. */
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
    return this.answer(uplink.name, target);
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
  const health = new UplinkHealth({
    prober,
    clock,
    // No jitter: (0.5 * 2 - 1) of it.
    random: () => 0.5,
    log: createLogger({ name: "uplink-health", write: (line) => void lines.push(JSON.parse(line)) }),
    changed: () => {
      changes += 1;
    },
  });
  const faults = new Map<string, string>();
  /** `changed`: keys of a new settings file that differ from the first one. */
  const observe = (changed: Readonly<Record<string, unknown>> = {}): void => {
    const now = parseSettings(JSON.stringify({ ...source, ...changed }), "test").settings;
    health.observe(
      now,
      now.uplinks.map((one) => ({
        uplink: uplinkOf(one.name, one.cost, one.management),
        fault: faults.get(one.name),
      })),
    );
  };
  observe();
  const controller = new AbortController();
  const running = health.run({ signal: controller.signal });
  const stop = async (): Promise<void> => {
    controller.abort();
    await running;
  };
  const isFailed = (name: string): boolean => hasError(health.stateOf(name)?.status ?? UNTESTED);
  const errorOf = (name: string): string | undefined => health.stateOf(name)?.status.lastError;
  return { clock, prober, health, faults, observe, stop, isFailed, errorOf, lines, settings, changes: () => changes };
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

test("UplinkHealth: a free uplink is probed at once and every interval; failed after three in a row, recovered after two", async () => {
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

test("UplinkHealth: probes are early or late by a fifth of the interval at most", async () => {
  for (const [random, gap] of [
    [0, 12_000],
    [0.999_999, 18_000],
  ] as const) {
    const clock = new FakeClock();
    const prober = new FakeProber(clock);
    const { settings } = setUp({ lan: {} });
    const health = new UplinkHealth({ prober, clock, random: () => random, changed: () => undefined, log: nullLogger });
    health.observe(settings, [{ uplink: uplinkOf("lan", 0, true) }]);
    const controller = new AbortController();
    const running = health.run({ signal: controller.signal });
    await clock.advance(20_000);
    assert.ok(Math.abs((prober.of("lan")[1] ?? 0) - gap) < 1, `${prober.of("lan")}`);
    controller.abort();
    await running;
  }
});

test("UplinkHealth: a metered uplink gets no probe while a cheaper one works, one a minute while none does, none after that", async () => {
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

test("UplinkHealth: a probe over a metered uplink is one packet exchange, of one target at a time, and stops when a cheaper one recovers", async () => {
  const targets = [TCP, HTTP];
  const { clock, prober, stop, faults, observe, health } = setUp(
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
    health.stateOf("lte")?.lastProbe,
    "tcp 203.0.113.80:443 failed: timeout",
    "the one that was cut short tells nothing",
  );
  await stop();
});

test("UplinkHealth: uplinks above the maximum cost, not for management, or of an agent get no packet, whatever fails", async () => {
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

test("UplinkHealth: among three tiers the middle one is asked only when the cheapest failed, the dearest only when both have", async () => {
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

test("UplinkHealth: a failed probe weighs nothing while tunnels receive bytes", async () => {
  const { clock, prober, health, isFailed, stop } = setUp({ lan: {} });
  prober.outcomes.set("lan", FAILED);
  for (let second = 0; second < 120; second += 1) {
    health.bytesReceived("lan");
    await clock.advance(1000);
  }
  assert.ok(!isFailed("lan"));
  await clock.advance(60_000);
  assert.ok(isFailed("lan"));
  await stop();
});

test("UplinkHealth: a captive portal is named, outranks the bytes that it carries, and only the expected answer ends it", async () => {
  const { clock, prober, health, isFailed, errorOf, lines, stop } = setUp(
    { lan: {} },
    { probe: { targets: [HTTP, TCP] } },
  );
  const traffic = async (ms: number): Promise<void> => {
    for (let waited = 0; waited < ms; waited += 1000) {
      health.dialSucceeded("lan", "a.example:443");
      health.firstByte("lan", "a.example:443");
      health.bytesReceived("lan");
      await clock.advance(1000);
    }
  };
  const portal: ProbeOutcome = { kind: "foreign", reason: "status 302 to http://login.example/" };
  prober.answer = (_uplink, target) => (target.type === "http" ? portal : OK);
  await traffic(29_000);
  assert.ok(!isFailed("lan"));
  // A portal completes handshakes with everybody: the second target says nothing.
  await traffic(31_000);
  assert.equal(errorOf("lan"), "captive portal: http http://203.0.113.80/: status 302 to http://login.example/");
  // Failures of dials do not turn it into one that traffic ends.
  for (const host of ["a", "b", "c"]) health.dialFailed("lan", `${host}:443`, "timeout", "", HOW);
  await traffic(120_000);
  assert.ok(isFailed("lan"));
  // Silence is not the expected answer either.
  prober.answer = () => FAILED;
  await traffic(30_000);
  assert.match(errorOf("lan") ?? "", /^captive portal: /);
  prober.answer = () => OK;
  await traffic(16_000);
  assert.ok(isFailed("lan"));
  await traffic(15_000);
  assert.ok(!isFailed("lan"));
  assert.equal(lines.filter(({ message, msg }) => (message ?? msg) === "uplink failed").length, 1);
  await stop();
});

test("UplinkHealth: a portal that the process that probes reports outranks this process's traffic until it is withdrawn", async () => {
  const { health, isFailed, stop } = setUp({ lan: {} }, { probe: { targets: [] } });
  const status = { lastFailed: Date.UTC(2026, 0, 1), lastError: "captive portal: x", lastWarning: "", isPortal: true };
  health.followStatus("lan", status);
  health.firstByte("lan", "a.example:443");
  health.dialSucceeded("lan", "a.example:443");
  assert.ok(isFailed("lan"));
  assert.equal(health.statuses["lan"]?.isPortal, true);
  health.withdrawStatus("lan");
  assert.ok(!isFailed("lan"));
  await stop();
});

test("UplinkHealth: local faults count at once and hide the recorded status, which returns when they are over", async () => {
  const { clock, health, faults, observe, isFailed, errorOf, stop, changes } = setUp(
    { lan: {} },
    { probe: { targets: [] } },
  );
  health.firstByte("lan", "a:443");
  const known = health.stateOf("lan")?.status;
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
  assert.deepEqual(health.stateOf("lan")?.status, known);
  assert.equal(changes(), before + 1);
  await stop();
});

test("UplinkHealth: failures while the link is down do not count, so the uplink works as soon as it is up", async () => {
  const { health, faults, observe, isFailed, stop } = setUp({ lan: {} }, { probe: { targets: [] } });
  for (const destination of ["a", "b"]) health.dialFailed("lan", destination, "unreachable", "EHOSTUNREACH", HOW);
  faults.set("lan", "link down");
  observe();
  for (const destination of ["c", "d", "e", "f"]) {
    health.dialFailed("lan", destination, "unreachable", "EHOSTUNREACH", HOW);
    health.blackholed("lan", destination, HOW);
    health.stalled("lan", destination, HOW);
  }
  faults.clear();
  observe();
  assert.ok(!isFailed("lan"));
  for (const destination of ["g", "h"]) health.dialFailed("lan", destination, "timeout", "", HOW);
  assert.ok(!isFailed("lan"));
  health.dialFailed("lan", "i", "timeout", "", HOW);
  assert.ok(isFailed("lan"));
  await stop();
});

test("UplinkHealth: three distinct destinations blackholed within 60 s set the flag; one again and again, or a success between, does not", async () => {
  const { clock, health, isFailed, errorOf, stop } = setUp({ lan: {}, two: {} }, { probe: { targets: [] } });
  for (let time = 0; time < 5; time += 1) health.blackholed("lan", "a:443", HOW);
  health.blackholed("lan", "b:443", HOW);
  health.firstByte("lan", "c:443");
  health.blackholed("lan", "d:443", HOW);
  health.blackholed("lan", "e:443", HOW);
  assert.ok(!isFailed("lan"));
  await clock.advance(61_000);
  health.blackholed("lan", "f:443", HOW);
  assert.ok(!isFailed("lan"));
  health.blackholed("lan", "g:443", HOW);
  health.blackholed("lan", "h:443", HOW);
  assert.ok(isFailed("lan"));
  assert.match(errorOf("lan") ?? "", /^blackhole: h:443/);
  assert.ok(!isFailed("two"));
  await stop();
});

test("UplinkHealth: a blackhole is not over because handshakes complete, but when bytes come, http answers twice, or its time is up", async () => {
  const blackhole = (health: UplinkHealth): void => {
    for (const destination of ["a:443", "b:443", "c:443"]) {
      health.dialSucceeded("lan", destination);
      health.blackholed("lan", destination, HOW);
    }
  };
  const tcp = setUp({ lan: {} });
  blackhole(tcp.health);
  tcp.health.dialSucceeded("lan", "d:443");
  tcp.health.bytesReceived("lan");
  await tcp.clock.advance(59_000);
  assert.ok(tcp.prober.of("lan").length >= 4 && tcp.isFailed("lan"));
  await tcp.clock.advance(2000);
  assert.ok(!tcp.isFailed("lan"));
  blackhole(tcp.health);
  await tcp.clock.advance(61_000);
  assert.ok(tcp.isFailed("lan"), "the second time it lasts twice as long");
  await tcp.clock.advance(60_000);
  assert.ok(!tcp.isFailed("lan"));
  blackhole(tcp.health);
  tcp.health.firstByte("lan", "z:443");
  assert.ok(!tcp.isFailed("lan"));
  await tcp.stop();
  const http = setUp({ lan: {} }, { probe: { targets: [HTTP] } });
  blackhole(http.health);
  await http.clock.advance(1);
  assert.ok(http.isFailed("lan"));
  await http.clock.advance(15_000);
  assert.ok(!http.isFailed("lan"));
  await http.stop();
});

test("UplinkHealth: three destinations that time out, fall silent or cannot be reached blame the uplink; refusals and DNS do not", async () => {
  const { health, isFailed, errorOf, clock, stop } = setUp({ lan: {} }, { probe: { targets: [] } });
  health.dialFailed("lan", "a:443", "timeout", "timeout", HOW);
  health.dialFailed("lan", "b:443", "unreachable", "EHOSTUNREACH", HOW);
  health.dialFailed("lan", "c:443", "dns", "NXDOMAIN", HOW);
  health.dialFailed("lan", "d:443", "ports-exhausted", "", HOW);
  health.dialFailed("lan", "e:443", "address-gone", "", HOW);
  assert.ok(!isFailed("lan"));
  health.dialFailed("lan", "f:443", "refused", "ECONNREFUSED", HOW);
  health.dialFailed("lan", "g:443", "timeout", "timeout", HOW);
  health.stalled("lan", "h:443", HOW);
  assert.ok(!isFailed("lan"), "a refusal is an answer");
  health.dialFailed("lan", "i:443", "timeout", "no answer in 10 s", HOW);
  assert.ok(isFailed("lan"));
  assert.equal(errorOf("lan"), "dial: i:443: no answer in 10 s");
  health.dialSucceeded("lan", "j:443");
  assert.ok(!isFailed("lan"));
  await clock.advance(1);
  await stop();
});

test("UplinkHealth: an agent's report on an external uplink is binding; on others it is one source among several", async () => {
  const { clock, health, isFailed, stop } = setUp({ ext: { mode: "external" }, lan: {} }, { probe: { targets: [] } });
  const failure = { lastFailed: 5, lastError: "the agent says so", lastWarning: "" };
  assert.ok(
    health.reportStatus("ext", failure) && health.reportStatus("lan", failure) && !health.reportStatus("none", failure),
  );
  assert.ok(isFailed("ext") && isFailed("lan"));
  for (const name of ["ext", "lan"]) health.firstByte(name, "a:443");
  assert.ok(isFailed("ext") && !isFailed("lan"));
  health.reportStatus("ext", { lastFailed: 5, lastSucceeded: 5, lastError: "", lastWarning: "" });
  assert.ok(!isFailed("ext"));
  await clock.advance(3000);
  for (const destination of ["a", "b", "c"]) health.blackholed("ext", destination, HOW);
  assert.ok(isFailed("ext"), "what it swallows is seen here first");
  health.firstByte("ext", "a");
  assert.ok(!isFailed("ext"));
  await stop();
});

test("UplinkHealth: what fails over an external uplink that its agent has failed does not end the agent's word", async () => {
  for (const how of ["dialFailed", "blackholed"] as const) {
    const { clock, health, isFailed, stop } = setUp({ ext: { mode: "external" } }, { probe: { targets: [] } });
    health.reportStatus("ext", { lastFailed: 5, lastError: "the agent says so", lastWarning: "" });
    // It is tried as the last resort.
    for (const destination of ["a", "b", "c"]) {
      if (how === "dialFailed") health.dialFailed("ext", destination, "timeout", "", HOW);
      else health.blackholed("ext", destination, HOW);
    }
    assert.equal(health.stateOf("ext")?.status.lastError, "the agent says so");
    await clock.advance(61_000);
    assert.ok(isFailed("ext"), how);
    health.firstByte("ext", "a");
    assert.ok(isFailed("ext"), how);
    health.reportStatus("ext", { lastFailed: 5, lastSucceeded: 5, lastError: "", lastWarning: "" });
    assert.ok(!isFailed("ext"));
    await stop();
  }
});

test("UplinkHealth: a clock that jumps by an hour turns no flag round", async () => {
  for (const jump of [-3_600_000, 3_600_000]) {
    const { clock, health, isFailed, stop } = setUp({ lan: {} }, { probe: { targets: [] } });
    const fail = (): void => {
      for (const destination of ["a", "b", "c"]) health.dialFailed("lan", destination, "timeout", "", HOW);
    };
    health.firstByte("lan", "a");
    await clock.advance(3000);
    clock.jumpWall(jump);
    fail();
    assert.ok(isFailed("lan"));
    clock.jumpWall(jump);
    health.firstByte("lan", "a");
    assert.ok(!isFailed("lan"));
    await clock.advance(3000);
    clock.jumpWall(-2 * jump);
    fail();
    assert.ok(isFailed("lan"));
    await clock.advance(59_000);
    assert.ok(isFailed("lan"));
    await clock.advance(2000);
    assert.ok(!isFailed("lan"), "blame lasts by the clock that never jumps");
    assert.match(health.stateOf("lan")?.status.lastWarning ?? "", /^on trial after dial: c: timeout/);
    await stop();
  }
});

test("UplinkHealth: a success keeps when it failed last, a failure when it worked last", async () => {
  const { clock, health, stop } = setUp({ lan: {} }, { probe: { targets: [] } });
  await clock.advance(1000);
  health.firstByte("lan", "a");
  const worked = clock.now();
  await clock.advance(3000);
  for (const destination of ["a", "b", "c"]) health.blackholed("lan", destination, HOW);
  assert.deepEqual(health.stateOf("lan")?.status, {
    lastSucceeded: worked,
    lastFailed: clock.now(),
    lastError: "blackhole: c: connected, then nothing came",
    lastWarning: "",
  });
  const failed = clock.now();
  await clock.advance(1000);
  health.firstByte("lan", "a");
  assert.deepEqual(health.stateOf("lan")?.status, {
    lastSucceeded: clock.now(),
    lastFailed: failed,
    lastError: "",
    lastWarning: "",
  });
  await stop();
  assert.equal(clock.pending, 0);
});

test("UplinkHealth: failures of pods count as one destination, and never fail an uplink alone", async () => {
  const { health, isFailed, stop } = setUp({ lan: {} }, { probe: { targets: [] } });
  for (let at = 0; at < 40; at += 1) {
    health.blackholed("lan", `own-${at}.example:443`, { ...HOW, clientKind: "pod" });
    health.dialFailed("lan", `own-${at}.example:443`, "timeout", "", { ...HOW, clientKind: "pod" });
  }
  assert.ok(!isFailed("lan"));
  health.blackholed("lan", "a:443", HOW);
  assert.ok(!isFailed("lan"));
  health.blackholed("lan", "b:443", HOW);
  assert.ok(isFailed("lan"), "the host has met the same twice");
  await stop();
});

test("UplinkHealth: while bytes come in over an uplink, the silence of some destinations is their own", async () => {
  const { clock, health, isFailed, stop } = setUp({ lan: {} }, { probe: { targets: [] } });
  const waited = { clientKind: "host", waitedMs: 5000 } as const;
  for (let round = 0; round < 5; round += 1) {
    health.bytesReceived("lan");
    await clock.advance(1000);
    for (const destination of ["a", "b", "c", "d"]) health.blackholed("lan", destination, waited);
    for (const destination of ["a", "b", "c", "d"]) health.dialFailed("lan", destination, "timeout", "", waited);
    assert.ok(!isFailed("lan"));
  }
  await clock.advance(6000);
  for (const destination of ["a", "b", "c"]) health.blackholed("lan", destination, waited);
  assert.ok(isFailed("lan"));
  await stop();
});

const SKIPPED: ProbeOutcome = { kind: "skipped", reason: "the uplink has no DNS server" };

test("UplinkHealth: a failure by probes ends a minute after the last of them, if none comes any more", async () => {
  const probesEnd = {
    "the settings have no targets any more": ({ observe }) => observe({ probe: { targets: [] } }),
    "all are skipped": ({ prober }) => void prober.outcomes.set("lan", SKIPPED),
    "the link is down": ({ faults, observe }) => {
      faults.set("lan", "link down");
      observe();
    },
  } satisfies Record<string, (bed: ReturnType<typeof setUp>) => void>;
  for (const [why, end] of Object.entries(probesEnd)) {
    const bed = setUp({ lan: {} });
    const { clock, prober, health, faults, observe, isFailed, stop } = bed;
    prober.outcomes.set("lan", FAILED);
    await clock.advance(120_000);
    assert.ok(isFailed("lan"));
    end(bed);
    await clock.advance(59_000);
    assert.ok(isFailed("lan"), why);
    await clock.advance(2000);
    faults.clear();
    prober.outcomes.set("lan", SKIPPED);
    observe({ probe: { targets: [] } });
    assert.ok(!isFailed("lan"), why);
    assert.equal(health.stateOf("lan")?.status.lastWarning, "on trial after probe: tcp 203.0.113.80:443: timeout");
    prober.outcomes.set("lan", FAILED);
    observe();
    await clock.advance(16_000);
    assert.ok(!isFailed("lan"), "those of before are not in a row with new ones");
    await clock.advance(30_000);
    assert.ok(isFailed("lan"));
    await stop();
    assert.equal(clock.pending, 0);
  }
});

test("UplinkHealth: a failure by probes lasts from each to the next, however rare they are", async () => {
  for (const [rare, intervalMs, cost] of [
    ["metered", 15_000, 10],
    ["a long interval", 600_000, 0],
  ] as const) {
    const targets = [TCP, HTTP];
    const { clock, prober, health, faults, observe, lines, isFailed, stop } = setUp(
      { far: { cost: 1 }, lan: { cost } },
      { maxCost: 10, probe: { targets, intervalMs, maxCost: cost === 0 ? 0 : 1 } },
    );
    faults.set("far", "link down");
    observe();
    prober.outcomes.set("lan", FAILED);
    prober.takesMs = 3000;
    await clock.advance(4 * Math.max(60_000, intervalMs));
    assert.ok(isFailed("lan"), rare);
    await clock.advance(3_600_000);
    assert.deepEqual(
      lines.filter(({ uplink }) => uplink === "lan").map(({ to }) => to),
      ["failed"],
      rare,
    );
    assert.equal(health.stateOf("lan")?.status.lastWarning, "");
    await stop();
  }
});

test("UplinkHealth: what traffic and probes have found together lasts until both are over", async () => {
  const { clock, prober, health, observe, isFailed, stop } = setUp({ lan: {} });
  prober.outcomes.set("lan", FAILED);
  await clock.advance(100);
  for (const destination of ["a", "b", "c"]) health.blackholed("lan", destination, HOW);
  await clock.advance(300_000);
  assert.ok(isFailed("lan"), "probes still fail");
  observe({ probe: { targets: [] } });
  await clock.advance(61_000);
  assert.ok(!isFailed("lan"));
  for (const destination of ["a", "b", "c"]) health.blackholed("lan", destination, HOW);
  observe();
  await clock.advance(45_000);
  observe({ probe: { targets: [] } });
  await clock.advance(74_000);
  assert.ok(isFailed("lan"), "the second time traffic counts for two minutes");
  await clock.advance(2000);
  assert.ok(!isFailed("lan"));
  health.firstByte("lan", "a");
  observe();
  await clock.advance(61_000);
  observe({ probe: { targets: [] } });
  assert.ok(isFailed("lan"));
  await clock.advance(40_000);
  for (const destination of ["a", "b", "c"]) health.blackholed("lan", destination, HOW);
  await clock.advance(59_000);
  assert.ok(isFailed("lan"), "traffic has found it 20 s before the probes' time was up");
  await clock.advance(2000);
  assert.ok(!isFailed("lan"));
  await stop();
});

test("UplinkHealth: an agent's report lasts a minute unless it is repeated; on an external uplink until the next report", async () => {
  const status = { lastFailed: "2026-01-01T00:00:00Z", lastError: "down" };
  const uplinks = [
    { name: "lan", interface: "lan" },
    { name: "set", interface: "set", status },
    { name: "ext", interface: "ext", mode: "external" },
  ];
  const { clock, health, observe, isFailed, stop } = setUp({}, { uplinks, probe: { targets: [] } });
  const failure = { lastFailed: 5, lastError: "the agent says so", lastWarning: "" };
  assert.ok(isFailed("set"));
  for (let time = 0; time < 5; time += 1) {
    for (const name of ["lan", "ext"]) health.reportStatus(name, failure);
    await clock.advance(50_000);
    assert.ok(isFailed("lan") && isFailed("ext"));
  }
  assert.ok(!isFailed("set"), "the status that the settings begin with");
  await clock.advance(11_000);
  assert.ok(!isFailed("lan"));
  assert.equal(health.stateOf("lan")?.status.lastWarning, "on trial after the agent says so");
  await clock.advance(3_600_000);
  assert.ok(isFailed("ext"));
  observe({ uplinks: uplinks.map((one) => ({ ...one, mode: "observe" })) });
  await clock.advance(59_000);
  assert.ok(isFailed("ext"));
  await clock.advance(2000);
  assert.ok(!isFailed("ext"), "it is not external any more");
  await stop();
});

test("UplinkHealth: what the process that probes reports lasts until it is withdrawn", async () => {
  const { clock, health, isFailed, stop } = setUp({ lan: {}, ext: { mode: "external" } }, { probe: { targets: [] } });
  const failure = { lastFailed: 5, lastError: "probe: a: timeout", lastWarning: "" };
  for (const name of ["lan", "ext"]) assert.ok(health.followStatus(name, failure));
  assert.ok(!health.followStatus("none", failure));
  await clock.advance(3_600_000);
  assert.ok(isFailed("lan") && isFailed("ext"));
  for (const destination of ["a", "b", "c"]) health.dialFailed("lan", destination, "timeout", "", HOW);
  await clock.advance(61_000);
  assert.ok(isFailed("lan"), "the other process still says so");
  assert.deepEqual(
    ["lan", "ext", "none"].map((name) => health.withdrawStatus(name)),
    [true, false, true],
  );
  assert.ok(!isFailed("lan") && isFailed("ext"), "the agent of an external uplink decides");
  health.followStatus("lan", failure);
  health.firstByte("lan", "a");
  assert.ok(!isFailed("lan"));
  await clock.advance(3000);
  for (const destination of ["a", "b", "c"]) health.dialFailed("lan", destination, "timeout", "", HOW);
  assert.ok(health.withdrawStatus("lan") && isFailed("lan"), "that is what this process has found itself");
  await stop();
});
