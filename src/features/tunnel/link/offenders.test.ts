import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { TokenBucket } from "#base/rate-limit";
import { PREFACE_BYTES, settings } from "#test/raw-http2";
import { Http2Connection } from "#wire/http2";
import type { TransportPeer } from "../http2/transport.ts";
import { Offenders, REST_MS } from "./offenders.ts";

const peer = (address: string, more: Partial<TransportPeer> = {}): TransportPeer => ({
  ...{ address, serverName: undefined, commonName: undefined },
  ...more,
});

test("Offenders: who was sent away is refused for a while, from any port, and of IPv6 from any address of its network; nobody else is", async () => {
  const clock = new FakeClock();
  const offenders = new Offenders(clock);
  offenders.note(peer("192.0.2.1:4000"));
  offenders.note(peer("2001:db8::1:4000", { commonName: "agent" }));
  assert.equal(offenders.restOf(peer("192.0.2.1:4001")), REST_MS);
  assert.equal(offenders.restOf(peer("2001:db8::2:4002", { commonName: "agent" })), REST_MS);
  for (const other of [
    peer("192.0.2.2:4000"),
    peer("192.0.2.1:4000", { commonName: "another certificate" }),
    peer("2001:db8:0:1::1:4000", { commonName: "agent" }),
  ]) {
    assert.equal(offenders.restOf(other), 0);
  }
  await clock.advance(REST_MS - 1);
  assert.equal(offenders.restOf(peer("192.0.2.1:1")), 1);
  await clock.advance(1);
  assert.equal(offenders.restOf(peer("192.0.2.1:1")), 0);
});

test("Offenders: clients that nobody can tell apart are not refused for one of them; behind a balancer that names them they are", () => {
  const offenders = new Offenders(new FakeClock(), { isShared: (address) => address === "192.0.2.9" });
  const behind = (address: string): TransportPeer => peer(address, { balancer: "192.0.2.9:1" });
  offenders.note(peer("unix"));
  offenders.note(peer("192.0.2.9:4000"));
  offenders.note(behind("198.51.100.1:4000"));
  assert.deepEqual(
    [peer("unix"), peer("192.0.2.9:4001"), behind("198.51.100.2:4000"), behind("198.51.100.1:5000")].map((one) =>
      offenders.restOf(one),
    ),
    [0, 0, 0, REST_MS],
  );
});

test("Offenders: a bounded number is remembered", () => {
  const offenders = new Offenders(new FakeClock());
  for (let at = 0; at < 5000; at += 1) offenders.note(peer(`10.0.${at >> 8}.${at & 255}:1`));
  assert.equal(offenders.restOf(peer("10.0.0.0:1")), 0);
  assert.equal(offenders.restOf(peer("10.0.19.135:1")), REST_MS);
});

test("Offenders: what was used up on connections that have ended, at once or one after the other, counts until it has come back", async () => {
  const clock = new FakeClock();
  const offenders = new Offenders(clock);
  const [one, other] = [peer("192.0.2.1:4000"), peer("192.0.2.2:4000")];
  const ends = [offenders.begin(one), offenders.begin(one)];
  for (const end of ends) end({ framesMs: 4000, resetsMs: 0 });
  assert.deepEqual(offenders.spentBy(peer("192.0.2.1:9")), { framesMs: 8000, resetsMs: 0 });
  assert.deepEqual(offenders.spentBy(other), { framesMs: 0, resetsMs: 0 });
  await clock.advance(3000);
  const end = offenders.begin(one);
  await clock.advance(1000);
  // 4,000 ms of what it began with are left then, and 500 ms are its own.
  end({ framesMs: 4500, resetsMs: 100 });
  assert.deepEqual(offenders.spentBy(one), { framesMs: 4500, resetsMs: 100 });
  for (let at = 0; at < 30; at += 1) offenders.begin(one)({ framesMs: 90_000, resetsMs: 0 });
  assert.equal(offenders.spentBy(one).framesMs, 60_000);
  await clock.advance(60_000);
  assert.deepEqual(offenders.spentBy(one), { framesMs: 0, resetsMs: 0 });
  offenders.begin(peer("unix"))({ framesMs: 1000, resetsMs: 1000 });
  assert.equal(offenders.spentBy(peer("unix")).framesMs, 0);
});

test("Offenders: a flood that stays below the limit of a connection and comes again with the next one gets what one connection gets, by frames, resets and calls", async () => {
  const clock = new FakeClock();
  const offenders = new Offenders(clock);
  const who = peer("192.0.2.1:4000");
  /** A connection on which the peer sends empty frames until nearly nothing is left. Returns how many. */
  const flood = (): number => {
    const end = offenders.begin(who);
    const nothing = (): void => undefined;
    const quiet = { onWantsWrite: nothing, onGoAway: nothing, onPing: nothing, onPong: nothing };
    const events = { ...quiet, onFailed: () => assert.fail() };
    const onRequest = (): never => assert.fail();
    const one = new Http2Connection("server", { clock, spent: offenders.spentBy(who) }, { ...events, onRequest });
    one.receive(Buffer.concat([PREFACE_BYTES, settings()]));
    let frames = 0;
    const update = Buffer.from("00000408000000000000000001", "hex");
    for (; one.spent.framesMs < 9990; frames += 1) one.receive(update);
    one.close("");
    end(one.spent);
    return frames;
  };
  const first = flood();
  assert.ok(first > 9900, `${first}`);
  let more = 0;
  for (let at = 0; at < 10; at += 1) more += flood();
  assert.ok(more <= 0.11 * first, `${more} after ${first}`);
  await clock.advance(60_000);
  assert.ok(flood() > 9900);
  const buckets = [1, 2].map(() =>
    offenders.bucketOf(who, () => new TokenBucket({ burst: 1, ratePerSecond: 1, clock })),
  );
  assert.equal(buckets[0], buckets[1]);
  assert.equal(
    offenders.bucketOf(peer("unix"), () => assert.fail()),
    undefined,
  );
});
