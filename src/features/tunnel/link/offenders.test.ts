import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
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
