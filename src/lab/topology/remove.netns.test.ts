import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { openKernel } from "#kernel/net";
import { inNetNs, openNetNs } from "#kernel/netns";
import { buildTopology, planTopology, podNetnsPrefix, removeTopology } from "./index.ts";

test("removeTopology: a lab whose name begins with ours keeps its namespaces and processes", async (t) => {
  const kernel = openKernel();
  const ours = `r${process.pid}`;
  const other = `${ours}-b`;
  t.after(async () => {
    for (const lab of [ours, other]) await removeTopology(kernel, lab);
  });
  const build = (lab: string): { readonly names: readonly string[]; readonly sleeper: ChildProcess } => {
    const plan = planTopology({ lab, nodes: 1, families: "dual", tunnel: true, uplinks: true, egress: true });
    buildTopology(kernel, plan);
    const pods = [`node1-0123abcd`, `isthmus-${lab}-q2w3e4-node1-0123abcd`].map(
      (rest) => `${podNetnsPrefix(lab)}${rest}`,
    );
    for (const name of pods) kernel.createNetNs(name)[Symbol.dispose]();
    using netns = openNetNs({ name: plan.fabric });
    const sleeper = inNetNs(netns, () => spawn("sleep", ["600"], { stdio: "ignore" }));
    const names = kernel.listNetNs().filter((name) => name.startsWith(`isthmus-${lab}-`));
    return { names, sleeper };
  };
  const mine = build(ours);
  const others = build(other);
  const ended = once(mine.sleeper, "exit");
  assert.deepEqual(await removeTopology(kernel, ours), { processes: 1, namespaces: mine.names.length });
  await ended;
  assert.deepEqual(
    kernel.listNetNs().filter((name) => name.startsWith(`isthmus-${ours}-`)),
    others.names,
  );
  assert.equal(others.sleeper.exitCode ?? others.sleeper.signalCode, null);
  const otherEnded = once(others.sleeper, "exit");
  assert.deepEqual(await removeTopology(kernel, other), { processes: 1, namespaces: others.names.length });
  await otherEnded;
});

test("buildTopology: no link of a lab takes routes from advertisements or redirects, whatever the defaults of its namespaces are", async (t) => {
  const kernel = openKernel();
  const lab = `r${process.pid}-q`;
  t.after(() => removeTopology(kernel, lab));
  const plan = planTopology({ lab, nodes: 1, families: "dual", tunnel: true, uplinks: true, egress: true });
  const created: Pick<typeof kernel, "createNetNs"> = {
    createNetNs: (name) => {
      const netns = kernel.createNetNs(name);
      using stack = kernel.openStack(netns);
      stack.sysctl.set("net/ipv6/conf/default/accept_ra", 2);
      stack.sysctl.set("net/ipv4/conf/default/accept_redirects", 1);
      return netns;
    },
  };
  buildTopology({ ...kernel, ...created }, plan);
  const takers = kernel
    .listNetNs()
    .filter((name) => name.startsWith(`isthmus-${lab}-`))
    .flatMap((name) => {
      using netns = openNetNs({ name });
      using stack = kernel.openStack(netns);
      const of = (link: string, family: 4 | 6, key: string): string =>
        stack.sysctl.get(`net/ipv${family}/conf/${link}/${key}`);
      return stack.links
        .list()
        .filter(({ name: link }) => link !== "lo")
        .filter(({ name: link }) =>
          [of(link, 4, "accept_redirects"), of(link, 6, "accept_ra"), of(link, 6, "accept_redirects")].some(
            (value) => value !== "0",
          ),
        )
        .map(({ name: link }) => `${name} ${link}`);
    });
  assert.deepEqual(takers, []);
});
