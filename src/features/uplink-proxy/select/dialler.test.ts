import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Deferred } from "#base/async";
import { IpAddress } from "#base/ip";
import type { Snapshot } from "#base/uplink-model";
import { DnsError } from "../dns/index.ts";
import { destinationOf } from "../policy/index.ts";
import { type Behaviour, DiallerBed } from "../testing/dialler-bed.ts";
import { snapshotOf, uplink } from "../testing/proxy-fixtures.ts";

const A = "192.0.2.10";
const B = "198.51.100.10";
const C = "203.0.113.10";
const TARGET = "203.0.113.80:443";
/** Uniform in [0, 1), the same numbers each time (Park and Miller). */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}

const two = [uplink("eth0", { sources: [A] }), uplink("eth1", { sources: [B], cost: 1 })];

test("Dialler: the cheapest uplink that connects, and nothing is asked of the others", async () => {
  const bed = new DiallerBed({ [A]: 0, [B]: 0 });
  assert.equal(await bed.outcome(bed.request(snapshotOf(two))), `eth0 from ${A}`);
  assert.deepEqual(bed.log, [`0 ${A}`]);
  assert.deepEqual(bed.evidence.lines, ["dialled eth0 203.0.113.80:443"]);
  assert.equal(bed.clock.pending, 0);
});

test("Dialler: attempts go in ascending cost, at once after a failure, and the error names each", async () => {
  const bed = new DiallerBed({ [A]: "EADDRNOTAVAIL", [B]: "ECONNREFUSED", [C]: "ENETUNREACH" });
  bed.present = new Set([B, C]);
  const uplinks = [
    uplink("eth2", { sources: [C], cost: 20 }),
    uplink("eth0", { sources: [A], cost: 0 }),
    uplink("eth1", { sources: [B], cost: 10 }),
  ];
  assert.equal(
    await bed.outcome(bed.request(snapshotOf(uplinks))),
    "dial-failed: all attempts to 203.0.113.80:443 failed; " +
      `eth0/${A}(cost=0): cannot assign requested address; eth1/${B}(cost=10): connection refused; ` +
      `eth2/${C}(cost=20): network is unreachable`,
  );
  assert.deepEqual(bed.log, [`0 ${A}`, `0 ${B}`, `0 ${C}`]);
  assert.equal(bed.refreshes, 1);
  assert.deepEqual(bed.evidence.lines, [
    "failed eth0 203.0.113.80:443 address-gone",
    "failed eth1 203.0.113.80:443 refused",
    "failed eth2 203.0.113.80:443 unreachable",
  ]);
  assert.deepEqual(bed.penalties.list(), []);
});

test("Dialler: used-up ports are not taken for a lost address", async () => {
  const bed = new DiallerBed({ [A]: "EADDRNOTAVAIL" });
  await bed.outcome(bed.request(snapshotOf([uplink("eth0", { sources: [A] })])));
  assert.deepEqual(bed.evidence.lines, ["failed eth0 203.0.113.80:443 ports-exhausted"]);
  assert.equal(bed.refreshes, 0);
  assert.deepEqual(bed.penalties.list(), []);
});

test("Dialler: a silent cheap uplink costs one request the tier's delay, and the next ones nothing", async () => {
  const bed = new DiallerBed({ [A]: "silent", [B]: 5 });
  assert.equal(await bed.outcome(bed.request(snapshotOf(two))), `eth1 from ${B}`);
  // A lost SYN is no dead uplink: it is sent again from another port.
  assert.deepEqual(bed.log, [`0 ${A}`, `1000 ${A}`, `2000 ${A}`, `3000 ${B}`]);
  assert.ok(bed.clock.monotonic() <= 3500, `${bed.clock.monotonic()}`);
  assert.equal(bed.open, 0);
  assert.deepEqual(bed.evidence.lines, ["dialled eth1 203.0.113.80:443", "failed eth0 203.0.113.80:443 timeout"]);
  const before = bed.clock.monotonic();
  assert.equal(await bed.outcome(bed.request(snapshotOf(two))), `eth1 from ${B}`);
  assert.ok(bed.clock.monotonic() - before <= 50);
});

