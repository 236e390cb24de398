import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import type { ControlPacket } from "#wire/konnectivity";
import { BufferBudget } from "./budget.ts";
import { Channel, type ChannelHandlers, type ChannelLink } from "./channel.ts";

const KIB = 1024;

/** A channel whose user keeps what comes. */
function channel(
  options: { readonly clock?: FakeClock; readonly graceMs?: number; readonly bytes?: number } = {},
  { roundTripMs, budget: shared }: { readonly roundTripMs?: number; readonly budget?: BufferBudget } = {},
) {
  const kept: Uint8Array[] = [];
  const control: ControlPacket[] = [];
  const budget = shared ?? new BufferBudget(options.bytes ?? 1024 * KIB, options);
  const evictions = { count: 0 };
  let onSlow: (evicted: Channel) => void = () => undefined;
  const nothing = (): void => undefined;
  const link: ChannelLink = {
    ...{
      flowControl: true,
      budget,
      softLimitBytes: 1024 * KIB,
      roundTripMs,
      now: () => options.clock?.monotonic() ?? 0,
    },
    sendControl: (packet) => void control.push(packet),
    ...{ ready: nothing, sent: nothing, held: nothing, remove: nothing },
    evicted: () => {
      evictions.count += 1;
    },
  };
  const handlers: ChannelHandlers = {
    onData: (pieces) => void kept.push(...pieces),
    ...{ onFin: nothing, onCloseRequest: nothing, onCloseResponse: nothing, onWritable: nothing },
    onLinkLost: nothing,
    onSlowConsumer: () => onSlow(one),
  };
  const one: Channel = new Channel(1, link, handlers);
  const endIt = (how: (evicted: Channel) => void): void => {
    onSlow = how;
  };
  return { channel: one, kept, control, budget, evictions, endIt };
}

/** The memory that pieces hold: of each read once. */
function heldBy(pieces: readonly Uint8Array[]): number {
  return [...new Set(pieces.map(({ buffer }) => buffer))].reduce((sum, { byteLength }) => sum + byteLength, 0);
}

test("Channel: short pieces that wait do not hold the long reads that they are part of", () => {
  const { channel: one, kept } = channel();
  const sent: Buffer[] = [];
  for (let at = 0; at < 1000; at += 1) {
    const read = Buffer.alloc(16 * KIB, at);
    const [head, tail] = [read.subarray(100, 120), read.subarray(120, 180)];
    sent.push(head, tail);
    assert.equal(one.receive([head, tail], head.length + tail.length), true);
  }
  assert.deepEqual(Buffer.concat(kept), Buffer.concat(sent));
  assert.ok(heldBy(kept) <= 8 * one.heldBytes, `${one.heldBytes} bytes hold ${heldBy(kept)}`);
});

test("Channel: a piece that is most of its read is not copied", () => {
  const { channel: one, kept } = channel();
  const read = Buffer.alloc(16 * KIB);
  one.receive([read.subarray(9)], read.length - 9);
  assert.equal(kept[0]?.buffer, read.buffer);
});

test("Channel: above the limit, bytes that wait for the link of an ended connection are dropped, and its end is none in order", () => {
  const cases: readonly (readonly [ControlPacket, ControlPacket])[] = [
    [
      { type: "CLOSE_RSP", error: "", connectID: 1 },
      { type: "CLOSE_RSP", error: "the last bytes were not read in time", connectID: 1 },
    ],
    [
      { type: "CLOSE_RSP", error: "reset", connectID: 1 },
      { type: "CLOSE_RSP", error: "reset", connectID: 1 },
    ],
    [
      { type: "CLOSE_REQ", connectID: 1 },
      { type: "CLOSE_REQ", connectID: 1 },
    ],
  ];
  for (const [last, sent] of cases) {
    const { channel: one, control, budget } = channel();
    one.send([Buffer.alloc(100 * KIB)]);
    one.sendLast(last);
    one.evict();
    assert.deepEqual([control, one.isGone, one.queuedBytes, budget.used], [[sent], true, 0, 0]);
  }
});

test("Channel: one that the budget has ended is counted once, and nothing of it stays with the budget", async () => {
  const clock = new FakeClock();
  const { channel: one, budget, evictions, endIt } = channel({ clock, graceMs: 1000 });
  endIt((evicted) => evicted.cut({ type: "CLOSE_REQ", connectID: 1 }));
  // Its reader stands still, and so does its peer.
  one.receive([Buffer.alloc(20 * KIB)], 20 * KIB);
  one.send([Buffer.alloc(100 * KIB)]);
  budget.add(1024 * KIB);
  await clock.advance(1000);
  assert.deepEqual([one.isGone, evictions.count], [true, 1]);
  await clock.advance(10_000);
  assert.deepEqual([evictions.count, clock.pending], [1, 0]);
});

