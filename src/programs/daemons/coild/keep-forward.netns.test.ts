import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { type TestContext, test } from "node:test";
import { Dirty } from "#base/async";
import { Health } from "#base/health";
import { Cidr } from "#base/ip";
import { nullLogger } from "#base/log";
import { ForwardPass, openIptables } from "#features/forward-pass";
import { openKernel } from "#kernel/net";
import { openNftElements } from "#kernel/nft-elements";
import { until } from "#test/lab";
import { keepForward } from "./keep-forward.ts";

/** The rules of docker and ufw that a forwarded packet meets. */
const DOCKER = `*filter
:FORWARD DROP [0:0]
:DOCKER-USER - [0:0]
:DOCKER-FORWARD - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-FORWARD
-A DOCKER-FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER-FORWARD -i docker0 -j ACCEPT
COMMIT
`;
const UFW = `*filter
:FORWARD DROP [0:0]
:ufw-before-forward - [0:0]
:ufw-reject-forward - [0:0]
-A FORWARD -j ufw-before-forward
-A FORWARD -j ufw-reject-forward
-A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
`;
const POD = "10.1.0.2";
const OUTSIDE = "198.51.100.2";
const BLOCKS = [Cidr.parse("10.1.0.0/27")];

/** A node that forwards between a pod and the outside, without coild; `start` keeps the rules as coild does. */
function node(t: TestContext) {
  const kernel = openKernel();
  const id = `isthmus-t${process.pid}-kf-${Math.random().toString(36).slice(2, 7)}`;
  const names = ["node", "pod", "out"].map((name) => `${id}-${name}`) as [string, string, string];
  const [own, pod, out] = names;
  for (const name of names) {
    kernel.createNetNs(name)[Symbol.dispose]();
    t.after(() => kernel.deleteNetNs(name));
  }
  const run = (name: string, input: string, ...words: readonly string[]): string =>
    execFileSync("ip", ["netns", "exec", name, ...words], { input, encoding: "utf8", stdio: ["pipe", "pipe", "pipe"] });
  const wire = (link: string, other: string, near: string, far: string): void => {
    run(own, "", "ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", other);
    run(own, "", "ip", "address", "add", `${near}/24`, "dev", link);
    run(own, "", "ip", "link", "set", link, "up");
    run(other, "", "ip", "address", "add", `${far}/24`, "dev", "eth0");
    run(other, "", "ip", "link", "set", "eth0", "up");
    run(other, "", "ip", "route", "add", "default", "via", near);
  };
  wire("veth0a1b2c3d", pod, "10.1.0.1", POD);
  wire("uplink", out, "198.51.100.1", OUTSIDE);
  run(own, "", "sysctl", "-qw", "net.ipv4.ip_forward=1");
  const ping = (from: string, target: string): boolean => {
    try {
      run(from, "", "ping", "-c1", "-W0.3", "-q", target);
      return true;
    } catch {
      return false;
    }
  };
  const health = new Health();
  const open = () => {
    const netns = kernel.openNetNs({ name: own });
    const elements = openNftElements(netns);
    t.after(() => {
      elements[Symbol.dispose]();
      netns[Symbol.dispose]();
    });
    return new ForwardPass({ iptables: openIptables(netns), elements });
  };
  const start = () => {
    const stop = new AbortController();
    let running: Promise<void> | undefined;
    // Before its namespace is closed.
    t.after(async () => {
      stop.abort();
      await running;
    });
    running = keepForward(
      {
        pass: open(),
        blocks: () => BLOCKS,
        dirty: new Dirty(),
        health: health.part("forward"),
        log: nullLogger,
      },
      { signal: stop.signal },
    );
  };
  return {
    open,
    start,
    health,
    run: (input: string, ...words: readonly string[]) => run(own, input, ...words),
    passes: () => ping(pod, OUTSIDE) && ping(out, POD),
    /** Returns true if the pod can begin a connection. */
    reaches: () => ping(pod, OUTSIDE),
    isCut: () => !ping(pod, OUTSIDE) && !ping(out, POD),
  };
}

for (const [who, rules] of [
  ["docker", DOCKER],
  ["ufw", UFW],
] as const)
  test(`keepForward: pods pass the rules of ${who}, before and after the start and on a reload, and a drop on purpose wins`, async (t) => {
    const { start, run, passes, isCut, reaches, health } = node(t);
    const listed = (): string => run("", "iptables-nft", "-S", "FORWARD");
    const soon = { deadlineMs: 3000, everyMs: 50, seen: () => `${listed()}${JSON.stringify(health.parts)}` };
    assert.ok(passes());
    run(rules, "iptables-nft-restore");
    assert.ok(isCut(), "the rules of others cut the pod");
    start();
    await until("after the start", () => /isthmus: pods to/.test(listed()), soon);
    assert.ok(passes());
    // A reload writes the chain anew.
    run(rules, "iptables-nft-restore");
    await until("after a reload", () => /isthmus: pods to/.test(listed()), soon);
    assert.ok(passes());
    run("", "iptables-nft", "-A", "FORWARD", "-s", POD, "-j", "DROP");
    await until(
      "somebody's drop comes before ours",
      () => /-s 10\.1\.0\.2\/32 -j DROP\n.*isthmus/.test(listed()),
      soon,
    );
    assert.ok(!reaches());
    run("", "iptables-nft", "-D", "FORWARD", "-s", POD, "-j", "DROP");
    run("", "iptables-nft", "-P", "FORWARD", "ACCEPT");
    await until("nothing drops, so ours are gone", () => !/isthmus/.test(listed()), soon);
    assert.deepEqual(health.unready, []);
  });

test("ForwardPass: the same in the old variant of iptables, and what is removed with all else of the suite", async (t) => {
  const { open, run, passes, isCut } = node(t);
  const pass = open();
  const listed = (): string => run("", "iptables-legacy", "-S", "FORWARD");
  assert.equal(pass.hasLegacy(), false);
  run(DOCKER, "iptables-legacy-restore");
  assert.equal(pass.hasLegacy(), true);
  assert.ok(isCut());
  assert.deepEqual(await pass.sync(BLOCKS), [{ family: 4, variant: "legacy" }]);
  assert.ok(passes());
  assert.deepEqual(await pass.sync(BLOCKS), []);
  assert.deepEqual(await pass.sync([]), [{ family: 4, variant: "legacy" }]);
  assert.doesNotMatch(listed(), /isthmus/);
});

test("keepForward: rules that come after the start pass pods too, also after a flush of the whole ruleset", async (t) => {
  const { start, run, passes } = node(t);
  start();
  const listed = (): string => run("", "iptables-nft", "-S", "FORWARD");
  for (const round of [1, 2]) {
    run(DOCKER, "iptables-nft-restore");
    await until(`round ${round}`, () => /isthmus: pods to/.test(listed()), { deadlineMs: 2000, everyMs: 50 });
    assert.ok(passes());
    run("", "nft", "flush", "ruleset");
    assert.ok(passes());
  }
});
