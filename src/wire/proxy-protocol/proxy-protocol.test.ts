import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { encodeProxyHeader } from "./index.ts";

const SIGNATURE = "0d0a0d0a000d0a515549540a";
const at = (address: string, port: number) => ({ address: IpAddress.parse(address), port });
const header = (...[source, destination]: ReturnType<typeof at>[]): string => {
  assert.ok(source !== undefined && destination !== undefined);
  return Buffer.from(encodeProxyHeader({ source, destination })).toString("hex");
};

test("encodeProxyHeader: golden bytes of IPv4 and IPv6, as the specification lays them out", () => {
  assert.equal(
    header(at("192.0.2.1", 56_324), at("198.51.100.2", 443)),
    `${SIGNATURE}21 11 000c c0000201 c6336402 dc04 01bb`.replaceAll(" ", ""),
  );
  assert.equal(
    header(at("2001:db8::1", 1), at("::1", 65_535)),
    `${SIGNATURE}21 21 0024 20010db8000000000000000000000001 00000000000000000000000000000001 0001 ffff`.replaceAll(
      " ",
      "",
    ),
  );
});

test("encodeProxyHeader: IPv4-mapped ends are IPv4; ends of two families are both IPv6", () => {
  const plain = header(at("192.0.2.1", 1), at("192.0.2.2", 2));
  assert.equal(header(at("::ffff:192.0.2.1", 1), at("::ffff:192.0.2.2", 2)), plain);
  assert.equal(header(at("::ffff:192.0.2.1", 1), at("192.0.2.2", 2)), plain);
  assert.match(
    header(at("192.0.2.1", 1), at("2001:db8::1", 2)),
    /21210024(00){10}ffffc000020120010db8(00){11}0100010002$/,
  );
});