test("Channel: on a far link credit grows to 16 MiB, in packets that earlier releases take in full, and is given back at the end", async () => {
  const clock = new FakeClock();
  const { channel: one, control, budget } = channel({ clock, bytes: 512 * 1024 * KIB }, { roundTripMs: 50 });
  let [credit, seen] = [256 * KIB, 0];
  for (let trips = 0; trips < 20; trips += 1) {
    for (const read = Buffer.alloc(64 * KIB); credit >= read.length; credit -= read.length) {
      assert.equal(one.receive([read], read.length), true);
      one.consumed(read.length);
    }
    await clock.advance(50);
    for (const packet of control.slice(seen)) {
      assert.ok(packet.type === "WINDOW" && typeof packet.credit === "number" && packet.credit <= 2 * 1024 * KIB);
      credit += packet.credit;
    }
    seen = control.length;
  }
  assert.equal(credit, 16 * 1024 * KIB);
  assert.equal(budget.windows.taken, 15 * 1024 * KIB);
  assert.equal(one.receive([Buffer.alloc(17 * 1024 * KIB)], 17 * 1024 * KIB), false, "more than its credit");
  one.remove();
  assert.equal(budget.windows.taken, 0);
});

test("Channel: many bulk transfers together are read 16 MiB ahead of their links, and each 32 KiB at least; one that is alone 128 KiB", () => {
  const budget = new BufferBudget(512 * 1024 * KIB);
  const read = 16 * KIB;
  /** A source that is read until it must pause. Returns how far. */
  const fill = (one: Channel): number => {
    while (!one.mustPause()) one.send([Buffer.alloc(read)]);
    return one.queuedBytes;
  };
  const alone = channel({}, { budget }).channel;
  assert.equal(fill(alone), 128 * KIB);
  const many = Array.from({ length: 256 }, () => channel({}, { budget }).channel);
  // All have something before one is filled, as with reads in turn.
  for (const one of many) one.send([Buffer.alloc(read)]);
  for (const one of many) fill(one);
  assert.ok(budget.used <= 16 * 1024 * KIB + 257 * read + 64 * KIB, `${budget.used}`);
  const more = Array.from({ length: 1000 }, () => channel({}, { budget }).channel);
  for (const one of more) one.send([Buffer.alloc(read)]);
  assert.deepEqual(new Set(more.map(fill)), new Set([32 * KIB]));
  for (const one of [alone, ...many, ...more]) one.remove();
  assert.equal(budget.used, 0);
  assert.equal(fill(channel({}, { budget }).channel), 128 * KIB);
});

test("Channel: a peer that goes on with credit whose part others have by now holds no more than a near link's window where the process holds too much", async () => {
  const clock = new FakeClock();
  // A quarter of it is what all windows may have above 1 MiB.
  const budget = new BufferBudget(12 * 1024 * KIB, { clock });
  const far = { roundTripMs: 50, budget };
  const grown = channel({ clock }, far);
  const read = Buffer.alloc(64 * KIB);
  const growBy = async (one: typeof grown): Promise<void> => {
    for (let at = 0; at < 1000 && budget.windows.taken < 1024 * KIB; at += 1) {
      for (let part = 0; part < 4; part += 1)
        if (one.channel.receive([read], read.length)) one.channel.consumed(read.length);
      await clock.advance(1);
    }
  };
  await growBy(grown);
  assert.ok(budget.windows.taken >= 1024 * KIB);
  // Others get what it has not used for half a minute; its peer knows nothing of that.
  await clock.advance(30_000);
  const other = budget.windows.reservation();
  assert.ok(other.grow(3 * 1024 * KIB));
  let evictions = 0;
  grown.endIt((evicted) => {
    evictions += 1;
    evicted.remove();
  });
  const holds = (): number => grown.channel.heldBytes;
  while (holds() < 1024 * KIB) assert.ok(grown.channel.receive([read], read.length));
  assert.equal(evictions, 0);
  // While there is room it may send what it was granted.
  assert.ok(grown.channel.receive([read], read.length));
  assert.equal(evictions, 0);
  budget.add(12 * 1024 * KIB);
  grown.channel.receive([read], read.length);
  assert.deepEqual([evictions, grown.evictions.count, grown.channel.isGone], [1, 1, true]);
});
