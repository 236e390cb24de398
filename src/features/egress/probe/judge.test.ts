import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { seeded } from "#test/seeded";
import { chooseRouter, type ServingRouter } from "./choose.ts";
import {
  afterAnswer,
  afterTime,
  BURST,
  newProbeState,
  PROBE_MS,
  type ProbeState,
  RETURN_ANSWERS,
  type RouterVerdict,
  verdictOf,
} from "./judge.ts";

/** A router whose answer to each probe arrives after a time, or never; the simulated clock jumps from event to event. */
class World {
  now = 0;
  state: ProbeState = newProbeState(0);
  readonly sent: number[] = [];
  readonly verdicts: { readonly at: number; readonly verdict: RouterVerdict }[] = [];
  #answers: number[] = [];
  /** The time until the answer, milliseconds. */
  readonly #answerMs: (now: number) => number | undefined;

  constructor(answerMs: (now: number) => number | undefined) {
    this.#answerMs = answerMs;
  }

  /** Runs until `until`. `stall`: the process does not run between these times. */
  run(until: number, stall?: { readonly from: number; readonly to: number }): this {
    for (;;) {
      const answerAt = Math.min(...this.#answers);
      let next = Math.min(this.state.at, answerAt);
      if (stall !== undefined && next >= stall.from && next < stall.to) next = stall.to;
      if (next > until) break;
      this.now = Math.max(this.now, next);
      if (answerAt <= this.now && answerAt <= this.state.at) {
        this.#answers = this.#answers.toSpliced(this.#answers.indexOf(answerAt), 1);
        this.#became(afterAnswer(this.state, this.now));
        continue;
      }
      const { state, probe } = afterTime(this.state, this.now);
      this.#became(state);
      if (!probe) continue;
      this.sent.push(this.now);
      const answerMs = this.#answerMs(this.now);
      if (answerMs !== undefined) this.#answers.push(this.now + answerMs);
    }
    this.now = until;
    return this;
  }

  #became(state: ProbeState): void {
    const [before, after] = [this.state, state].map(verdictOf) as [RouterVerdict, RouterVerdict];
    this.state = state;
    if (before !== after) this.verdicts.push({ at: this.now, verdict: after });
  }
}

test("judge: a router that answers gets one probe a second", () => {
  const world = new World(() => 3).run(60_000);
  assert.deepEqual(world.verdicts, [{ at: 3, verdict: "alive" }]);
  assert.ok(world.sent.length <= 61, `${world.sent.length} probes`);
});

test("judge: a router that has never answered is not judged, and gets one probe a second", () => {
  const world = new World(() => undefined).run(60_000);
  assert.deepEqual(world.verdicts, []);
  assert.equal(world.sent.length, 61);
});

test("judge: at whatever time a router stops answering, it is dead 1.8 s later, after 21 probes within a second", () => {
  fc.assert(
    fc.property(fc.integer({ min: 10_000, max: 11_999 }), fc.integer({ min: 0, max: 150 }), (diesAt, rttMs) => {
      const world = new World((now) => (now + rttMs / 2 < diesAt ? rttMs : undefined)).run(diesAt + 1800 + rttMs);
      const death = world.verdicts.at(-1);
      assert.equal(death?.verdict, "dead");
      // A dead router is asked again two seconds after the first miss.
      const asked = world.sent.filter((at) => at + rttMs / 2 >= diesAt && at <= death.at);
      assert.equal(asked.length, 1 + BURST);
      assert.ok((asked.at(-1) ?? 0) - (asked[0] ?? 0) < 1000);
    }),
    { numRuns: 500 },
  );
});

test("judge: a single answer in the burst ends it, and the next probe keeps its time", () => {
  let probes = 0;
  const world = new World(() => {
    probes += 1;
    return probes === 2 || probes === 3 ? undefined : 5;
  }).run(1000 + 400);
  assert.deepEqual(world.verdicts, [{ at: 5, verdict: "alive" }]);
  assert.deepEqual(world.sent, [0, 1000, 1200, 1220]);
  assert.deepEqual(world.run(2500).sent, [0, 1000, 1200, 1220, 2000]);
});

test("judge: 30 % loss each way for ten minutes does not look like death, and costs less than five probes a second", () => {
  for (let seed = 1; seed <= 100; seed += 1) {
    const random = seeded(seed);
    const world = new World(() => (random() < 0.3 || random() < 0.3 ? undefined : 2 + 20 * random()));
    world.run(600_000);
    assert.deepEqual(
      world.verdicts.map(({ verdict }) => verdict),
      ["alive"],
      `seed ${seed}`,
    );
    assert.ok(world.sent.length < 3000, `${world.sent.length} probes`);
  }
});

