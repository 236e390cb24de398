import assert from "node:assert/strict";
import { test } from "node:test";
import type { ControlPacket } from "#wire/konnectivity";
import { BufferBudget } from "./budget.ts";
import { Channel, type ChannelHandlers, type ChannelLink } from "./channel.ts";

const KIB = 1024;

/** A channel whose user keeps what comes. */
function channel() {
  const kept: Uint8Array[] = [];
  const control: ControlPacket[] = [];
  const budget = new BufferBudget(1024 * KIB);
  const nothing = (): void => undefined;
  const link: ChannelLink = {
    ...{ flowControl: true, budget, softLimitBytes: 1024 * KIB },
    sendControl: (packet) => void control.push(packet),
    ...{ ready: nothing, sent: nothing, held: nothing, evicted: nothing, remove: nothing },
  };
  const handlers: ChannelHandlers = {
    onData: (pieces) => void kept.push(...pieces),
    ...{ onFin: nothing, onCloseRequest: nothing, onCloseResponse: nothing, onWritable: nothing },
    ...{ onSlowConsumer: nothing, onLinkLost: nothing },
  };
  return { channel: new Channel(1, link, handlers), kept, control, budget };
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
