import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { FakeConntrack } from "#kernel/conntrack";
import { endFlows } from "./flows.ts";

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