test("judge: answers that take up to 700 ms are no death", () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 700 }), (rttMs) => {
      const world = new World(() => rttMs).run(60_000);
      assert.deepEqual(world.verdicts, [{ at: rttMs, verdict: "alive" }]);
    }),
  );
});

test("judge: a process that stood still, at whatever time, condemns nobody", () => {
  fc.assert(
    fc.property(fc.integer({ min: 5000, max: 6999 }), fc.integer({ min: 700, max: 30_000 }), (from, lengthMs) => {
      // Answers to what was sent before arrive, but are read after the timers of the same moment.
      const world = new World(() => 10).run(60_000, { from, to: from + lengthMs });
      assert.deepEqual(world.verdicts, [{ at: 10, verdict: "alive" }]);
    }),
    { numRuns: 300 },
  );
});

test("judge: a dead router gets one probe a second, and returns with its third answer", () => {
  const world = new World((now) => (now < 5000 || now >= 30_000 ? 5 : undefined)).run(30_000 + 3 * PROBE_MS + 10);
  assert.deepEqual(
    world.verdicts.map(({ verdict }) => verdict),
    ["alive", "dead", "alive"],
  );
  const silent = world.sent.filter((at) => at >= 8000 && at < 30_000);
  assert.ok(silent.length <= 23, `${silent.length} probes`);
  assert.equal(world.sent.filter((at) => at >= 30_000).length >= RETURN_ANSWERS, true);
});

test("judge: answers of a dead router that are far apart do not add up", () => {
  const world = new World((now) => (now < 5000 || (now >= 10_000 && now % 7000 < 1000) ? 5 : undefined)).run(120_000);
  assert.equal(world.verdicts.at(-1)?.verdict, "dead");
  assert.equal(world.verdicts.length, 2);
});

const router = (id: string, verdict: RouterVerdict, isReady = true): ServingRouter => ({ id, verdict, isReady });
const chosen = (routers: readonly ServingRouter[], client = "pod", current?: string): string | undefined =>
  chooseRouter(routers, { client, current })?.id;

test("chooseRouter: the Service chooses while no ready router is dead, and where none is left", () => {
  assert.equal(chosen([]), undefined);
  assert.equal(chosen([router("a", "alive"), router("b", "unproven")]), undefined);
  assert.equal(chosen([router("a", "alive"), router("b", "dead", false)]), undefined);
  assert.equal(chosen([router("a", "dead"), router("b", "dead")]), undefined);
  assert.equal(chosen([router("a", "dead"), router("b", "alive", false)]), undefined);
});

test("chooseRouter: while one is dead a client has one that lives; routers that answer go before those that are not judged", () => {
  assert.equal(chosen([router("a", "dead"), router("b", "alive")]), "b");
  assert.equal(chosen([router("a", "dead"), router("b", "unproven")]), "b");
  assert.equal(chosen([router("a", "dead"), router("b", "unproven"), router("c", "alive")]), "c");
});

test("chooseRouter: a client keeps the living router that has its flows, and leaves the dead one", () => {
  const routers = [router("a", "dead"), router("b", "alive"), router("c", "alive"), router("d", "unproven")];
  for (const current of ["b", "c", "d"]) assert.equal(chosen(routers, "pod", current), current);
  assert.notEqual(chosen(routers, "pod", "a"), "a");
});

test("chooseRouter: clients spread over the living routers, and a second death moves only those of the second one", () => {
  const clients = Array.from({ length: 300 }, (_, at) => `pod-${at}`);
  const before = [router("a", "dead"), router("b", "alive"), router("c", "alive"), router("d", "alive")];
  const after = before.map((one) => (one.id === "c" ? router("c", "dead") : one));
  const counts = new Map<string, number>();
  for (const client of clients) {
    const [old, now] = [chosen(before, client) ?? "", chosen(after, client)];
    counts.set(old, (counts.get(old) ?? 0) + 1);
    if (old === "c") assert.ok(now === "b" || now === "d");
    else assert.equal(now, old);
  }
  assert.deepEqual([...counts.keys()].sort(), ["b", "c", "d"]);
  for (const count of counts.values()) assert.ok(count > 60, `${count} of 300`);
});
