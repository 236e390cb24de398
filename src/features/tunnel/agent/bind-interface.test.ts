import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { Health } from "#base/health";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { FakeKernel } from "#kernel/fake";
import { BindInterfaceError, DummyBindInterface, watchBindInterface } from "./bind-interface.ts";

const addresses = ["10.255.255.1", "fd00:ffff::1"].map((text) => IpAddress.parse(text));

function machine(...lacks: "dummy"[]) {
  const kernel = new FakeKernel({ lacks });
  const warnings: string[] = [];
  const notes: string[] = [];
  const log = {
    ...nullLogger,
    info: (message: string) => void notes.push(message),
    warn: (message: string) => void warnings.push(message),
    error: (message: string) => void warnings.push(message),
  };
  using own = kernel.openNetNs("own");
  const stack = kernel.openStack(own);
  const bind = (): DummyBindInterface => new DummyBindInterface({ stack, log }, { name: "knode0", addresses });
  /** Every bind address with its interface. */
  const held = (): string[] =>
    stack.addresses
      .list()
      .filter(({ address }) => addresses.some((one) => one.equals(address)))
      .map(({ linkIndex, address, prefixLength, scope }) => {
        const name = stack.links.get({ index: linkIndex })?.name;
        return `${name} ${address}/${prefixLength} ${address.family === 4 ? scope : ""}`.trim();
      });
  return { kernel, stack, bind, held, log, warnings, notes };
}

test("DummyBindInterface: makes the interface with its addresses, is idempotent, and removes it", async () => {
  const { stack, bind, held } = machine();
  const one = bind();
  await one.ensure();
  assert.deepEqual(held(), ["knode0 10.255.255.1/32 host", "knode0 fd00:ffff::1/128"]);
  const link = stack.links.get({ name: "knode0" });
  assert.deepEqual([link?.kind, link?.up], ["dummy", true]);
  assert.ok(stack.addresses.list({ family: 6 }).some(({ noDad, tentative }) => noDad && !tentative));
  await one.ensure();
  assert.equal(stack.links.get({ name: "knode0" })?.index, link?.index);
  await one.release();
  assert.deepEqual(held(), []);
  assert.equal(stack.links.get({ name: "knode0" }), undefined);
  await one.release();
});

test("DummyBindInterface: an interface of an earlier run is adopted and removed", async () => {
  const { stack, bind } = machine();
  await bind().ensure();
  const before = stack.links.get({ name: "knode0" })?.index;
  const next = bind();
  await next.ensure();
  assert.equal(stack.links.get({ name: "knode0" })?.index, before);
  await next.release();
  assert.equal(stack.links.get({ name: "knode0" }), undefined);
});

test("DummyBindInterface: an interface of an operator is used and stays", async () => {
  const { stack, bind, held } = machine();
  stack.links.create({ kind: "dummy", name: "knode0" });
  const one = bind();
  await one.ensure();
  assert.equal(held().length, 2);
  assert.equal(stack.links.get({ name: "knode0" })?.up, true);
  await one.release();
  assert.notEqual(stack.links.get({ name: "knode0" }), undefined);
});

test("DummyBindInterface: interfaces of other kinds and addresses of others are conflicts", async () => {
  const kind = machine();
  kind.stack.links.create({ kind: "bridge", name: "knode0" });
  await assert.rejects(kind.bind().ensure(), { code: "conflict", message: /knode0 exists and is bridge, not dummy/ });
  const address = machine();
  const { index } = address.stack.links.create({ kind: "bridge", name: "br0" });
  address.stack.addresses.add({ linkIndex: index, address: IpAddress.parse("10.255.255.1"), prefixLength: 24 });
  await assert.rejects(address.bind().ensure(), {
    code: "conflict",
    message: /10\.255\.255\.1 is already on interface br0/,
  });
  assert.equal(address.stack.links.get({ name: "knode0" }), undefined);
});

test("DummyBindInterface: without a dummy driver the addresses are added to lo, which is logged once and is no warning", async () => {
  const { bind, held, warnings, notes } = machine("dummy");
  const one = bind();
  await one.ensure();
  await one.ensure();
  assert.deepEqual(held(), ["lo 10.255.255.1/32 host", "lo fd00:ffff::1/128"]);
  assert.equal(notes.filter((note) => note.includes("no dummy interfaces")).length, 1);
  assert.deepEqual(warnings, []);
  // A later run adopts them and does not remove them.
  const next = bind();
  await next.ensure();
  await next.release();
  assert.equal(held().length, 2);
  await one.release();
  assert.deepEqual(held(), []);
});

test("DummyBindInterface: without the privilege the message names it", async () => {
  const { kernel, bind } = machine();
  kernel.fail("links.create", "not-permitted");
  await assert.rejects(bind().ensure(), (error) => {
    assert.ok(error instanceof BindInterfaceError && error.code === "not-permitted");
    assert.match(error.message, /CAP_NET_ADMIN/);
    return true;
  });
});

test("watchBindInterface: restores within 5 s what others remove, and logs a failure once", async () => {
  const { kernel, stack, bind, held, log, warnings } = machine();
  const clock = new FakeClock();
  const controller = new AbortController();
  const one = bind();
  await one.ensure();
  const health = new Health();
  const watching = watchBindInterface(
    one,
    { log, clock, health: health.part("bind-interface", { needed: "always" }) },
    controller,
  );
  stack.links.delete(stack.links.get({ name: "knode0" })?.index ?? 0);
  assert.deepEqual(held(), []);
  kernel.fail("links.create", "busy", { times: 2 });
  await clock.advance(2000);
  await clock.advance(2000);
  assert.equal(warnings.length, 1);
  assert.deepEqual(
    health.unready.map(({ name, status }) => `${name} ${status}`),
    ["bind-interface degraded"],
  );
  await clock.advance(2000);
  assert.equal(held().length, 2);
  controller.abort();
  await watching;
});
