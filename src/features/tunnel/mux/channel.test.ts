import assert from "node:assert/strict";
import { test } from "node:test";
import { BufferBudget } from "./budget.ts";
import { Channel, type ChannelHandlers, type ChannelLink } from "./channel.ts";

const KIB = 1024;

/** A channel whose user keeps what comes. */
function channel(): { readonly channel: Channel; readonly kept: Uint8Array[] } {
  const kept: Uint8Array[] = [];
  const nothing = (): void => undefined;
  const link: ChannelLink = {
    ...{ flowControl: true, budget: new BufferBudget(1024 * KIB), softLimitBytes: 1024 * KIB },
    ...{ ready: nothing, sendControl: nothing, sent: nothing, held: nothing, evicted: nothing, remove: nothing },
  };
  const handlers: ChannelHandlers = {
    onData: (pieces) => void kept.push(...pieces),
    ...{ onFin: nothing, onCloseRequest: nothing, onCloseResponse: nothing, onWritable: nothing },
    ...{ onSlowConsumer: nothing, onLinkLost: nothing },
  };
  return { channel: new Channel(1, link, handlers), kept };
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
