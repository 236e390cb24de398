import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { IpAddress } from "#base/ip";
import { decodeAddress } from "#kernel/address";
import { decodeConntrack } from "#kernel/conntrack";
import { KernelError } from "#kernel/errors";
import { decodeActive } from "#kernel/ethtool";
import { decodeFou } from "#kernel/fou";
import { decodeLink } from "#kernel/link";
import { decodeEvents } from "#kernel/monitor";
import { decodeNeighbour } from "#kernel/neighbour";
import { decodeRoute } from "#kernel/route";
import { decodeRule } from "#kernel/rule";
import { Attributes, decodeAck, decodeMessages, eachAttribute, MessageWriter, NLM_F, NLMSG } from "./index.ts";
import { decodeDone, encodeMessage } from "./message.ts";

const READERS: readonly ((bytes: Buffer) => unknown)[] = [
  decodeLink,
  decodeAddress,
  decodeRoute,
  decodeRule,
  decodeNeighbour,
  decodeFou,
  decodeActive,
  decodeConntrack,
  (bytes) => [...decodeEvents(bytes)],
  (bytes) => [...decodeMessages(bytes)],
  (bytes) => [...eachAttribute(bytes)],
  (payload) => decodeAck({ type: NLMSG.ERROR, flags: NLM_F.ACK_TLVS, sequence: 1, port: 0, payload }),
  (payload) => decodeDone({ type: NLMSG.DONE, flags: NLM_F.ACK_TLVS, sequence: 1, port: 0, payload }),
];

function onlyKernelErrors(bytes: Buffer): void {
  for (const read of READERS) {
    try {
      read(bytes);
    } catch (error) {
      assert.ok(error instanceof KernelError, `${read.name}: ${error}`);
    }
  }
}

/** Attributes of random types with payloads that may themselves be attributes. */
const attributes: fc.Arbitrary<Buffer> = fc.letrec<{ body: Buffer }>((tie) => ({
  body: fc
    .array(
      fc.tuple(
        fc.integer({ min: 0, max: 60 }),
        fc.oneof(
          { maxDepth: 3 },
          fc.uint8Array({ maxLength: 20 }).map((bytes) => Buffer.from(bytes)),
          tie("body"),
        ),
      ),
      { maxLength: 8 },
    )
    .map(
      (list) => list.reduce((writer, [type, payload]) => writer.attribute(type, payload), new MessageWriter()).bytes,
    ),
})).body;

test("readers: random bytes never throw anything but KernelError", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => onlyKernelErrors(Buffer.from(bytes))),
    { numRuns: 500 },
  );
});

test("readers: well-formed attributes of any type, cut anywhere, never throw anything but KernelError", () => {
  const header = fc.uint8Array({ minLength: 16, maxLength: 16 });
  fc.assert(
    fc.property(
      header,
      fc.constantFrom(4, 8, 12, 16),
      attributes,
      fc.nat(),
      fc.constantFrom(2, 10),
      (head, length, body, cut, family) => {
        const whole = Buffer.concat([Buffer.from(head.subarray(0, length)), body]);
        whole[0] = family; // so that the families that are ours are reached
        onlyKernelErrors(whole);
        onlyKernelErrors(whole.subarray(0, cut % (whole.length + 1)));
        onlyKernelErrors(encodeMessage([16, 20, 24][cut % 3] ?? 16, 0, 1, whole));
      },
    ),
    { numRuns: 1000 },
  );
});

test("MessageWriter and Attributes: written attributes are read back", () => {
  fc.assert(
    fc.property(
      fc.nat(0xff),
      fc.nat(0xffff),
      fc.nat(0xffff_ffff),
      fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }),
      fc.string({ maxLength: 30 }),
      (u8, u16, u32, u64, text) => {
        const bytes = new MessageWriter()
          .u8(1, u8)
          .u16(2, u16)
          .u32(3, u32)
          .be64(4, u64)
          .string(5, text.replaceAll("\0", ""))
          .nest(6, (inner) => inner.be16(1, u16).flag(2).be32(3, u32).i32(4, -u8))
          .address(7, IpAddress.fromValue(4, BigInt(u32))).bytes;
        const read = Attributes.parse(bytes);
        assert.equal(read.u8(1), u8);
        assert.equal(read.u16(2), u16);
        assert.equal(read.u32(3), u32);
        assert.equal(read.be64(4), u64);
        assert.equal(read.string(5), text.replaceAll("\0", ""));
        assert.equal(read.nested(6).be16(1), u16);
        assert.equal(read.nested(6).has(2), true);
        assert.equal(read.nested(6).be32(3), u32);
        assert.equal(read.nested(6).i32(4), u8 === 0 ? 0 : -u8);
        assert.equal(read.address(7)?.value, BigInt(u32));
        assert.equal(read.u32(99), undefined);
      },
    ),
  );
});

test("MessageWriter: refuses numbers that do not fit, and payloads that are too long", () => {
  for (const write of [
    (writer: MessageWriter) => writer.u8(1, 256),
    (writer: MessageWriter) => writer.u16(1, -1),
    (writer: MessageWriter) => writer.be16(1, 70_000),
    (writer: MessageWriter) => writer.u32(1, 1.5),
    (writer: MessageWriter) => writer.attribute(1, new Uint8Array(65_532)),
  ]) {
    assert.throws(() => write(new MessageWriter()), { name: "KernelError", code: "invalid" });
  }
});

test("decodeAck: gives errno and the kernel's text, with the request echoed or capped", () => {
  const text = new MessageWriter().string(1, "Nexthop has invalid gateway").bytes;
  for (const [flags, echoed] of [
    [NLM_F.ACK_TLVS | NLM_F.CAPPED, 16],
    [NLM_F.ACK_TLVS, 28],
  ] as const) {
    const head = Buffer.alloc(4 + echoed);
    head.writeInt32LE(-101, 0);
    head.writeUInt32LE(28, 4);
    const ack = decodeAck({ type: NLMSG.ERROR, flags, sequence: 1, port: 0, payload: Buffer.concat([head, text]) });
    assert.deepEqual(ack, { errno: 101, text: "Nexthop has invalid gateway" });
  }
});
