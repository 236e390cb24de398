import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { type TestContext, test } from "node:test";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { createNetNs, deleteNetNs } from "#kernel/netns";
import { NUMBERED_PORT, NumberedServers, openNumbered, PingFlows, type PingingPod } from "./upgrade-traffic.ts";

/** Two pods of two nodes, on one link. */
function twoPods(t: TestContext): { readonly pods: readonly PingingPod[]; readonly ip: (...args: string[]) => void } {
  const names = ["a", "b"].map((one) => `isthmus-pings-${process.pid}-${one}`);
  const ip = (...args: string[]): void => void execFileSync("ip", args);
  for (const name of names) {
    createNetNs(name)[Symbol.dispose]();
    t.after(() => deleteNetNs(name));
  }
  const [a = "", b = ""] = names;
  ip("-n", a, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b);
  const pods = names.map((name, at) => {
    const addresses = [`10.9.0.${at + 1}`, `fd09::${at + 1}`];
    ip("-n", name, "link", "set", "eth0", "up");
    ip("-n", name, "address", "add", `${addresses[0]}/24`, "dev", "eth0");
    ip("-n", name, "address", "add", `${addresses[1]}/64`, "dev", "eth0", "nodad");
    const node = `node${at}`;
    return { name: `pod${at}`, node, netns: `/run/netns/${name}`, addresses: addresses.map(IpAddress.parse) };
  });
  return { pods, ip };
}

/** Resolves when a condition holds. */
function until(condition: () => boolean): Promise<boolean> {
  return poll(condition, { until: (is) => is, everyMs: 5, deadlineMs: 10_000, clock: systemClock });
}

test("PingFlows: each pair of pods has a flow in each family and direction; none is lost over a link, and each is while it is cut", async (t) => {
  const { pods, ip } = twoPods(t);
  using flows = new PingFlows(pods);
  assert.equal(flows.flows, 4);
  await until(() => flows.sent >= 20);
  const first = await flows.count({});
  assert.ok(first.sent >= 20, String(first.sent));
  assert.deepEqual([first.lost, first.lostBy], [0, []]);
  // Packets are lost without an error of the sender.
  const [, cut] = pods;
  ip("-n", cut?.netns.split("/").at(-1) ?? "", "link", "set", "eth0", "address", "02:00:00:00:00:99");
  await until(() => flows.sent >= 8);
  const second = await flows.count({});
  assert.ok(second.lost > 0 && second.lost <= second.sent, JSON.stringify(second));
  assert.match(second.lostBy.join(), /pod0 -> pod1 \(10\.9\.0\.2\): \d+ pings lost/);
});

test("openNumbered: numbers go both ways until the servers end, which is a fault of the connection", async (t) => {
  const { pods } = twoPods(t);
  const [from, to] = pods;
  const [address] = to?.addresses ?? [];
  assert.ok(from !== undefined && to !== undefined && address !== undefined);
  const place = { address, port: NUMBERED_PORT };
  await assert.rejects(openNumbered({ path: from.netns }, place, {}), { name: "InsideError" });
  const servers = new NumberedServers();
  await servers.serve({ path: to.netns }, address);
  using side = await openNumbered({ path: from.netns }, place, {});
  await until(() => side.received > 3 && side.sent > 3);
  assert.equal(side.fault, undefined);
  assert.ok(side.longestGapMs < 5000);
  await servers[Symbol.asyncDispose]();
  await until(() => side.fault !== undefined);
  assert.match(side.fault ?? "", /closed|ended|reset/i);
});