test("Dialler: the patience begins when the uplink's own servers have given the name", async () => {
  const bed = new DiallerBed({ [A]: 2900, [B]: 5 });
  bed.resolve = async (_name, way) => {
    await new Promise<void>((resolve) => bed.clock.after(2000, resolve));
    return { addresses: [IpAddress.parse("203.0.113.80")], via: way.name, isStale: false };
  };
  assert.equal(await bed.outcome(bed.request(snapshotOf(two), {}, "a.example")), `eth0 from ${A}`);
  assert.ok(!bed.log.some((line) => line.endsWith(B)), bed.log.join());
});

test("Dialler: a slow uplink without loss leaves nothing to a more expensive one, whatever its round-trip time is, also when that changes", async () => {
  for (const rttMs of [5, 300, 1200, 2000]) {
    const bed = new DiallerBed({ [A]: rttMs, [B]: 5 });
    for (let dial = 0; dial < 20; dial += 1) {
      // It is five times as fast now and then.
      bed.behaviours = { [A]: dial % 5 === 4 ? rttMs / 5 : rttMs, [B]: 5 };
      const host = `203.0.113.${dial}`;
      assert.equal(await bed.outcome(bed.request(snapshotOf(two), {}, host)), `eth0 from ${A}`, `${rttMs} ${dial}`);
    }
    assert.deepEqual([bed.log.some((line) => line.endsWith(B)), bed.penalties.list()], [false, []], `${rttMs}`);
    assert.ok(!bed.evidence.lines.some((line) => line.startsWith("failed")), bed.evidence.lines.join());
  }
});

test("Dialler: with 10 % of all packets lost each way at most 2 of 1,000 dials go to a more expensive uplink", async () => {
  for (const rttMs of [30, 1200]) {
    const random = seeded(rttMs);
    const bed = new DiallerBed({ [B]: 5 });
    // As the kernel does, only SYNs that were not repeated are measured.
    bed.rttOf = (tookMs) => (tookMs === rttMs ? tookMs : undefined);
    // The kernel sends a SYN after 0, 1, 3 and 7 s; each of them, and its answer, may be lost.
    bed.behave = () => {
      const sentAt = [0, 1000, 3000, 7000].find(() => random() >= 0.1 && random() >= 0.1);
      return sentAt === undefined ? "silent" : sentAt + rttMs;
    };
    for (let dial = 0; dial < 1000; dial += 1)
      await bed.outcome(bed.request(snapshotOf(two), {}, `203.0.${dial >> 8}.${dial & 255}`));
    const dear = bed.log.filter((line) => line.endsWith(B)).length;
    assert.ok(dear <= 2, `${dear} at ${rttMs} ms`);
    await bed.clock.advance(20_000);
    assert.deepEqual([bed.open, bed.clock.pending], [0, 0]);
  }
});

test("Dialler: an uplink that loses its link while it is dialled has failed at once; one that never had a link goes on", async () => {
  const bed = new DiallerBed({ [A]: "silent", [B]: "silent", [C]: 5 });
  const first = uplink("a", { sources: [A] });
  const rest = [uplink("b", { sources: [B], cost: 1, isUp: false }), uplink("c", { sources: [C], cost: 2 })];
  const dialled = bed.dialler.dial(bed.request(snapshotOf([first, ...rest])));
  await bed.clock.advance(100);
  bed.dialler.snapshotChanged(snapshotOf([first, ...rest]));
  await bed.clock.advance(100);
  assert.deepEqual(bed.log, [`0 ${A}`]);
  bed.dialler.snapshotChanged(snapshotOf([{ ...first, isUp: false }, ...rest]));
  await bed.clock.advance(100);
  bed.dialler.snapshotChanged(snapshotOf(rest));
  await bed.clock.advance(3000);
  const won = await dialled;
  assert.deepEqual(bed.log, [`0 ${A}`, `200 ${B}`, `1200 ${B}`, `2200 ${B}`, `3200 ${C}`]);
  assert.equal(won.uplink?.name, "c");
  assert.deepEqual(
    won.failures.map(({ uplink: name, text }) => `${name}: ${text}`),
    ["a: network is down", "b: no answer came within 3000 ms"],
  );
});

