import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { openKernel } from "#kernel/net";
import { eventually, onBug, running } from "../testing/probe.ts";
import { ServicePorts } from "./index.ts";

const kernel = openKernel();
const NAME = `isthmus-sp-${process.pid}`;
const KNOWN = IpAddress.parse("::1");
const NEW = IpAddress.parse("2001:db8::7");

test("ServicePorts: an address whose duplicate address detection runs is listened on, and closes no other listener", async () => {
  using netns = kernel.createNetNs(NAME);
  try {
    using stack = kernel.openStack(netns);
    stack.links.set(1, { up: true });
    const link = stack.links.create({ kind: "veth", name: "eth0", peer: { name: "eth1" } });
    // Without its peer up the link has no carrier, so detection does not end.
    stack.links.set(link.index, { up: true });
    const failures: string[] = [];
    const log = { ...nullLogger, error: (message: string) => failures.push(message) };
    const ports = new ServicePorts(
      { health: { isServing: true }, netns, clock: systemClock, log, onBug },
      { lingerMs: 0 },
    );
    await using _run = running(ports);
    const listeners = () => ports.listenersFor(6, "ns/web");
    ports.setAddresses(6, [KNOWN]);
    ports.setServices(6, [{ namespace: "ns", name: "web", port: 30_999, localEndpoints: 1 }]);
    const [before] = await eventually(() => (listeners().length === 1 ? listeners() : undefined));
    stack.addresses.add({ linkIndex: link.index, address: NEW, prefixLength: 64 });
    assert.equal(
      stack.addresses.list({ linkIndex: link.index }).find(({ address }) => address.equals(NEW))?.tentative,
      true,
    );
    ports.setAddresses(6, [KNOWN, NEW]);
    await eventually(() => (listeners().length === 1 ? undefined : true));
    assert.deepEqual([listeners().length, listeners()[0] === before, failures], [2, true, []]);
  } finally {
    kernel.deleteNetNs(NAME);
  }
});
