import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { SWALLOWED } from "../testing/front-bed.ts";
import { clientHello } from "../testing/proxy-fixtures.ts";
import { RELAY_OPTIONS, RelayBed, upstreamPair } from "../testing/relay-bed.ts";

const TIMEOUT = { timeout: 20_000 };

test("Relay: silence ends it after 30 to 31 s, a byte either way puts that off", TIMEOUT, async (t) => {
  const bed = await RelayBed.open(t);
  bed.far.write("banner");
  await bed.client.read("banner");
  await bed.clock.advance(20_300);
  bed.client.write("x");
  await bed.far.read("x");
  const since = bed.clock.monotonic();
  // The client had asked and was still waiting, and nobody is there any more.
  bed.upstream.transport = () => ({ unacked: 0, probes: 2, ackedBytes: 1, heardMs: bed.clock.monotonic() - since });
  const endedMs = (await bed.endedBy(100_000)) - since;
  assert.ok(endedMs >= 30_000 && endedMs <= 31_000, `${endedMs}`);
  assert.deepEqual(await bed.closed(), { reason: "idle", stalled: true, silentMs: 30_000 });
  // Never FIN, which a client would take for the end of a whole answer.
  for (const side of [bed.client, bed.far]) {
    await side.until(({ isClosed }) => isClosed);
    assert.deepEqual([side.error?.code, side.isEnded], ["ECONNRESET", false]);
  }
});

test(
  "Relay: silence after bytes of the destination has the longer limit while its host is there and the client reads",
  TIMEOUT,
  async (t) => {
    const there = { unacked: 0, probes: 0, ackedBytes: 1, heardMs: 15_000 };
    const cases = [
      { why: "it thinks, or sends the next event later", path: there, silentMs: 300_000 },
      { why: "some probes were lost", path: { ...there, probes: 3, heardMs: 24_000 }, silentMs: 300_000 },
      { why: "its host does not answer", path: { ...there, probes: 5, heardMs: 30_500 }, silentMs: 30_000 },
      { why: "it does not take what the client sent", path: { ...there, unacked: 2 }, silentMs: 30_000 },
    ];
    for (const { why, path, silentMs } of cases) {
      const bed = await RelayBed.open(t);
      bed.client.write("x");
      await bed.far.read("x");
      bed.far.write("answer");
      await bed.client.read("answer");
      bed.upstream.transport = () => path;
      const endedMs = await bed.endedBy(400_000);
      assert.ok(endedMs >= silentMs && endedMs <= silentMs + 1000, `${why}: ${endedMs}`);
      const end = await bed.closed();
      assert.deepEqual([end.reason, end.silentMs], ["idle", silentMs], why);
      await bed.client.until(({ isClosed }) => isClosed);
      assert.equal(bed.client.isEnded, false, why);
    }
  },
);

test("Relay: without a byte either way silence ends it after 30 to 31 s", TIMEOUT, async (t) => {
  const bed = await RelayBed.open(t);
  const endedMs = await bed.endedBy(100_000);
  assert.ok(endedMs >= 30_000 && endedMs <= 31_000, `${endedMs}`);
  assert.equal((await bed.closed()).reason, "idle");
});

test("Relay: a side that has all bytes and the end of the other is closed in order", TIMEOUT, async (t) => {
  for (const how of ["silence", "drain"] as const) {
    const bed = await RelayBed.open(t);
    bed.far.write("answer");
    bed.far.socket.end();
    await bed.client.until(({ isEnded }) => isEnded);
    bed.client.socket.pause();
    if (how === "drain") bed.relay.close("drain");
    else await bed.endedBy(100_000);
    await bed.closed();
    await bed.far.until(({ isClosed }) => isClosed);
    bed.client.socket.end();
    await bed.client.until(({ isClosed }) => isClosed);
    assert.deepEqual([bed.client.text, bed.client.error?.code], ["answer", undefined], how);
    assert.equal(bed.far.error?.code, "ECONNRESET", how);
  }
});