test("Dialler: `timeout` between tiers is strictly one after the other", async () => {
  const bed = new DiallerBed({ [A]: "silent", [B]: 5 }, { tierDelayMs: "timeout" });
  assert.equal(await bed.outcome(bed.request(snapshotOf(two, { dialTimeoutMs: 4000 }))), `eth1 from ${B}`);
  assert.deepEqual(bed.log, [`0 ${A}`, `1000 ${A}`, `2000 ${A}`, `4000 ${B}`]);
  assert.deepEqual(bed.evidence.lines[0], "failed eth0 203.0.113.80:443 timeout");
});

test("Dialler: uplinks of one cost start 250 ms apart, and the first connection wins", async () => {
  const bed = new DiallerBed({ [A]: "silent", [B]: 600, [C]: 100 });
  const uplinks = [A, B, C].map((source, at) => uplink(`eth${at}`, { sources: [source] }));
  assert.equal(await bed.outcome(bed.request(snapshotOf(uplinks))), `eth2 from ${C}`);
  assert.deepEqual(bed.log, [`0 ${A}`, `250 ${B}`, `500 ${C}`]);
  // The attempts that were overtaken go on by themselves.
  assert.equal(bed.open, 2);
  await bed.clock.advance(10_000);
  assert.equal(bed.open, 0);
  assert.equal(bed.connections.filter(({ isDestroyed }) => !isDestroyed).length, 1);
});

test("Dialler: a dead uplink of equal cost is counted each time that its equal overtakes it, and is paid for three times", async () => {
  const equals = snapshotOf([A, B].map((source, at) => uplink(`eth${at}`, { sources: [source] })));
  const bed = new DiallerBed({ [A]: "silent", [B]: 5 });
  const tookMs: number[] = [];
  const failed: string[] = [];
  for (let dial = 0; dial < 10; dial += 1) {
    const before = bed.clock.monotonic();
    bed.dialler.dial(bed.request(equals)).then(({ uplink: via, failures }) => {
      assert.equal(via?.name, "eth1");
      tookMs.push(bed.clock.monotonic() - before);
      failed.push(...failures.map(({ uplink: name, text }) => `${name}: ${text}`));
    }, assert.fail);
    await bed.clock.advance(300);
  }
  assert.deepEqual(tookMs, [255, 255, 255, 5, 5, 5, 5, 5, 5, 5]);
  assert.deepEqual(failed, Array(3).fill("eth0: no answer came within 255 ms"));
  // What was begun goes on, one attempt at a time, until the uplink has had its time: only then its silence is held against it.
  assert.deepEqual([bed.open <= 3, bed.evidence.lines.includes(`failed eth0 ${TARGET} timeout`)], [true, false]);
  await bed.clock.advance(10_000);
  assert.deepEqual([bed.open, bed.evidence.lines.includes(`failed eth0 ${TARGET} timeout`)], [0, true]);
  // It was counted when it was overtaken.
  assert.deepEqual(bed.late, []);
  // It works again: once the penalty has ended both have their share, and nothing of before is made up for.
  bed.behaviours = { [A]: 5, [B]: 5 };
  await bed.clock.advance(60_000);
  const vias = [];
  for (let dial = 0; dial < 100; dial += 1) vias.push(await bed.outcome(bed.request(equals)));
  const first = vias.filter((via) => via.startsWith("eth0")).length;
  assert.ok(first >= 40 && first <= 60, `${first}`);
});

test("Dialler: an uplink of equal cost that is only slower is tried later, but has not failed", async () => {
  const bed = new DiallerBed({ [A]: 600, [B]: 5 });
  const equals = snapshotOf([A, B].map((source, at) => uplink(`eth${at}`, { sources: [source] })));
  const tookMs: number[] = [];
  for (let dial = 0; dial < 20; dial += 1) {
    const before = bed.clock.monotonic();
    bed.dialler.dial(bed.request(equals)).then(() => tookMs.push(bed.clock.monotonic() - before), assert.fail);
    await bed.clock.advance(1000);
  }
  assert.deepEqual(tookMs, [255, 255, 255, ...Array(17).fill(5)]);
  assert.deepEqual(
    bed.evidence.lines.filter((line) => !line.startsWith("dialled")),
    [],
  );
  // Each time that the penalty has ended it is tried once, and is taken where nobody is faster.
  await bed.clock.advance(13_000);
  bed.behaviours = { [A]: 600, [B]: "ECONNREFUSED" };
  assert.equal(await bed.outcome(bed.request(equals)), `eth0 from ${A}`);
  assert.equal(bed.connections.filter(({ isDestroyed }) => !isDestroyed).length, 21);
});

