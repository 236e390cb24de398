import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  type ControlPacket,
  type Data,
  decodePacket,
  formatCapabilities,
  frameControl,
  frameData,
  type Packet,
  parseIdentifiers,
  sharedCapabilities,
  type TunnelId,
  TunnelWireError,
  tunnelId,
} from "./index.ts";

const MIN = -(2n ** 63n);
const MAX = 2n ** 63n - 1n;
const BIG = 2n ** 62n + 12_345_678_901n;

/** A framed packet without its gRPC prefix, which must tell the length. */
function message(framed: Uint8Array): Buffer {
  const bytes = Buffer.from(framed);
  assert.equal(bytes[0], 0);
  assert.equal(bytes.readUInt32BE(1), bytes.length - 5);
  return bytes.subarray(5);
}

const read = (bytes: Uint8Array): Packet => decodePacket([bytes], bytes.length);
const hex = (text: string): Buffer => Buffer.from(text.replaceAll(" ", ""), "hex");

/** Each packet as Go's protobuf writes it. */
const GOLDEN: readonly { readonly packet: ControlPacket; readonly bytes: string }[] = [
  // type 0 is absent
  {
    packet: { type: "DIAL_REQ", protocol: "tcp", address: "h:80", random: 1 },
    bytes: "12 0d 0a03746370 1204683a3830 1801",
  },
  // random is 2^62 + 12345678901: nine bytes of varint
  {
    packet: { type: "DIAL_REQ", protocol: "tcp", address: "[::1]:443", random: tunnelId(BIG) },
    bytes: "12 1a 0a03746370 12095b3a3a315d3a343433 18b5b8f0fead80808040",
  },
  { packet: { type: "DIAL_RSP", error: "", connectID: 7, random: 300 }, bytes: "0801 1a05 1007 18ac02" },
  {
    packet: { type: "DIAL_RSP", error: "no", connectID: 0, random: -1 },
    bytes: "0801 1a0f 0a026e6f 18ffffffffffffffffff01",
  },
  { packet: { type: "CLOSE_REQ", connectID: 1 }, bytes: "0802 2a02 0801" },
  { packet: { type: "CLOSE_REQ", connectID: 0 }, bytes: "0802 2a00" },
  { packet: { type: "CLOSE_RSP", error: "gone", connectID: 2 }, bytes: "0803 3208 0a04676f6e65 1002" },
  { packet: { type: "DIAL_CLS", random: tunnelId(MIN) }, bytes: "0805 3a0b 0880808080808080808001" },
  { packet: { type: "DRAIN" }, bytes: "0806 4200" },
  { packet: { type: "WINDOW", connectID: 3, credit: 65_536 }, bytes: "0840 820406 0803 10808004" },
  { packet: { type: "FIN", connectID: 2 ** 40 }, bytes: "0841 8a0407 08808080808020" },
];

for (const { packet, bytes } of GOLDEN) {
  test(`frameControl: ${packet.type} ${bytes} both ways`, () => {
    assert.equal(message(frameControl(packet)).toString("hex"), hex(bytes).toString("hex"));
    assert.deepEqual(read(hex(bytes)), packet);
  });
}

test("frameData: the header before the payload, with ids of every size", () => {
  const payload = Buffer.from("hello");
  const framed = (id: TunnelId): Buffer => message(Buffer.concat([frameData(id, payload.length), payload]));
  assert.equal(framed(1).toString("hex"), hex("0804 2209 0801 1a0568656c6c6f").toString("hex"));
  assert.equal(
    framed(tunnelId(-1n)).toString("hex"),
    hex("0804 2212 08ffffffffffffffffff01 1a0568656c6c6f").toString("hex"),
  );
  for (const id of [0, 1, 127, 128, 2 ** 40, 2 ** 53 - 1, tunnelId(2n ** 53n), tunnelId(MAX), tunnelId(MIN), -5]) {
    const data = read(framed(id)) as Data;
    assert.deepEqual([data.type, data.connectID, Buffer.concat(data.pieces).toString()], ["DATA", id, "hello"]);
  }
});

