import assert from "node:assert/strict";
import { test } from "node:test";
import { statusOf } from "./cni-deps.ts";

const WELL = { lost: [], nodeGone: false, isExhausted: () => false };
const LOST = [{ containerId: "c", ifname: "eth0", block: "default-0", addresses: [] }];
const READY = { isReady: true, setUpFault: undefined };

for (const { name, ipam, parts, code, text } of [
  { name: "all is well", ipam: {}, parts: {}, code: undefined, text: undefined },
  { name: "attachments are cut off", ipam: { lost: LOST }, parts: {}, code: 51, text: /1 attachments are cut off/ },
  { name: "this Node was deleted", ipam: { nodeGone: true }, parts: {}, code: 51, text: /Node was deleted/ },
  { name: "blocks are not known yet", ipam: {}, parts: { isReady: false }, code: 50, text: /has just started/ },
  { name: "links cannot be made", ipam: {}, parts: { setUpFault: "no sysctl" }, code: 50, text: /^no sysctl$/ },
  { name: "another pool is full", ipam: { isExhausted: (pool: string) => pool === "x" }, parts: {}, code: undefined },
  {
    name: "the default pool is full",
    ipam: { isExhausted: (pool: string) => pool === "default" },
    parts: {},
    code: 50,
    text: /pool default has no free block/,
  },
  {
    name: "attachments are cut off while coild starts",
    ipam: { lost: LOST },
    parts: { isReady: false },
    code: 51,
    text: /cut off/,
  },
]) {
  test(`STATUS: ${name}`, () => {
    const failure = statusOf({ ...WELL, ...ipam }, { ...READY, ...parts });
    assert.equal(failure?.detail.code, code);
    if (text !== undefined) assert.match(failure?.message ?? "", text);
  });
}