test("Dialler: a cheaper uplink that connects in the same moment wins over a more expensive one", async () => {
  const [cheap, dear] = [new Deferred(), new Deferred()];
  const bed = new DiallerBed({ [A]: cheap, [B]: dear });
  bed.clock.after(3100, () => {
    dear.resolve();
    cheap.resolve();
  });
  assert.equal(await bed.outcome(bed.request(snapshotOf(two))), `eth0 from ${A}`);
  assert.deepEqual(
    bed.connections.filter(({ isDestroyed }) => !isDestroyed).map(({ source }) => source),
    [A],
  );
  assert.ok(bed.connections.some(({ source }) => source === B));
});

test("Dialler: a failed uplink is the last resort, but it is tried, and the cost limit holds all the same", async () => {
  const status = { lastFailed: 2, lastSucceeded: 1, lastError: "x", lastWarning: "" };
  const failed = uplink("eth0", { sources: [A], status });
  const bed = new DiallerBed({ [A]: 0, [B]: 0 });
  assert.equal(await bed.outcome(bed.request(snapshotOf([failed, two[1] ?? failed]))), `eth1 from ${B}`);
  // eth1 is too dear: the reference then made no attempt at all.
  assert.equal(
    await bed.outcome(bed.request(snapshotOf([failed, two[1] ?? failed], { maxCost: 0 }))),
    `eth0 from ${A}`,
  );
});

test("Dialler: an uplink that is down, has failed, costs too much or was tried is no alternative", () => {
  const bed = new DiallerBed({});
  const status = { lastFailed: 2, lastSucceeded: 1, lastError: "x", lastWarning: "" };
  const others: readonly (readonly [Parameters<typeof uplink>[1], boolean])[] = [
    [{}, true],
    [{ isUp: false }, false],
    [{ status }, false],
    [{ cost: 3 }, false],
    [{ isManagement: false }, false],
  ];
  for (const [fields, expected] of others) {
    const uplinks = [uplink("eth0", { sources: [A] }), uplink("eth1", { sources: [B], ...fields })];
    const request = bed.request(snapshotOf(uplinks, { maxCost: 2 }));
    const has = bed.dialler.hasAlternative({ ...request, except: new Set(["eth0"]) });
    assert.equal(has, expected, JSON.stringify(fields));
    assert.equal(bed.dialler.hasAlternative({ ...request, except: new Set(["eth0", "eth1"]) }), false);
  }
});

test("Dialler: no attempt without a ready state, a management uplink, a cost in bounds, or a usable address", async () => {
  const bed = new DiallerBed({ [A]: 0, [B]: 0 });
  const cases: readonly (readonly [Snapshot, string])[] = [
    [snapshotOf(two, { ready: false }), "not-ready: the uplinks are not known yet for 203.0.113.80:443"],
    [snapshotOf([]), "no-uplink: no management interfaces available for 203.0.113.80:443"],
    [
      snapshotOf([uplink("eth0", { isManagement: false })]),
      "no-uplink: no management interfaces available for 203.0.113.80:443",
    ],
    [
      snapshotOf([uplink("eth0", { isL3: false })]),
      "no-uplink: no management interfaces available for 203.0.113.80:443",
    ],
    [
      snapshotOf([uplink("eth0", { isValid: false })]),
      "no-uplink: no management interfaces available for 203.0.113.80:443",
    ],
    [
      snapshotOf([uplink("eth0", { cost: 3 })], { maxCost: 2 }),
      "cost-limit: no uplink within max cost 2 for 203.0.113.80:443",
    ],
    [
      snapshotOf([uplink("eth0", { sources: ["169.254.1.1"] })]),
      "no-uplink: no management interfaces available for 203.0.113.80:443",
    ],
    [
      snapshotOf([uplink("eth0", { sources: ["2001:db8::1"] })]),
      "no-uplink: no uplink has an IPv4 address for 203.0.113.80:443",
    ],
  ];
  for (const [snapshot, expected] of cases) assert.equal(await bed.outcome(bed.request(snapshot)), expected);
  assert.deepEqual(bed.log, []);
  assert.deepEqual(bed.evidence.lines, []);
});