test("decodePacket: DATA in any number of pieces keeps its bytes, uncopied", () => {
  fc.assert(
    fc.property(
      fc.uint8Array({ minLength: 1, maxLength: 300 }),
      fc.bigInt({ min: MIN, max: MAX }),
      fc.array(fc.nat(330), { maxLength: 5 }),
      (payload, id, cuts) => {
        const whole = message(Buffer.concat([frameData(tunnelId(id), payload.length), payload]));
        const at = [0, ...cuts.filter((cut) => cut < whole.length), whole.length].toSorted((a, b) => a - b);
        const pieces = at.slice(1).map((end, index) => whole.subarray(at[index], end));
        const data = decodePacket(pieces, whole.length);
        assert.ok(data.type === "DATA");
        assert.equal(data.connectID, tunnelId(id));
        assert.deepEqual(Buffer.concat(data.pieces), Buffer.from(payload));
        assert.equal(data.length, payload.length);
      },
    ),
  );
});

test("decodePacket: every control packet reads back what was written", () => {
  const id = fc.bigInt({ min: MIN, max: MAX }).map(tunnelId);
  const text = fc.string({ unit: "grapheme", maxLength: 30 });
  const record = fc.record.bind(fc) as typeof fc.record;
  const packet: fc.Arbitrary<ControlPacket> = fc.oneof(
    record({ type: fc.constant("DIAL_REQ" as const), protocol: text, address: text, random: id }),
    record({ type: fc.constant("DIAL_RSP" as const), error: text, connectID: id, random: id }),
    record({ type: fc.constant("CLOSE_REQ" as const), connectID: id }),
    record({ type: fc.constant("CLOSE_RSP" as const), error: text, connectID: id }),
    record({ type: fc.constant("DIAL_CLS" as const), random: id }),
    record({ type: fc.constant("WINDOW" as const), connectID: id, credit: id }),
    record({ type: fc.constant("FIN" as const), connectID: id }),
  );
  fc.assert(
    fc.property(packet, (one) => assert.deepEqual(read(message(frameControl(one))), { ...one })),
    { numRuns: 500 },
  );
});

test("decodePacket: no message at all is a DIAL_REQ without payload", () => {
  assert.deepEqual(decodePacket([], 0), { type: "DIAL_REQ", protocol: "", address: "", random: 0 });
});

test("decodePacket: the type decides; a payload of another type counts as absent", () => {
  assert.deepEqual(read(hex("0804 2a02 0801")), { type: "DATA", connectID: 0, pieces: [], length: 0 });
  assert.deepEqual(read(hex("0802")), { type: "CLOSE_REQ", connectID: 0 });
  assert.deepEqual(read(hex("2a02 0801")), { type: "DIAL_REQ", protocol: "", address: "", random: 0 });
});

test("decodePacket: order, repetition, unknown fields and types as protobuf says", () => {
  // The payload before the type, its fields in reverse.
  assert.deepEqual(read(hex("2209 1a0568656c6c6f 0801 0804")), {
    type: "DATA",
    connectID: 1,
    pieces: [Buffer.from("hello")],
    length: 5,
  });
  // Unknown: field 15 as varint, fixed64, fixed32 and bytes; field 5 of the payload.
  assert.deepEqual(read(hex("0802 7801 790102030405060708 7d01020304 7a0100 2a04 0801 2802")), {
    type: "CLOSE_REQ",
    connectID: 1,
  });
  // Of a oneof the last member counts; one member twice is merged.
  assert.deepEqual(read(hex("0802 4200 2a02 0809")), { type: "CLOSE_REQ", connectID: 9 });
  assert.deepEqual(read(hex("0802 2a02 0809 4200")), { type: "CLOSE_REQ", connectID: 0 });
  assert.deepEqual(read(hex("0803 3203 0a0161 3202 1005")), { type: "CLOSE_RSP", error: "a", connectID: 5 });
  assert.deepEqual(read(hex("0807")), { type: "UNKNOWN", value: 7 });
  assert.deepEqual(read(hex("08ffffffffffffffffff01")), { type: "UNKNOWN", value: -1 });
});

