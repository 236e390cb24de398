import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { seeded } from "#test/seeded";
import {
  AWAY_MS,
  afterAnswer,
  afterRefusal,
  afterTime,
  BURST,
  CALM_MS,
  dueAt,
  HOLD_MS,
  MAX_HOLD_MS,
  newProbeState,
  PROBE_MS,
  type ProbeState,
  withNamespaces,
} from "./judge.ts";
import { type RouterVerdict, verdictFor } from "./witness.ts";

/** The time until the answer to a probe of a namespace, milliseconds; `undefined` for none. */
type Answers = (now: number, namespace: string) => number | undefined;

/** A router whose answer to each probe arrives after a time, or never; the simulated clock jumps from event to event. */
class World {
  now = 0;
  state: ProbeState;
  readonly sent: { readonly at: number; readonly by: string }[] = [];
  /** The changed verdicts for the clients of each namespace; "-" is a namespace without a witness. */
  readonly verdicts = new Map<string, { readonly at: number; readonly verdict: RouterVerdict }[]>();
  #answers: { readonly at: number; readonly to: string }[] = [];
  readonly #answerMs: Answers;

  constructor(answerMs: Answers, namespaces: readonly string[] = ["a"]) {
    this.#answerMs = answerMs;
    this.state = newProbeState(0, namespaces);
    for (const one of [...namespaces, "-"]) this.verdicts.set(one, []);
  }

  /** Runs until `until`. `stall`: the process does not run between these times. */
  run(until: number, stall?: { readonly from: number; readonly to: number }): this {
    for (;;) {
      const answer = this.#answers.toSorted((one, other) => one.at - other.at)[0];
      let next = Math.min(dueAt(this.state), answer?.at ?? Number.POSITIVE_INFINITY);
      if (stall !== undefined && next >= stall.from && next < stall.to) next = stall.to;
      if (next > until) break;
      this.now = Math.max(this.now, next);
      if (answer !== undefined && answer.at <= this.now && answer.at <= dueAt(this.state)) {
        this.#answers = this.#answers.filter((one) => one !== answer);
        this.#become(afterAnswer(this.state, answer.to, this.now));
        continue;
      }
      const { state, asks } = afterTime(this.state, this.now);
      this.#become(state);
      if (asks === undefined) continue;
      this.sent.push({ at: this.now, by: asks });
      const answerMs = this.#answerMs(this.now, asks);
      if (answerMs !== undefined) this.#answers.push({ at: this.now + answerMs, to: asks });
    }
    this.now = until;
    return this;
  }

  verdict(namespace: string): RouterVerdict {
    return verdictFor(this.state.witnesses, namespace);
  }

  /** The verdicts of a namespace, in their order. */
  story(namespace = "a"): RouterVerdict[] {
    return (this.verdicts.get(namespace) ?? []).map(({ verdict }) => verdict);
  }

  /** The most probes within a second. */
  get mostInASecond(): number {
    return Math.max(...this.sent.map(({ at }) => this.sent.filter((one) => one.at >= at && one.at < at + 1000).length));
  }

  #become(state: ProbeState): void {
    const before = this.state;
    this.state = state;
    for (const [namespace, verdicts] of this.verdicts) {
      const verdict = verdictFor(state.witnesses, namespace);
      if (verdict !== verdictFor(before.witnesses, namespace)) verdicts.push({ at: this.now, verdict });
    }
  }
}

const THREE = ["a", "b", "c"];

test("judge: a router that answers gets one probe a second, whoever its clients are", () => {
  for (const namespaces of [["a"], ["a", "b"], THREE, Array.from({ length: 50 }, (_, at) => `n${at}`)]) {
    const world = new World(() => 3, namespaces).run(60_000);
    const [first = ""] = namespaces;
    assert.deepEqual(world.verdicts.get(first), [{ at: 3, verdict: "alive" }]);
    assert.ok(world.sent.length <= 61 + 2, `${world.sent.length} probes of ${namespaces.length} namespaces`);
  }
});