test("Dialler: the whole request ends with its deadline, as a timeout that penalises the silent uplinks", async () => {
  const bed = new DiallerBed({}, { requestTimeoutMs: 8000 });
  const outcome = await bed.outcome(bed.request(snapshotOf(two)));
  assert.match(outcome, /^timeout: all attempts .* eth0.*: i\/o timeout; eth1.*: i\/o timeout$/);
  assert.ok(bed.clock.monotonic() <= 8010);
  assert.deepEqual(
    bed.penalties.list().map(({ uplink: name }) => name),
    ["eth0", "eth1"],
  );
  assert.equal(bed.open, 0);
});

test("Dialler: a client that leaves ends everything at once, and nothing of it is a failure", async () => {
  const bed = new DiallerBed({});
  const client = new AbortController();
  const dialled = bed.dialler.dial(bed.request(snapshotOf(two), { signal: client.signal }));
  dialled.catch(() => undefined);
  await bed.clock.advance(3500);
  assert.equal(bed.open, 4);
  client.abort(new Error("left"));
  await assert.rejects(dialled, /left/);
  await bed.clock.advance(0);
  assert.equal(bed.open, 0);
  assert.deepEqual(bed.evidence.lines, []);
  assert.deepEqual(bed.penalties.list(), []);
  await bed.clock.advance(60_000);
  assert.equal(bed.clock.pending, 0);
});

test("Dialler: IPv6 first, IPv4 after 250 ms, each from a source of its family; a family without a source is not tried", async () => {
  const six = "2001:db8::10";
  const answers = ["203.0.113.80", "2001:db8:1::80"].map((text) => IpAddress.parse(text));
  const bed = new DiallerBed({ [six]: "silent", [A]: 0, [B]: 0 });
  bed.resolve = async () => ({ addresses: answers, via: "eth0", isStale: false });
  const dual = uplink("eth0", { sources: [A, six] });
  assert.equal(await bed.outcome(bed.request(snapshotOf([dual]), {}, "a.example")), `eth0 from ${A}`);
  assert.deepEqual(bed.log, [`0 ${six} v6`, `250 ${A}`]);
  bed.log.length = 0;
  const only6 = snapshotOf([uplink("eth0", { sources: [A] }), uplink("eth1", { sources: [six], cost: 1 })]);
  bed.behaviours = { [six]: 0, [A]: 0 };
  assert.equal(await bed.outcome(bed.request(only6, {}, "2001:db8:1::80")), `eth1 from ${six}`);
  assert.equal(bed.log.length, 1);
});

test("Dialler: an uplink that has its name only when its time is over is dialled before a more expensive one; one without is not waited for", async () => {
  const answers = { addresses: [IpAddress.parse("203.0.113.80")], via: "eth0", isStale: false };
  const bed = new DiallerBed({ [A]: 5, [B]: 5 });
  bed.resolve = async () => {
    await new Promise<void>((resolve) => bed.clock.after(3100, resolve));
    return { ...answers, via: "system" };
  };
  assert.equal(await bed.outcome(bed.request(snapshotOf(two), {}, "a.example")), `eth0 from ${A}`);
  assert.deepEqual(bed.log, [`3100 ${A}`]);
  const silent = new DiallerBed({ [A]: 5, [B]: 5 });
  silent.resolve = async (_name, way) => {
    if (way.name === "eth0") await new Deferred().promise;
    return answers;
  };
  assert.equal(await silent.outcome(silent.request(snapshotOf(two), {}, "a.example")), `eth1 from ${B}`);
  assert.deepEqual(silent.log, [`3250 ${B}`]);
});

