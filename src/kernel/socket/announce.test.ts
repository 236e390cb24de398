import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress, MacAddress } from "#base/ip";
import { announcement } from "./announce.ts";

const MAC = MacAddress.parse("fa:16:3e:00:00:01");

test("announcement: an IPv4 address is a gratuitous ARP request to all", () => {
  assert.equal(
    announcement(MAC, IpAddress.parse("10.0.0.5")).toString("hex"),
    [
      "ffffffffffff",
      "fa163e000001",
      "0806",
      "0001080006040001",
      "fa163e000001",
      "0a000005",
      "000000000000",
      "0a000005",
    ].join(""),
  );
});

test("announcement: an IPv6 address is an advertisement to all nodes, with a right checksum", () => {
  const frame = announcement(MAC, IpAddress.parse("fd00::5"));
  assert.equal(frame.subarray(0, 14).toString("hex"), "333300000001fa163e00000186dd");
  const message = frame.subarray(54);
  assert.equal(message.length, frame.readUInt16BE(18));
  assert.deepEqual([message[0], message[4], frame[20], frame[21]], [136, 0x20, 58, 255]);
  assert.equal(message.subarray(24).toString("hex"), "0201fa163e000001");
  // The sum over pseudo header and message, its checksum included, is all ones.
  const whole = Buffer.concat([frame.subarray(22, 54), Buffer.from([0, 0, 0, message.length, 0, 0, 0, 58]), message]);
  let sum = 0;
  for (let at = 0; at < whole.length; at += 2) sum += whole.readUInt16BE(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  assert.equal(sum, 0xffff);
});