test("Relay: a destination that has acknowledged all bytes and answers probes is waited for", TIMEOUT, async (t) => {
  const bed = await RelayBed.open(t);
  bed.client.write("x");
  await bed.far.read("x");
  assert.equal(await bed.endedBy(600_000), 600_000);
  assert.deepEqual(bed.reported, []);
  bed.far.write("at last");
  await bed.client.read("at last");
  assert.ok((await bed.endedBy(1_000_000)) <= 901_000);
});

test("Relay: bytes that drain from the kernel's queue, either way, are no silence", TIMEOUT, async (t) => {
  for (const side of ["near", "upstream"] as const) {
    const bed = await RelayBed.open(t);
    bed.far.write("body");
    await bed.client.read("body");
    // A slow reader, or a slow line: an acknowledgement every 5 s, for a while.
    const ackedBytes = (): number => Math.min(24, Math.floor(bed.clock.monotonic() / 5000)) * 1000;
    bed[side].transport = () => ({ unacked: 9, probes: 0, ackedBytes: ackedBytes(), heardMs: 0 });
    const endedMs = await bed.endedBy(300_000);
    assert.ok(endedMs >= 150_000 && endedMs <= 160_000, `${side} ${endedMs}`);
    await bed.closed();
  }
});

test("Relay: after one side has ended, the other has its own limit", TIMEOUT, async (t) => {
  const bed = await RelayBed.open(t);
  bed.client.socket.end();
  await bed.far.until(({ isEnded }) => isEnded);
  const endedMs = await bed.endedBy(100_000);
  assert.ok(endedMs >= 20_000 && endedMs <= 21_000, `${endedMs}`);
  assert.deepEqual(await bed.closed(), { reason: "idle", stalled: false, silentMs: 20_000 });
});

test(
  "Relay: a TLS connection that rests between two records has not stalled, one in the middle of a record has",
  TIMEOUT,
  async (t) => {
    const record = Buffer.concat([Buffer.of(23, 3, 3, 0, 4), Buffer.from("body")]);
    for (const [bytes, stalled, silentMs] of [
      [record, false, 300_000],
      [record.subarray(0, 7), true, 30_000],
    ] as const) {
      const bed = await RelayBed.open(t);
      bed.client.write("x");
      await bed.far.read("x");
      bed.far.socket.write(bytes);
      await bed.client.until(({ text }) => text.length === bytes.length);
      await bed.endedBy(400_000);
      assert.deepEqual(await bed.closed(), { reason: "idle", stalled, silentMs });
    }
  },
);

