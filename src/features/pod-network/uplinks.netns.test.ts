import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { Monitors } from "#kernel/monitor";
import { openKernel } from "#kernel/net";
import { Uplinks } from "./uplinks.ts";

test("Uplinks: the kernel's events are enough to follow default routes, also those that go without an event", async (t) => {
  const kernel = openKernel();
  const name = `isthmus-uplinks-${process.pid}`;
  using netns = kernel.createNetNs(name);
  t.after(() => kernel.deleteNetNs(name));
  using stack = kernel.openStack(netns);
  const ip = (...args: string[]): string => execFileSync("ip", ["-n", name, ...args], { encoding: "utf8" });
  let lists = 0;
  const uplinks = new Uplinks({
    list: (filter) => {
      lists += 1;
      return stack.routes.list(filter);
    },
  });
  await using monitors = new Monitors({ onFailure: (error) => assert.fail(error) });
  await using _watch = monitors.watch(netns, { links: true, addresses: true, routes: true, rules: true }, (event) =>
    uplinks.note(event),
  );
  uplinks.isWatched = true;
  const becomes = async (wanted: number | undefined): Promise<void> => {
    const deadline = performance.now() + 10_000;
    for (;;) {
      const found = uplinks.narrowest(stack.links.list())?.mtu;
      if (found === wanted) return;
      assert.ok(performance.now() < deadline, `the MTU is ${found}, not ${wanted}`);
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  await becomes(undefined);
  for (const [link, mtu] of [
    ["up0", "1400"],
    ["up1", "1300"],
  ] as const) {
    ip("link", "add", link, "mtu", mtu, "type", "bridge");
    ip("link", "set", link, "up");
    ip("address", "add", `192.0.2.${mtu.slice(0, 2)}/24`, "dev", link);
  }
  ip("route", "add", "default", "dev", "up0", "metric", "5");
  await becomes(1400);
  ip("route", "add", "default", "dev", "up1", "metric", "6");
  await becomes(1300);
  ip("link", "set", "up1", "down");
  await becomes(1400);
  ip("link", "set", "up0", "mtu", "1350");
  await becomes(1350);
  ip("link", "delete", "up0");
  await becomes(undefined);
  ip("link", "set", "up1", "up");
  ip("-6", "route", "add", "default", "dev", "up1");
  await becomes(1300);
  const before = lists;
  ip("route", "add", "198.51.100.0/24", "dev", "up1");
  for (let at = 0; at < 100; at += 1) await becomes(1300);
  assert.equal(lists, before, "other routes cause no list");
});
