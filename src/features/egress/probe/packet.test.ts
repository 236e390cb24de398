import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { IpAddress, MacAddress } from "#base/ip";
import { frame, ipPacket, UDP, udp, vxlan } from "../testing/packets.ts";
import { fouDriver, vniOf, vxlanDriver } from "../tunnel/index.ts";
import { answerTo, decodeProbe, encodeProbe, newProbeToken, probePort } from "./message.ts";
import { wrapProbe } from "./packet.ts";

const EGRESS = { namespace: "internet", name: "nat" };
const ENDS = {
  4: { client: IpAddress.parse("10.64.0.7"), router: IpAddress.parse("10.64.0.8") },
  6: { client: IpAddress.parse("fd02::7"), router: IpAddress.parse("fd02::8") },
};
const PORTS = { clientPort: 40_000, routerPort: 5556 };

test("wrapProbe: inside is a UDP packet from the client to the router with right checksums, in the form of the driver", () => {
  fc.assert(
    fc.property(fc.constantFrom(4 as const, 6 as const), fc.uint8Array({ maxLength: 65 }), (family, payload) => {
      const { client: src, router: dst } = ENDS[family];
      const ports = { from: PORTS.clientPort, to: PORTS.routerPort };
      const inside = ipPacket({ src, dst }, UDP, udp({ src, dst }, ports, payload));
      // The identification, which only fragments need, and the checksum with it.
      if (family === 4) inside.fill(0, 4, 6);
      const macs = { to: MacAddress.parse("02:00:00:00:55:02"), from: MacAddress.parse("02:00:00:00:55:01") };
      const wrap = (driver: typeof fouDriver): Buffer => {
        const bytes = wrapProbe(driver, EGRESS, { ...ENDS[family], ...PORTS }, payload);
        const at = bytes.length - inside.length;
        if (family === 4) inside.writeUInt16BE(bytes.readUInt16BE(at + 10), 10);
        return bytes;
      };
      assert.deepEqual(wrap(fouDriver), inside);
      assert.deepEqual(wrap(vxlanDriver), vxlan(vniOf(EGRESS), frame(macs, inside)));
      if (family === 4) assert.equal(sumOf(inside.subarray(0, 20)), 0xffff);
    }),
    { numRuns: 200 },
  );
});

/** RFC 1071: the sum of a header with its checksum is 0xffff. */
function sumOf(header: Buffer): number {
  let sum = 0;
  for (let at = 0; at < header.length; at += 2) sum += header.readUInt16BE(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return sum;
}

test("probes: a question has an answer with its token, and an answer has none", () => {
  const token = newProbeToken();
  const question = encodeProbe({ kind: "question", token });
  assert.deepEqual(decodeProbe(question), { kind: "question", token });
  const answer = answerTo(question);
  assert.deepEqual(answer, encodeProbe({ kind: "answer", token }));
  assert.equal(answer?.length, question.length);
  assert.equal(answerTo(encodeProbe({ kind: "answer", token })), undefined);
  assert.notEqual(newProbeToken(), token);
  assert.deepEqual([5555, 65_535, 1].map(probePort), [5556, 65_534, 2]);
});

test("fuzz: of any bytes, and of a question with any bytes replaced, nothing is thrown, and what is decoded has the same bytes", () => {
  const question = encodeProbe({ kind: "question", token: newProbeToken() });
  const changed = fc.array(fc.tuple(fc.nat(question.length - 1), fc.nat(255)), { maxLength: 4 }).map((edits) => {
    const bytes = Buffer.from(question);
    for (const [at, to] of edits) bytes[at] = to;
    return bytes;
  });
  const any = fc.uint8Array({ maxLength: 100 }).map((bytes) => Buffer.from(bytes));
  fc.assert(
    fc.property(fc.oneof(any, changed), (bytes) => {
      const message = decodeProbe(bytes);
      if (message !== undefined) assert.deepEqual(encodeProbe(message), bytes);
      const answer = answerTo(bytes);
      assert.equal(answer === undefined, message?.kind !== "question");
    }),
    { numRuns: 2000 },
  );
});