test("judge: a router that has never answered is not judged, and gets one probe a second, of all namespaces in turn", () => {
  const namespaces = Array.from({ length: 20 }, (_, at) => `n${at}`);
  const world = new World(() => undefined, namespaces).run(60_000);
  assert.deepEqual(
    namespaces.flatMap((one) => world.story(one)),
    [],
  );
  assert.equal(world.sent.length, 61);
  assert.equal(new Set(world.sent.map(({ by }) => by)).size, 20);
});

test("judge: at whatever time a router stops answering, it is dead 1.8 s later, after 21 probes within a second", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 10_000, max: 11_999 }),
      fc.integer({ min: 0, max: 150 }),
      fc.constantFrom(["a"], ["a", "b"], THREE, [...THREE, "d", "e"]),
      (diesAt, rttMs, namespaces) => {
        const world = new World((now) => (now + rttMs / 2 < diesAt ? rttMs : undefined), namespaces);
        world.run(diesAt + 1800 + rttMs);
        for (const one of [...namespaces, ...(namespaces.length > 1 ? ["-"] : [])])
          assert.equal(world.verdict(one), "dead", one);
        const diedAt = world.verdicts.get("a")?.at(-1)?.at ?? 0;
        // A dead router is asked again two seconds after the first miss.
        const asked = world.sent.map(({ at }) => at).filter((at) => at + rttMs / 2 >= diesAt && at <= diedAt);
        assert.equal(asked.length, 1 + BURST);
        assert.ok((asked.at(-1) ?? 0) - (asked[0] ?? 0) < 1000);
      },
    ),
    { numRuns: 500 },
  );
});

test("judge: a single answer in the burst ends it, and the next probe keeps its time", () => {
  let probes = 0;
  const world = new World(() => {
    probes += 1;
    return probes === 2 || probes === 3 ? undefined : 5;
  }).run(1000 + 400);
  assert.deepEqual(world.verdicts.get("a"), [{ at: 5, verdict: "alive" }]);
  const times = (): number[] => world.sent.map(({ at }) => at);
  assert.deepEqual(times(), [0, 1000, 1200, 1220]);
  world.run(2500);
  assert.deepEqual(times(), [0, 1000, 1200, 1220, 2000]);
});

test("judge: 30 % loss each way for ten minutes does not look like death to anybody, and costs less than five probes a second", () => {
  for (const namespaces of [["a"], ["a", "b"], THREE])
    for (let seed = 1; seed <= 40; seed += 1) {
      const random = seeded(seed);
      const world = new World(() => (random() < 0.3 || random() < 0.3 ? undefined : 2 + 20 * random()), namespaces);
      world.run(600_000);
      for (const one of namespaces)
        assert.deepEqual(world.story(one), ["alive"], `seed ${seed}, ${one} of ${namespaces}`);
      assert.ok(world.sent.length < 3000, `${world.sent.length} probes`);
    }
});

test("judge: answers that take up to 700 ms are no death", () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 700 }), fc.constantFrom(["a"], ["a", "b"], THREE), (rttMs, namespaces) => {
      const world = new World(() => rttMs, namespaces).run(60_000);
      for (const one of namespaces) assert.deepEqual(world.story(one), ["alive"], one);
    }),
  );
});

test("judge: a process that stood still, at whatever time, condemns nobody", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 5000, max: 6999 }),
      fc.integer({ min: 700, max: 30_000 }),
      fc.constantFrom(["a"], THREE),
      (from, lengthMs, namespaces) => {
        // Answers to what was sent before arrive, but are read after the timers of the same moment.
        const world = new World(() => 10, namespaces).run(60_000, { from, to: from + lengthMs });
        for (const one of namespaces) assert.deepEqual(world.story(one), ["alive"], one);
      },
    ),
    { numRuns: 300 },
  );
});

test("judge: a namespace that drops its answers finds the router dead alone, and where there are three nobody does", () => {
  const drops: Answers = (now, by) => (by === "a" && now >= 5000 ? undefined : 3);
  const two = new World(drops, ["a", "b"]).run(120_000);
  assert.deepEqual([two.story("a"), two.story("b"), two.verdict("-")], [["alive", "dead"], ["alive"], "alive"]);
  const three = new World(drops, THREE).run(120_000);
  for (const one of [...THREE, "-"]) assert.deepEqual(three.story(one), ["alive"], one);
  for (const world of [two, three]) assert.ok(world.mostInASecond <= 31, `${world.mostInASecond} probes`);
  // Clients of a namespace that comes later do not take its word either.
  const alone = new World(drops).run(20_000);
  assert.deepEqual([alone.verdict("a"), alone.verdict("-")], ["dead", "unproven"]);
  alone.state = withNamespaces(alone.state, ["a", "late"]);
  alone.run(40_000);
  assert.deepEqual([alone.verdict("a"), alone.verdict("late")], ["dead", "alive"]);
});

