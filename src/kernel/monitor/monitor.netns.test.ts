import assert from "node:assert/strict";
import { test } from "node:test";
import { Deferred } from "#base/async";
import { Cidr, IpAddress } from "#base/ip";
import { openKernel } from "#kernel/net";
import { createAnonymousNetNs } from "#kernel/netns";
import { type MonitorEvent, Monitors } from "./index.ts";

interface Collector {
  readonly events: readonly MonitorEvent[];
  readonly listener: (event: MonitorEvent) => void;
  seen(match: (event: MonitorEvent) => boolean): Promise<MonitorEvent>;
}

/** A listener, and a promise for the first event that matches. */
function collector(): Collector {
  const events: MonitorEvent[] = [];
  const waiting = new Set<() => void>();
  return {
    events,
    listener(event) {
      events.push(event);
      for (const look of waiting) look();
    },
    async seen(match) {
      const found = new Deferred<MonitorEvent>();
      const look = (): void => {
        const event = events.find(match);
        if (event !== undefined) found.resolve(event);
      };
      waiting.add(look);
      look();
      // A watch does not keep the test alive while it waits.
      const alive = setTimeout(() => found.reject(new Error(`not seen among ${events.length} events`)), 10_000);
      return found.promise.finally(() => clearTimeout(alive));
    },
  };
}

test("Monitors: reports links, addresses, routes and rules of watched namespaces, and stops when disposed", async () => {
  await using monitors = new Monitors({ onFailure: (error) => assert.fail(error.message) });
  using ns = createAnonymousNetNs();
  using other = createAnonymousNetNs();
  using stack = openKernel().openStack(ns);
  using otherStack = openKernel().openStack(other);
  const here = collector();
  const there = collector();
  const watch = monitors.watch(ns, { links: true, addresses: true, routes: true, rules: true }, here.listener);
  await using _second = monitors.watch(other, { links: true }, there.listener);

  const link = stack.links.create({ kind: "bridge", name: "br0", up: true, alias: "mine" });
  await here.seen((event) => event.kind === "link" && event.op === "new" && event.link.alias === "mine");
  stack.addresses.add({ linkIndex: link.index, address: IpAddress.parse("10.0.0.1"), prefixLength: 24 });
  await here.seen((event) => event.kind === "address" && String(event.address.address) === "10.0.0.1");
  stack.routes.add({ dst: Cidr.parse("10.1.0.0/24"), linkIndex: link.index, table: 116 });
  await here.seen((event) => event.kind === "route" && event.route.table === 116);
  for (const family of [4, 6] as const) {
    stack.rules.add({ family, priority: 2000, table: 116 });
    stack.rules.delete({ family, priority: 2000, table: 116 });
    for (const op of ["new", "delete"]) {
      await here.seen((event) => event.kind === "rule" && event.op === op && event.rule.family === family);
    }
  }
  stack.links.delete(link.index);
  await here.seen((event) => event.kind === "link" && event.op === "delete" && event.link.name === "br0");

  await watch[Symbol.asyncDispose]();
  stack.links.create({ kind: "bridge", name: "unseen" });
  otherStack.links.create({ kind: "bridge", name: "seen" });
  await there.seen((event) => event.kind === "link" && event.link.name === "seen");
  assert.ok(!here.events.some((event) => event.kind === "link" && event.link.name === "unseen"));
});

test("Monitors: reports the forwarding of all links and of one, in both families", async () => {
  await using monitors = new Monitors({ onFailure: (error) => assert.fail(error.message) });
  using ns = createAnonymousNetNs();
  using stack = openKernel().openStack(ns);
  const here = collector();
  const bridge = stack.links.create({ kind: "bridge", name: "br0", up: true });
  await using _watch = monitors.watch(ns, { forwarding: true }, here.listener);
  const reported = (family: 4 | 6, linkIndex: number | undefined, isOn: boolean) =>
    here.seen(
      (event) =>
        event.kind === "forwarding" && event.family === family && event.linkIndex === linkIndex && event.isOn === isOn,
    );
  for (const isOn of [true, false]) {
    stack.sysctl.set("net.ipv4.ip_forward", Number(isOn));
    stack.sysctl.set("net.ipv6.conf.all.forwarding", Number(isOn));
    for (const family of [4, 6] as const) {
      await reported(family, undefined, isOn);
      await reported(family, bridge.index, isOn);
    }
  }
  assert.ok(here.events.every(({ kind }) => kind === "forwarding"));
});

