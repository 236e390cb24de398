import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { FakeConntrack } from "#kernel/conntrack";
import { endFlows, foreignFlows } from "./flows.ts";

test("endFlows: entries of the given sources go, in the families of these, and no others", async () => {
  using conntrack = new FakeConntrack();
  const add = (src: string, dst: string): void => {
    const [from, to] = [IpAddress.parse(src), IpAddress.parse(dst)];
    const original = { src: from, dst: to };
    conntrack.entries.push({ family: from.family, protocol: 17, original, reply: { src: to, dst: from }, mark: 0 });
  };
  add("10.64.9.1", "203.0.113.9");
  add("10.64.9.1", "10.64.0.8");
  add("10.64.9.2", "203.0.113.9");
  add("203.0.113.9", "10.64.9.1");
  add("fd02::91", "2001:db8::9");
  assert.equal(await endFlows(conntrack, []), 0);
  assert.equal(await endFlows(conntrack, [IpAddress.parse("10.64.9.1"), IpAddress.parse("10.64.9.3")]), 2);
  assert.equal(await endFlows(conntrack, [IpAddress.parse("fd02::91")]), 1);
  assert.deepEqual(
    conntrack.entries.map(({ original }) => String(original.src)),
    ["10.64.9.2", "203.0.113.9"],
  );
});

test("foreignFlows: forwarded flows and packets of tunnels count, of sources without a way back; what the router sends and takes itself does not", async () => {
  using conntrack = new FakeConntrack();
  const add = (
    src: string,
    dst: string,
    more: { readonly protocol?: number; readonly dstPort?: number } = {},
  ): void => {
    const [from, to] = [IpAddress.parse(src), IpAddress.parse(dst)];
    const { protocol = 6, dstPort = 443 } = more;
    const original = { src: from, dst: to, dstPort };
    conntrack.entries.push({ family: from.family, protocol, original, reply: { src: to, dst: from }, mark: 0 });
  };
  const tunnel = { protocol: 17, dstPort: 5555 };
  add("10.64.9.1", "203.0.113.9");
  add("10.64.9.1", "10.64.0.8", tunnel);
  add("fd02::91", "2001:db8::9");
  add("10.64.9.2", "203.0.113.9");
  add("10.64.9.3", "10.64.0.8", { dstPort: 8081 });
  add("10.64.0.8", "203.0.113.9");
  add("127.0.0.1", "127.0.0.1", tunnel);
  add("fe80::1", "ff02::16");
  add("10.64.9.4", "224.0.0.1");
  const addresses = ["10.64.0.8", "fd02::8", "127.0.0.1", "::1"].map((text) => IpAddress.parse(text));
  const router = { addresses, port: 5555, ways: new Set(["10.64.9.2"]) };
  const found = async (limit: number): Promise<string[]> =>
    (await foreignFlows(conntrack, router, { limit })).map(({ source, entries }) => `${source} ${entries}`);
  assert.deepEqual(await found(10), ["10.64.9.1 2", "fd02::91 1"]);
  assert.deepEqual(await found(1), ["10.64.9.1 2"]);
});