test("judge: a namespace that forges answers keeps a dead router for nobody but itself, and delays the verdict by a second at most", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 10_000, max: 12_999 }),
      fc.constantFrom("a", "b", "c"),
      fc.integer({ min: 0, max: 190 }),
      (diesAt, forger, forgedMs) => {
        const answers: Answers = (now, by) => (by === forger ? forgedMs : now < diesAt ? 3 : undefined);
        const three = new World(answers, THREE).run(diesAt + 3100);
        for (const one of [...THREE, "-"]) assert.equal(three.verdict(one), "dead", one);
        three.run(diesAt + 60_000);
        for (const one of [...THREE, "-"]) assert.deepEqual(three.story(one).at(-1), "dead", one);
        assert.ok(three.mostInASecond <= 31, `${three.mostInASecond} probes`);
        if (forger === "c") return;
        const two = new World(answers, ["a", "b"]).run(diesAt + 60_000);
        assert.deepEqual([two.verdict(forger), two.verdict(forger === "a" ? "b" : "a")], ["alive", "dead"]);
        assert.ok(two.mostInASecond <= 32, `${two.mostInASecond} probes`);
      },
    ),
    { numRuns: 200 },
  );
});

test("judge: forged answers of a router that answers no probes make nobody else judge it", () => {
  for (const namespaces of [["a", "b"], THREE, [...THREE, "d", "e", "f"]]) {
    const world = new World((_now, by) => (by === "a" ? 3 : undefined), namespaces).run(60_000);
    for (const one of [...namespaces.slice(1), "-"]) assert.deepEqual(world.story(one), [], one);
    assert.ok(world.sent.length < 61 + 60 / 5 + 10, `${world.sent.length} probes`);
  }
});

test("judge: of many namespaces those without answers give way to those that have some", () => {
  const namespaces = Array.from({ length: 12 }, (_, at) => `n${at}`);
  const world = new World((now, by) => (Number(by.slice(1)) >= 9 && now < 200_000 ? 3 : undefined), namespaces);
  world.run(200_000);
  assert.deepEqual(
    namespaces.map((one) => world.verdict(one)),
    namespaces.map(() => "alive"),
  );
  world.run(202_000);
  assert.deepEqual(
    namespaces.map((one) => world.verdict(one)),
    namespaces.map(() => "dead"),
  );
});

test("judge: a dead router gets one probe a second, and is alive again when it has answered for ten seconds", () => {
  for (const namespaces of [["a"], ["a", "b"], THREE]) {
    const world = new World((now) => (now < 5000 || now >= 30_000 ? 5 : undefined), namespaces).run(60_000);
    for (const one of namespaces) {
      assert.deepEqual(world.story(one), ["alive", "dead", "returning", "alive"], one);
      const [, , returning, alive] = world.verdicts.get(one) ?? [];
      const heldMs = (alive?.at ?? 0) - (returning?.at ?? 0);
      assert.ok(heldMs >= HOLD_MS && heldMs <= HOLD_MS + 3 * PROBE_MS, `${heldMs} ms`);
    }
    const silent = world.sent.filter(({ at }) => at >= 8000 && at < 30_000);
    assert.ok(silent.length <= 23, `${silent.length} probes`);
  }
});