test("decodePacket: a message of very many parts of one member takes time in proportion to its length", () => {
  const parts = 1_000_000;
  const bytes = new Uint8Array(2 + 2 * parts + 4);
  bytes.set([0x08, 0x02]);
  for (let at = 2; at < 2 + 2 * parts; at += 2) bytes.set([0x2a, 0x00], at);
  bytes.set([0x2a, 0x02, 0x08, 0x07], 2 + 2 * parts);
  const before = process.cpuUsage().user;
  assert.deepEqual(read(bytes), { type: "CLOSE_REQ", connectID: 7 });
  assert.ok(process.cpuUsage().user - before < 3_000_000, "3 s of the processor");
});

test("decodePacket: invalid protobuf is refused, even in unused fields", () => {
  for (const bytes of [
    "08",
    "0804 22",
    "0804 2205 08",
    "0b",
    "00",
    "0802 2a02 08ff",
    "0803 3203 0a01ff",
    "0806 4202 08ff",
  ]) {
    assert.throws(() => read(hex(bytes)), { name: "TunnelWireError", code: "malformed" }, bytes);
  }
});

test("decodePacket: arbitrary bytes in arbitrary pieces are a packet or a TunnelWireError", () => {
  const some = fc.oneof(
    fc.uint8Array({ maxLength: 40 }),
    fc.uint8Array({ maxLength: 30 }).map((tail) => Uint8Array.of(8, 4, 0x22, ...tail)),
    fc.tuple(fc.constantFrom(...GOLDEN), fc.nat(30), fc.nat(255)).map(([{ bytes }, at, value]) => {
      const copy = Uint8Array.from(hex(bytes));
      copy[at % copy.length] = value;
      return copy;
    }),
  );
  fc.assert(
    fc.property(some, fc.nat(40), (bytes, cut) => {
      const pieces = [bytes.subarray(0, cut), bytes.subarray(cut)].filter((piece) => piece.length > 0);
      const outcome = (parts: Uint8Array[]): unknown => {
        try {
          const packet = decodePacket(parts, bytes.length);
          return packet.type === "DATA" ? { ...packet, pieces: Buffer.concat(packet.pieces) } : packet;
        } catch (error) {
          assert.ok(error instanceof TunnelWireError, String(error));
          return error.message;
        }
      };
      assert.deepEqual(outcome(pieces), outcome([bytes]));
    }),
    { numRuns: 5000 },
  );
});

test("parseIdentifiers: keys may repeat, escapes are decoded, unknown keys are the caller's choice", () => {
  const text = "ipv4=1.2.3.4&ipv4=5.6.7.8&ipv6=2001%3Adb8%3A%3A1&host=node1&cidr=10.0.0.0%2F8&default-route=true";
  assert.deepEqual(parseIdentifiers(text, { unknownKeys: "refuse" }), {
    ipv4: ["1.2.3.4", "5.6.7.8"],
    ipv6: ["2001:db8::1"],
    host: ["node1"],
    cidr: ["10.0.0.0/8"],
    defaultRoute: true,
  });
  assert.equal(parseIdentifiers("uid=1&host=a", { unknownKeys: "ignore" }).host[0], "a");
  assert.throws(() => parseIdentifiers("uid=1", { unknownKeys: "refuse" }), { code: "unknown-key", message: /"uid"/ });
  assert.throws(() => parseIdentifiers("host=%zz", { unknownKeys: "ignore" }), { code: "invalid" });
  assert.throws(() => parseIdentifiers("default-route=yes", { unknownKeys: "ignore" }), { message: /"yes"/ });
  assert.equal(parseIdentifiers("", { unknownKeys: "refuse" }).defaultRoute, false);
});

test("sharedCapabilities: only those that both sides listed; a Konnectivity peer shares none", () => {
  const ours = new Set(["reverse/1", "flow-control/1"] as const);
  assert.equal(formatCapabilities(ours), "reverse/1,flow-control/1");
  assert.deepEqual([...sharedCapabilities(ours, "half-close/1, flow-control/1,x/2")], ["flow-control/1"]);
  assert.deepEqual([...sharedCapabilities(ours, undefined)], []);
});