test("Monitors: a link that leaves a bridge is not reported as deleted", async () => {
  await using monitors = new Monitors({ onFailure: (error) => assert.fail(error.message) });
  using ns = createAnonymousNetNs();
  using stack = openKernel().openStack(ns);
  const here = collector();
  await using _watch = monitors.watch(ns, { links: true }, here.listener);
  const bridge = stack.links.create({ kind: "bridge", name: "br0", up: true });
  const port = stack.links.create({ kind: "veth", name: "v0", peer: { name: "v1" }, masterIndex: bridge.index });
  stack.links.set(port.index, { masterIndex: null });
  stack.links.create({ kind: "bridge", name: "last" });
  await here.seen((event) => event.kind === "link" && event.link.name === "last");
  const deleted = here.events.filter((event) => event.kind === "link" && event.op === "delete");
  assert.deepEqual(deleted, []);
});

test("Monitors: reports resync after the kernel dropped events", async () => {
  await using monitors = new Monitors({ onFailure: (error) => assert.fail(error.message) });
  using ns = createAnonymousNetNs();
  using stack = openKernel().openStack(ns);
  const here = collector();
  const link = stack.links.create({ kind: "bridge", name: "br0", up: true });
  await using _watch = monitors.watch(ns, { routes: true }, here.listener);
  // This thread reads nothing meanwhile, so the kernel's queue overflows.
  const dst = Cidr.parse("10.1.0.0/24");
  for (let round = 0; round < 20_000; round += 1) {
    stack.routes.add({ dst, linkIndex: link.index });
    stack.routes.delete({ dst });
  }
  await here.seen((event) => event.kind === "resync");
});

test("Monitors: reports resync again when the queue is empty, since the kernel drops events without a word until then", async () => {
  await using monitors = new Monitors({ onFailure: (error) => assert.fail(error.message) });
  using ns = createAnonymousNetNs();
  using stack = openKernel().openStack(ns);
  const link = stack.links.create({ kind: "bridge", name: "br0", up: true });
  const late = Cidr.parse("10.2.0.0/24");
  const known = new Deferred<void>();
  await using _watch = monitors.watch(ns, { routes: true }, (event) => {
    if (event.kind === "route" && event.route.dst.equals(late)) known.resolve();
    if (event.kind !== "resync") return;
    // A change after this listing, while old events still wait.
    if (stack.routes.list({ family: 4 }).some(({ dst }) => dst.equals(late))) known.resolve();
    else stack.routes.add({ dst: late, linkIndex: link.index });
  });
  const dst = Cidr.parse("10.1.0.0/24");
  for (let round = 0; round < 20_000; round += 1) {
    stack.routes.add({ dst, linkIndex: link.index });
    stack.routes.delete({ dst });
  }
  const alive = setTimeout(() => known.reject(new Error("the change after the first resync was not reported")), 10_000);
  await known.promise.finally(() => clearTimeout(alive));
});

test("Monitors: a watch of a namespace in which nothing happens costs no CPU", async () => {
  await using monitors = new Monitors({ onFailure: (error) => assert.fail(error.message) });
  using ns = createAnonymousNetNs();
  using stack = openKernel().openStack(ns);
  const all = collector();
  await using _watch = monitors.watch(ns, { links: true }, all.listener);
  const loopback = stack.links.get({ name: "lo" });
  assert.ok(loopback !== undefined);
  stack.links.set(loopback.index, { up: true });
  await all.seen((event) => event.kind === "link");
  const before = process.cpuUsage();
  const windowMs = 500;
  await new Promise((resolve) => setTimeout(resolve, windowMs));
  const { user, system } = process.cpuUsage(before);
  assert.ok((user + system) / 1000 < windowMs / 4, `${(user + system) / 1000} ms of CPU in ${windowMs} ms`);
});