test("Dialler: a name is resolved for each uplink by its own DNS; a DNS failure is the next uplink's chance", async () => {
  const bed = new DiallerBed({ [A]: 0, [B]: 0 });
  const asked: string[] = [];
  bed.resolve = async (_name, way) => {
    asked.push(way.name);
    if (way.name === "eth0") throw new DnsError("not-found", "no such host");
    return { addresses: [IpAddress.parse("203.0.113.81")], via: way.name, isStale: false };
  };
  assert.equal(await bed.outcome(bed.request(snapshotOf(two), {}, "a.example")), `eth1 from ${B}`);
  assert.deepEqual(asked, ["eth0", "eth1"]);
  assert.deepEqual(bed.penalties.list(), []);
  bed.resolve = async () => {
    throw new DnsError("not-found", "no such host");
  };
  assert.match(await bed.outcome(bed.request(snapshotOf(two), {}, "b.example")), /^dns: .*\(cost=0\): no such host/);
});

test("Dialler: one denied answer denies the request, before anything is dialled", async () => {
  const bed = new DiallerBed({ [A]: 0, [B]: 0 });
  bed.resolve = async () => ({
    addresses: ["203.0.113.81", "127.0.0.1"].map((text) => IpAddress.parse(text)),
    via: "eth0",
    isStale: false,
  });
  const judge = (addresses: readonly IpAddress[]) =>
    addresses.some(({ isLoopback }) => isLoopback) ? ("denied" as const) : ("uplink" as const);
  assert.match(await bed.outcome(bed.request(snapshotOf(two), { judge }, "a.example")), /^denied: /);
  bed.hosts.set("localhost", [IpAddress.parse("127.0.0.1")]);
  assert.match(await bed.outcome(bed.request(snapshotOf(two), { judge }, "localhost")), /^denied: /);
  assert.match(await bed.outcome(bed.request(snapshotOf(two), { judge }, "127.0.0.1")), /^denied: /);
  assert.deepEqual(bed.log, []);
});

test("Dialler: destinations of the bypass set are dialled unbound, also without any uplink", async () => {
  const bed = new DiallerBed({ unbound: 0 });
  const judge = () => "direct" as const;
  assert.equal(await bed.outcome(bed.request(snapshotOf([]), { judge }, "10.43.0.1")), "direct from unbound");
  bed.behaviours = { unbound: "ECONNREFUSED" };
  assert.match(
    await bed.outcome(bed.request(snapshotOf([]), { judge }, "10.43.0.1")),
    /^dial-failed: .*direct.*refused/,
  );
  assert.deepEqual(bed.evidence.lines, []);
});

test("Dialler: a name that leads into the bypass set is dialled once, unbound, and its failure is no uplink's", async () => {
  const bed = new DiallerBed({ [A]: 0, [B]: 0 });
  const near = { addresses: [IpAddress.parse("10.43.0.1")], via: "eth0", isStale: false };
  bed.resolve = async (_name, way) => {
    if (way.name === "eth0") await new Promise<void>((resolve) => bed.clock.after(300, resolve));
    return near;
  };
  const judge = () => "direct" as const;
  const equals = snapshotOf([A, B].map((source, at) => uplink(`eth${at}`, { sources: [source] })));
  const dial = (snapshot: Snapshot): Promise<string> => bed.outcome(bed.request(snapshot, { judge }, "registry.lan"));
  bed.behaviours = { unbound: 0 };
  const first = bed.dialler.dial(bed.request(snapshotOf(two), { judge }, "registry.lan"));
  await bed.clock.advance(400);
  // The first answer decides, and it is known whose it was.
  assert.equal((await first).nameFrom, "eth0");
  assert.equal(await dial(equals), "direct from unbound");
  bed.behaviours = { unbound: "EHOSTUNREACH" };
  assert.equal(
    await dial(snapshotOf(two)),
    "dial-failed: all attempts to registry.lan:443 failed; direct/(cost=0): no route to host",
  );
  bed.behaviours = {};
  assert.equal(
    await dial(snapshotOf(two)),
    "timeout: all attempts to registry.lan:443 failed; direct/(cost=0): i/o timeout",
  );
  // A trial too says nothing of the uplink.
  bed.penalties.add("registry.lan:443", "eth0");
  await bed.clock.advance(bed.selection.penaltyMs + 1);
  await dial(snapshotOf(two));
  assert.equal(bed.penalties.stateOf("registry.lan:443", "eth0"), "probation");
  assert.deepEqual([bed.log.length, bed.log.every((line) => line.endsWith("unbound"))], [5, true]);
  assert.deepEqual([bed.evidence.lines, bed.penalties.list(), bed.open], [[], [], 0]);
});

