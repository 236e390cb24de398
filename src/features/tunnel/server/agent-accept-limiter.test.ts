import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { AgentAcceptLimiter } from "./agent-accept-limiter.ts";

/** A stream of the test, whether it was admitted, and its end. */
class Stream {
  readonly peer: { readonly address: string };
  isGone = false;
  admitted: boolean | undefined;
  #onGone: () => void = () => undefined;

  constructor(limiter: AgentAcceptLimiter, address: string) {
    this.peer = { address };
    void limiter.admit(this).then((isAdmitted) => {
      this.admitted = isAdmitted;
    });
  }

  whenGone(callback: () => void): void {
    this.#onGone = callback;
  }

  leave(): void {
    this.isGone = true;
    this.#onGone();
  }
}

const countOf = (streams: readonly Stream[], admitted: boolean | undefined): number =>
  streams.filter((stream) => stream.admitted === admitted).length;

test("AgentAcceptLimiter: twice the rate at once, then one after the other, and no agent waits longer than a minute", async () => {
  const clock = new FakeClock();
  const limiter = new AgentAcceptLimiter(clock, { perSecond: 10 });
  let next = 0;
  const come = (count: number): Stream[] =>
    Array.from({ length: count }, () => {
      next += 1;
      return new Stream(limiter, `[2001:db8::${next.toString(16)}]:4000`);
    });
  const first = come(25);
  await clock.advance(0);
  assert.equal(countOf(first, true), 20);
  await clock.advance(499);
  assert.equal(countOf(first, true), 24);
  await clock.advance(1);
  assert.equal(countOf(first, true), 25);
  for (let again = 0; again < 3; again += 1) {
    const many = come(700);
    await clock.advance(0);
    assert.equal(countOf(many, false), 100, "those that would wait too long are refused at once");
    assert.equal(countOf(many, true), 0);
    await clock.advance(60_000);
    assert.equal(countOf(many, true), 600, "and took no admitted from those that wait");
  }
});

test("AgentAcceptLimiter: a thousand agents behind one address are all admitted, and one of another address does not wait for them", async () => {
  const clock = new FakeClock();
  const limiter = new AgentAcceptLimiter(clock, { perSecond: 200 });
  const many = Array.from({ length: 1000 }, (_, at) => new Stream(limiter, `192.0.2.1:${at}`));
  const other = new Stream(limiter, "198.51.100.1:1");
  await clock.advance(20);
  assert.equal(other.admitted, true);
  await clock.advance(3000);
  assert.equal(countOf(many, true), 1000);
  assert.equal(limiter.waiting, 0);
});

test("AgentAcceptLimiter: when too many wait, agents of the address with most are refused, and others are admitted", async () => {
  const clock = new FakeClock();
  const limiter = new AgentAcceptLimiter(clock, { perSecond: 10 });
  const greedy = Array.from({ length: 1000 }, (_, at) => new Stream(limiter, `192.0.2.1:${at}`));
  await clock.advance(0);
  assert.deepEqual([countOf(greedy, true), countOf(greedy, false), limiter.waiting], [20, 380, 600]);
  const others = Array.from({ length: 30 }, (_, at) => new Stream(limiter, `198.51.100.${at}:1`));
  await clock.advance(0);
  assert.equal(countOf(others, false), 0);
  assert.equal(limiter.waiting, 600);
  await clock.advance(3100);
  assert.equal(countOf(others, true), 30);
});

test("AgentAcceptLimiter: thousands of streams that were reset delay no agent and hold no place", async () => {
  const clock = new FakeClock();
  const limiter = new AgentAcceptLimiter(clock, { perSecond: 10 });
  for (let at = 0; at < 14 * 950; at += 1) {
    new Stream(limiter, `192.0.2.${at % 14}:${at}`).leave();
    assert.equal(limiter.waiting, 0);
  }
  const stream = new Stream(limiter, "198.51.100.1:1");
  await clock.advance(100);
  assert.equal(stream.admitted, true);
  assert.equal(limiter.waiting, 0);
});