test("judge: a router that stalls again and again must answer longer each time, up to 160 s; ten quiet minutes end that", () => {
  const diesAt: number[] = [];
  // It stalls for two seconds as soon as it is alive.
  let stallsAt = 5000;
  const world = new World((now) => (now >= stallsAt && now < stallsAt + 2000 ? undefined : 5));
  for (let round = 0; round < 8; round += 1) {
    world.run(stallsAt + 2000);
    assert.equal(world.verdict("a"), "dead");
    diesAt.push(stallsAt);
    while (world.verdict("a") !== "alive") world.run(world.now + 100);
    stallsAt = world.now + 100;
  }
  const pauses = diesAt.slice(1).map((at, index) => Math.round((at - (diesAt[index] ?? 0)) / 10_000) * 10_000);
  assert.deepEqual(pauses, [10_000, 20_000, 40_000, 80_000, MAX_HOLD_MS, MAX_HOLD_MS, MAX_HOLD_MS]);
  stallsAt = world.now + CALM_MS;
  world.run(stallsAt + 2000);
  const since = world.now;
  while (world.verdict("a") !== "alive") world.run(world.now + 100);
  assert.ok(world.now - since < HOLD_MS + 3 * PROBE_MS, `${world.now - since} ms`);
});

test("judge: a router that answers now and then does not return", () => {
  const world = new World((now) => (now < 5000 || (now >= 10_000 && now % 7000 < 1000) ? 5 : undefined)).run(120_000);
  assert.equal(world.story().filter((verdict) => verdict === "alive").length, 1);
});

test("judge: a witness that leaves takes its question along, and the others are asked", () => {
  const world = new World((now) => (now < 5000 ? 3 : undefined), THREE).run(5500);
  while (world.state.phase !== "doubted") world.run(world.now + 10);
  world.state = withNamespaces(world.state, ["b"]);
  world.run(8000);
  assert.deepEqual([world.verdict("b"), world.verdict("a")], ["dead", "unproven"]);
  world.state = withNamespaces(world.state, []);
  const { length } = world.sent;
  world.run(20_000);
  assert.equal(world.sent.length, length);
});

/** A router that is asked until `until`, and whose process answers, or whose kernel refuses, or nobody says anything. */
function refusing(states: (now: number) => "answers" | "refuses" | "silent", until: number, namespaces = ["a"]) {
  let state = newProbeState(0, namespaces);
  const story: { readonly at: number; readonly verdict: RouterVerdict }[] = [];
  const become = (next: ProbeState, now: number): void => {
    const [before, after] = [state, next].map(({ witnesses }) => verdictFor(witnesses, "a"));
    state = next;
    if (after !== undefined && before !== after) story.push({ at: now, verdict: after });
  };
  for (let now = 0; now <= until; now = Math.max(now, dueAt(state))) {
    const { state: next, asks } = afterTime(state, now);
    become(next, now);
    const what = states(now);
    if (asks === undefined || what === "silent") continue;
    become((what === "answers" ? afterAnswer : afterRefusal)(state, asks, now), now);
  }
  return story;
}

test("judge: a router whose kernel refuses probes in place of its process stays alive for a minute, from any number of witnesses, and then is dead", () => {
  for (const namespaces of [["a"], ["a", "b"], THREE]) {
    const story = refusing((now) => (now < 10_000 ? "answers" : "refuses"), 100_000, namespaces);
    assert.deepEqual(
      story.map(({ verdict }) => verdict),
      ["alive", "dead"],
    );
    const diedAt = story[1]?.at ?? 0;
    assert.ok(diedAt >= 10_000 + AWAY_MS && diedAt <= 15_000 + AWAY_MS, `${diedAt} ms, ${namespaces}`);
  }
});

test("judge: each answer of the process begins the minute anew, and silence kills within it", () => {
  const restarts = refusing((now) => (now % 50_000 < 10_000 ? "answers" : "refuses"), 300_000);
  assert.deepEqual(
    restarts.map(({ verdict }) => verdict),
    ["alive"],
  );
  const cut = refusing((now) => (now < 10_000 ? "answers" : now < 20_000 ? "refuses" : "silent"), 30_000);
  assert.deepEqual(
    cut.map(({ verdict }) => verdict),
    ["alive", "dead"],
  );
  assert.ok((cut[1]?.at ?? 0) <= 20_000 + 1800);
});

test("judge: a refusal proves no router, and brings none back", () => {
  assert.deepEqual(
    refusing(() => "refuses", 30_000),
    [],
  );
  const dead = refusing((now) => (now < 5000 ? "answers" : now < 10_000 ? "silent" : "refuses"), 100_000);
  assert.deepEqual(
    dead.map(({ verdict }) => verdict),
    ["alive", "dead"],
  );
});