test("Dialler: without an uplink a name is asked of near servers alone, and reached if it leads into the bypass set", async () => {
  const bed = new DiallerBed({ unbound: 0 });
  const asked: string[] = [];
  let answer = "10.43.0.1";
  bed.resolveNear = async (name, isNear) => {
    asked.push(name, ...["127.0.0.53", "10.43.0.10", "192.0.2.53"].filter((text) => isNear(IpAddress.parse(text))));
    return { addresses: [IpAddress.parse(answer)], via: "system", isStale: false };
  };
  const judge = ([address]: readonly IpAddress[]) => {
    const text = `${address}`;
    if (text.startsWith("10.43.")) return "direct" as const;
    return text.startsWith("127.") ? ("denied" as const) : ("uplink" as const);
  };
  const dial = (snapshot: Snapshot, host = "registry.lan"): Promise<string> =>
    bed.outcome(bed.request(snapshot, { judge }, host));
  const tooDear = snapshotOf([uplink("eth0", { sources: [A], cost: 3 })], { maxCost: 2 });
  assert.equal(await dial(snapshotOf([])), "direct from unbound");
  assert.equal(await dial(tooDear), "direct from unbound");
  assert.deepEqual(asked, ["registry.lan", "127.0.0.53", "10.43.0.10", "registry.lan", "10.43.0.10"]);
  answer = "203.0.113.80";
  assert.match(await dial(snapshotOf([])), /^no-uplink: no management interfaces available for registry.lan:443/);
  assert.match(await dial(tooDear), /^cost-limit: /);
  answer = "127.0.0.1";
  assert.match(await dial(snapshotOf([])), /^denied: /);
  bed.resolveNear = async () => {
    throw new DnsError("failed", "DNS did not answer");
  };
  assert.match(await dial(snapshotOf([])), /^no-uplink: /);
  bed.resolveNear = async () => assert.fail("asked");
  assert.match(await dial(snapshotOf([]), "203.0.113.80"), /^no-uplink: /);
  assert.match(
    await bed.outcome(bed.request(snapshotOf(two), { judge, except: new Set(["eth0", "eth1"]) }, "registry.lan")),
    /^no-uplink: /,
  );
  assert.deepEqual([bed.log.length, bed.evidence.lines], [2, []]);
});

test("Dialler: no near server is asked to which an uplink leads that costs too much, nor one on loopback that would ask over it", async () => {
  const servers = ["127.0.0.53", "192.0.2.53", "10.43.0.10"];
  const asked = async (fields: Parameters<typeof uplink>[1]): Promise<string[]> => {
    const bed = new DiallerBed({});
    let near: string[] = [];
    bed.resolveNear = async (_name, isNear) => {
      near = servers.filter((text) => isNear(IpAddress.parse(text)));
      throw new DnsError("failed", "DNS did not answer");
    };
    const uplinks = [uplink("eth0", { sources: [A], cost: 3, ...fields })];
    // The node's own address is one of the uplink that costs too much.
    const judge = ([address]: readonly IpAddress[]) =>
      /^(10\.43|192\.0\.2)\./.test(`${address}`) ? ("direct" as const) : ("uplink" as const);
    await bed.outcome(bed.request(snapshotOf(uplinks, { maxCost: 2 }), { judge }, "registry.lan"));
    return near;
  };
  assert.deepEqual(await asked({}), ["10.43.0.10"]);
  assert.deepEqual(await asked({ isManagement: false }), ["10.43.0.10"]);
  assert.deepEqual(await asked({ sources: [B] }), ["192.0.2.53", "10.43.0.10"]);
  // It carries nothing, or may carry it.
  assert.deepEqual(await asked({ isUp: false }), servers);
  assert.deepEqual(await asked({ sources: [] }), servers);
  assert.deepEqual(await asked({ cost: 2, isValid: false }), servers);
});

