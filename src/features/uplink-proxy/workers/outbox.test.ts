import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import type { AttemptFailure } from "../select/index.ts";
import { Counters, type StatsEvent } from "../stats/index.ts";
import type { Note } from "./messages.ts";
import { Outbox } from "./outbox.ts";

const HOW = { clientKind: "host", waitedMs: 2000 } as const;

function failureOf(ifName: string): AttemptFailure {
  return { uplink: ifName, ifName, cost: 0, source: "192.0.2.1", failure: "refused", text: "connection refused" };
}

test("Outbox: a batch counts requests, and leaves out repeated evidence of an uplink", () => {
  const batches: Note[][] = [];
  const outbox = new Outbox((notes) => batches.push(JSON.parse(notes) as Note[]), []);
  const { evidence, record } = outbox;
  for (let round = 0; round < 3; round += 1) {
    record({ kind: "request", count: 1 });
    evidence.dialSucceeded("wan0", "a:443");
    evidence.dialSucceeded("wan1", "a:443");
  }
  evidence.dialFailed("wan0", "a:443", "timeout", "too late", HOW);
  evidence.dialFailed("wan0", "a:443", "unreachable", "no route", HOW);
  evidence.dialSucceeded("wan0", "a:443");
  evidence.dialSucceeded("wan0", "b:443");
  evidence.firstByte("wan0", "b:443");
  outbox.flush();
  record({ kind: "request", count: 1 });
  evidence.firstByte("wan0", "b:443");
  outbox.flush();
  outbox.flush();
  const short = (note: Note): string =>
    note.kind === "evidence"
      ? `${note.call.call} ${note.call.uplink} ${note.call.destination}`
      : note.kind === "stats" && note.event.kind === "request"
        ? `${note.event.count} requests`
        : note.kind;
  assert.deepEqual(
    batches.map((notes) => notes.map(short)),
    [
      [
        "dialSucceeded wan0 a:443",
        "dialSucceeded wan1 a:443",
        "dialFailed wan0 a:443",
        "dialFailed wan0 a:443",
        "dialSucceeded wan0 a:443",
        "dialSucceeded wan0 b:443",
        "firstByte wan0 b:443",
        "3 requests",
      ],
      ["firstByte wan0 b:443", "1 requests"],
    ],
  );
});

test("Outbox: tunnels that are alike are one note, and whatever happens between, the first thread counts as this one", () => {
  const uplinks = ["eth0", "eth1"];
  const step = fc.record({
    target: fc.constantFrom("a:443", "b:443"),
    from: fc.constantFrom(...uplinks),
    to: fc.constantFrom(...uplinks),
    reason: fc.constantFrom("eof" as const, "idle" as const),
    isRetried: fc.boolean(),
    // Sums of them are exact in any order.
    quarters: fc.nat(20),
    act: fc.constantFrom("open" as const, "close" as const, "move" as const, "flush" as const),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const clock = new FakeClock();
      const [here, there] = [new Counters(clock), new Counters(clock)];
      let notes = 0;
      const outbox = new Outbox((batch) => {
        for (const note of JSON.parse(batch) as Note[]) {
          notes += 1;
          if (note.kind === "stats") there.record(note.event);
          assert.ok(there.activeTunnels >= 0);
        }
      }, []);
      const record = (event: StatsEvent): void => {
        here.record(event);
        outbox.record(event);
      };
      const open: { target: string; ifName: string }[] = [];
      for (const { act, target, from, to, reason, isRetried, quarters } of steps) {
        const tunnel = open[0];
        if (act === "flush") outbox.flush();
        else if (act === "open") {
          open.push({ target, ifName: from });
          const failures = isRetried ? [failureOf(to)] : [];
          record({ kind: "connected", target, ifName: from, cost: 0, failures, count: 1 });
        } else if (tunnel !== undefined && act === "move") {
          record({ kind: "replayed", target: tunnel.target, from: tunnel.ifName, to });
          tunnel.ifName = to;
        } else if (tunnel !== undefined) {
          open.shift();
          const sums = { up: 1, down: 2, durationMs: quarters / 4, count: 1 };
          record({ kind: "closed", ...tunnel, ...sums, reason, isBlackholed: isRetried });
        }
      }
      outbox.flush();
      const summary = (counters: Counters) => ({
        active: counters.activeTunnels,
        idle: counters.tunnelIdleClosed,
        ports: [counters.successByPort, counters.tunnelsByPort, counters.failureByPort, counters.fallbackByPort].map(
          (by) => Object.fromEntries(by),
        ),
        last: counters.lastSuccess,
        document: counters.map.document(),
      });
      assert.deepEqual(summary(there), summary(here));
      assert.ok(notes <= steps.length);
    }),
    { numRuns: 300 },
  );
});

test("Outbox: a thousand tunnels to one place are two notes, and to a thousand places no batch has more than 256", () => {
  const batches: Note[][] = [];
  const outbox = new Outbox((notes) => batches.push(JSON.parse(notes) as Note[]), []);
  const pass = (target: string): void => {
    outbox.record({ kind: "request", count: 1 });
    outbox.record({ kind: "connected", target, ifName: "eth0", cost: 0, failures: [], count: 1 });
    const closed = { target, ifName: "eth0", up: 1, down: 2, durationMs: 3, count: 1 };
    outbox.record({ kind: "closed", ...closed, reason: "eof", isBlackholed: false });
  };
  for (let at = 0; at < 1000; at += 1) pass("a:443");
  outbox.flush();
  const events = batches.flat().map((note) => (note.kind === "stats" ? note.event : assert.fail()));
  const alike = { target: "a:443", ifName: "eth0", count: 1000 };
  assert.deepEqual(events, [
    { kind: "connected", ...alike, cost: 0, failures: [] },
    { kind: "closed", ...alike, up: 1000, down: 2000, durationMs: 3000, reason: "eof", isBlackholed: false },
    { kind: "request", count: 1000 },
  ]);
  batches.length = 0;
  for (let at = 0; at < 1000; at += 1) pass(`host${at}:443`);
  outbox.flush();
  assert.ok(batches.length >= 8 && batches.every(({ length }) => length <= 256));
  const requests = batches.flat().filter((note) => note.kind === "stats" && note.event.kind === "request");
  assert.equal(batches.flat().length, 2000 + requests.length);
  assert.equal(requests.length, batches.length);
});

test("Outbox: requests alone are reported in time", async () => {
  const reported = Promise.withResolvers<string>();
  new Outbox(reported.resolve, []).record({ kind: "request", count: 2 });
  assert.deepEqual(JSON.parse(await reported.promise), [{ kind: "stats", event: { kind: "request", count: 2 } }]);
});