test("Relay: a client that stops reading ends its tunnel, but the destination has not stalled", TIMEOUT, async (t) => {
  const bed = await RelayBed.open(t);
  bed.client.write("x");
  await bed.far.read("x");
  bed.client.socket.pause();
  const record = Buffer.concat([Buffer.of(23, 3, 3, 0x40, 0), Buffer.alloc(0x4000)]);
  bed.far.socket.write(Buffer.concat(Array(4096).fill(record)));
  // Until the kernel takes nothing more for the client: in the middle of a record, as a stall would be.
  let seen = -1;
  for (let looks = 0; looks < 10; looks += 1) {
    if (!bed.near.writableNeedDrain || bed.relay.bytes.down !== seen) looks = 0;
    seen = bed.relay.bytes.down;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const endedMs = await bed.endedBy(40_000);
  assert.ok(endedMs <= 31_000 && bed.relay.bytes.down === seen, `${endedMs} ${seen}`);
  bed.client.socket.resume();
  assert.deepEqual(await bed.closed(), { reason: "idle", stalled: false, silentMs: 30_000 });
});

test(
  "Relay: a blackholed ClientHello is reported once, and another upstream takes over unnoticed",
  TIMEOUT,
  async (t) => {
    const bed = await RelayBed.open(t);
    const hello = clientHello("a.example");
    bed.client.socket.write(hello.subarray(0, 20));
    await bed.far.until(({ text }) => text.length === 20);
    await bed.clock.advance(4000);
    // What was said first is acknowledged, the rest is not.
    bed.relay.check(bed.clock.monotonic() + 2000);
    const since = bed.clock.monotonic();
    bed.upstream.transport = () => ({ ...SWALLOWED, heardMs: bed.clock.monotonic() - since });
    bed.client.socket.write(hello.subarray(20));
    await bed.far.until(({ text }) => text.length === hello.length);
    await bed.clock.advance(4400);
    assert.deepEqual(bed.reported, []);
    await bed.clock.advance(1100);
    assert.deepEqual(bed.reported, ["blackhole"]);
    await bed.clock.advance(10_000);
    assert.deepEqual(bed.reported, ["blackhole"]);
    assert.ok(bed.relay.canReplay);
    const next = await upstreamPair(t);
    const total = { up: 0, down: 0 };
    bed.relay.replaceUpstream(next.upstream, total);
    await bed.far.until(({ isClosed }) => isClosed);
    await next.far.until(({ text }) => text.length === hello.length);
    assert.equal(next.far.text, hello.toString("latin1"));
    next.far.write("answer");
    await bed.client.read("answer");
    assert.equal(bed.relay.canReplay, false);
    assert.deepEqual(total, { up: hello.length, down: 6 });
    bed.client.socket.end();
    await next.far.until(({ isEnded }) => isEnded);
    next.far.socket.end();
    assert.deepEqual(await bed.closed(), { reason: "eof", stalled: false });
  },
);

test(
  "Relay: bytes behind a missing segment on a path that answers mean that large segments are lost; on a lossy or a dead path they do not",
  TIMEOUT,
  async (t) => {
    const there = { unacked: 0, probes: 0, ackedBytes: 1, heardMs: 900, rttMs: 50 };
    const cases = [
      { why: "received behind a gap", path: there, hasGap: true, reported: ["large segments lost"] },
      {
        why: "sent, and received behind a gap",
        path: { ...there, unacked: 2, sacked: 1, heardMs: 4000 },
        hasGap: false,
        reported: ["large segments lost"],
      },
      { why: "the gap was filled", path: there, hasGap: "filled" as const, reported: [] },
      { why: "nothing was received", path: there, hasGap: false, reported: [] },
      { why: "the path is dead", path: { ...there, heardMs: 6000, probes: 3 }, hasGap: true, reported: [] },
      { why: "it has less than six round trips", path: { ...there, rttMs: 2000 }, hasGap: true, reported: [] },
    ];
    for (const { why, path, hasGap, reported } of cases) {
      const bed = await RelayBed.open(t);
      bed.upstream.transport = () => path;
      bed.upstream.hasGap = () => (hasGap === "filled" ? bed.clock.monotonic() < 4000 : hasGap);
      bed.client.write("x");
      await bed.far.read("x");
      await bed.clock.advance(4400);
      assert.deepEqual(bed.reported, [], why);
      await bed.clock.advance(2000);
      assert.deepEqual(bed.reported, reported, why);
      await bed.clock.advance(4000);
      assert.deepEqual(bed.reported, reported, `${why}: once`);
      bed.relay.close("drain");
      await bed.closed();
    }
  },
);

test(
  "Relay: nothing is sent twice once a byte came, that is no whole ClientHello, has early data, or was too much",
  TIMEOUT,
  async (t) => {
    const hello = clientHello("a.example");
    const cases: Readonly<Record<string, readonly [Uint8Array, boolean]>> = {
      "a ClientHello": [hello, true],
      "a ClientHello with something behind it": [Buffer.concat([hello, Buffer.of(20, 3, 3, 0, 1, 1)]), true],
      "half a ClientHello": [hello.subarray(0, 30), false],
      "early data": [clientHello("a.example", { hasEarlyData: true }), false],
      "plain text": [Buffer.from("GET / HTTP/1.1\r\n\r\n"), false],
      nothing: [new Uint8Array(0), false],
      "more than is kept": [Buffer.concat([hello, Buffer.alloc(RELAY_OPTIONS.replayBytes)]), false],
    };
    for (const [name, [bytes, expected]] of Object.entries(cases)) {
      const bed = await RelayBed.open(t, bytes.length === 0 ? [] : [bytes]);
      await bed.far.until(({ text }) => text.length === bytes.length);
      assert.equal(bed.relay.canReplay, expected, name);
      const next = await upstreamPair(t);
      if (!expected)
        assert.throws(() => bed.relay.replaceUpstream(next.upstream, bed.total), /can no longer be replaced/);
      next.upstream.destroy();
      bed.far.write("z");
      await bed.client.read("z");
      assert.equal(bed.relay.canReplay, false, name);
      bed.relay.close("drain");
      assert.equal((await bed.closed()).reason, "drain");
    }
  },
);

test(
  "Relay: without bytes of the client nothing is a blackhole, and a blackhole ends with a reset",
  TIMEOUT,
  async (t) => {
    const bed = await RelayBed.open(t);
    await bed.clock.advance(20_000);
    assert.deepEqual(bed.reported, []);
    bed.relay.close("blackhole");
    await bed.client.until(({ isClosed }) => isClosed);
    assert.equal(bed.client.error?.code, "ECONNRESET");
    assert.equal((await bed.closed()).reason, "blackhole");
  },
);

test(
  "Relay: between the loss of a socket and its event no blackhole is reported, and no other upstream is taken",
  TIMEOUT,
  async (t) => {
    for (const how of ["close", "client", "upstream"] as const) {
      const bed = await RelayBed.open(t);
      const hello = clientHello("a.example");
      bed.client.socket.write(hello);
      await bed.far.until(({ text }) => text.length === hello.length);
      assert.ok(bed.relay.canReplay);
      if (how === "close") bed.relay.close("error");
      else if (how === "client") bed.near.destroy();
      else bed.upstream.destroy();
      bed.relay.check(bed.clock.monotonic() + RELAY_OPTIONS.firstByteTimeoutMs);
      assert.deepEqual([bed.reported, bed.relay.canReplay], [[], false]);
      await bed.closed();
      assert.deepEqual(bed.reported, []);
    }
  },
);

test("Relay: a blackhole is bytes without acknowledgement for the limit, and nothing else; silence ends it when no answer is awaited or the server is gone (property)", {
  timeout: 60_000,
}, async (t) => {
  // What happens in each second: the client speaks, the path acknowledges all or nothing, and the destination answers probes or not.
  const second = fc.record({ says: fc.boolean(), acks: fc.boolean(), isThere: fc.boolean() });
  await fc.assert(
    fc.asyncProperty(fc.array(second, { minLength: 5, maxLength: 60 }), async (seconds) => {
      const bed = await RelayBed.open(t);
      let [said, acked, heardAt] = [0, 0, 0];
      const now = (): number => bed.clock.monotonic();
      const isOwed = (): boolean => said > acked;
      bed.upstream.transport = () => ({
        unacked: isOwed() ? 1 : 0,
        probes: now() - heardAt > 15_000 ? 1 : 0,
        ackedBytes: acked,
        heardMs: now() - heardAt,
      });
      bed.near.transport = () => undefined;
      let owedSince: number | undefined;
      let longestMs = 0;
      for (const { says, acks, isThere } of seconds) {
        if (bed.end !== undefined) break;
        if (says) {
          said += 1;
          bed.client.write("x");
          await bed.far.until(({ text, isClosed }) => text.length >= said || isClosed);
        }
        if (acks) acked = said;
        if (acks || (isThere && !isOwed())) heardAt = now();
        owedSince = isOwed() ? (owedSince ?? now()) : undefined;
        await bed.clock.advance(1000);
        if (owedSince !== undefined) longestMs = Math.max(longestMs, Math.min(now() - owedSince, now() - heardAt));
      }
      if (bed.reported.includes("blackhole")) assert.ok(longestMs >= 5000, `reported after ${longestMs}`);
      // Half a second for the timer, and one for the steps here.
      else if (bed.end === undefined) assert.ok(longestMs < 5000 + 1500, `not reported after ${longestMs}`);
      if (bed.end !== undefined && said > 0)
        assert.ok(now() - heardAt >= 29_000, "it ended though its destination was there");
      bed.relay.close("drain");
      await bed.closed();
    }),
    { numRuns: 60 },
  );
});