test("Dialler: equal uplinks share 100 requests evenly, for one destination, for two that alternate, and all at once", async () => {
  const uplinks = snapshotOf([A, B].map((source, at) => uplink(`eth${at}`, { sources: [source] })));
  const bed = new DiallerBed({ [A]: 0, [B]: 0 });
  const count = async (hosts: readonly string[]): Promise<Map<string, number>> => {
    const counts = new Map<string, number>();
    for (let at = 0; at < 100; at += 1) {
      const host = hosts[at % hosts.length] ?? "";
      const via = await bed.outcome(bed.request(uplinks, {}, host));
      counts.set(`${host} ${via}`, (counts.get(`${host} ${via}`) ?? 0) + 1);
    }
    return counts;
  };
  for (const [key, share] of await count(["203.0.113.1"])) assert.ok(share >= 45 && share <= 55, `${key}: ${share}`);
  const alternating = await count(["203.0.113.2", "203.0.113.3"]);
  assert.equal(alternating.size, 4);
  for (const [key, share] of alternating) assert.ok(share >= 22 && share <= 28, `${key}: ${share}`);
  bed.behaviours = { [A]: 50, [B]: 50 };
  const atOnce = await Promise.all(Array.from({ length: 100 }, () => bed.outcome(bed.request(uplinks))));
  const first = atOnce.filter((via) => via.startsWith("eth0")).length;
  assert.ok(first >= 40 && first <= 60, `${first}`);
});

test("Dialler: whatever happens, nothing more expensive than the limit, unusable or of another family is dialled (property)", async () => {
  const sources = [A, B, C, "2001:db8::10", "fe80::1", "169.254.7.7"];
  const anUplink = fc.record({
    cost: fc.integer({ min: 0, max: 3 }),
    isManagement: fc.boolean(),
    isL3: fc.boolean(),
    isValid: fc.boolean(),
    weight: fc.integer({ min: 1, max: 3 }),
    sources: fc.uniqueArray(fc.constantFrom(...sources), { maxLength: 3 }),
    isFailed: fc.boolean(),
  });
  const behaviour = fc.constantFrom<Behaviour>("silent", 0, 100, 3000, "ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL");
  await fc.assert(
    fc.asyncProperty(
      fc.array(anUplink, { maxLength: 4 }),
      fc.array(behaviour, { minLength: sources.length, maxLength: sources.length }),
      fc.integer({ min: 0, max: 3 }),
      fc.boolean(),
      fc.array(fc.nat(3), { maxLength: 3 }),
      async (drafts, behaviours, maxCost, isSix, penalised) => {
        const bed = new DiallerBed(
          Object.fromEntries(sources.map((source, at) => [source, behaviours[at] ?? "silent"])),
        );
        const uplinks = drafts.map(({ isFailed, ...draft }, at) =>
          uplink(`eth${at}`, {
            ...draft,
            ...(isFailed ? { status: { lastFailed: 1, lastError: "x", lastWarning: "" } } : {}),
          }),
        );
        const host = isSix ? "2001:db8:1::80" : "203.0.113.80";
        for (const at of penalised) bed.penalties.add(destinationOf({ host, port: 443 }).text, `eth${at}`);
        const outcome = await bed.outcome(bed.request(snapshotOf(uplinks, { maxCost, dialTimeoutMs: 1000 }), {}, host));
        const allowed = uplinks.filter(
          (each) => each.isManagement && each.isL3 && each.isValid && each.cost <= maxCost,
        );
        const usable = new Set(
          allowed.flatMap(({ addresses }) =>
            addresses
              .filter(({ address, isUsable }) => isUsable && address.family === (isSix ? 6 : 4))
              .map(({ address }) => address.toString()),
          ),
        );
        for (const line of bed.log) assert.ok(usable.has(line.split(" ")[1] ?? ""), `${line} of ${outcome}`);
        if (usable.size === 0) assert.match(outcome, /^(no-uplink|cost-limit): /);
        await bed.clock.advance(40_000);
        assert.equal(bed.open, 0);
        assert.equal(bed.clock.pending, 0);
        assert.ok(bed.connections.filter(({ isDestroyed }) => !isDestroyed).length <= 1);
      },
    ),
    { numRuns: 60 },
  );
});

test("Dialler: if no uplink has an address of the destination's family, the error says so", async () => {
  const bed = new DiallerBed({});
  const text = await bed.outcome(bed.request(snapshotOf(two), {}, "2001:db8::1"));
  assert.equal(text, "no-uplink: no uplink has an IPv6 address for [2001:db8::1]:443");
});
