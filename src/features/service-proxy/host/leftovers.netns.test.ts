import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { openKernel } from "#kernel/net";
import { openNftElements } from "#kernel/nft-elements";
import { hasLegacyNat, leftovers } from "./leftovers.ts";

const LEGACY = "iptables-legacy";
const skip = existsSync(`/usr/sbin/${LEGACY}`) ? false : `there is no ${LEGACY}`;

test("leftovers: a nat table of legacy iptables is found in the namespace that has it, and is not made by looking", {
  skip,
}, () => {
  const kernel = openKernel();
  const names = ["with", "without"].map((what) => `isp-leg-${what}-${process.pid}`);
  const spaces = names.map((name) => kernel.createNetNs(name));
  try {
    execFileSync("ip", ["netns", "exec", names[0] ?? "", LEGACY, "-t", "nat", "-N", "KUBE-SERVICES"]);
    const seen = (): boolean[] => spaces.map((netns) => hasLegacyNat(netns, 4));
    assert.deepEqual(seen(), [true, false]);
    assert.deepEqual(seen(), [true, false]);
  } finally {
    for (const netns of spaces) netns[Symbol.dispose]();
    for (const name of names) kernel.deleteNetNs(name);
  }
});

test("leftovers: objects of iptables-nft and other proxies are found in a kernel, and stay there", () => {
  const name = `isp-left-${process.pid}`;
  const kernel = openKernel();
  using netns = kernel.createNetNs(name);
  try {
    using stack = kernel.openStack(netns);
    using elements = openNftElements(netns);
    const nft = (...words: string[]): string =>
      execFileSync("ip", ["netns", "exec", name, "nft", ...words], { encoding: "utf8" });
    assert.deepEqual(leftovers({ elements, links: stack.links }, "kube-proxy"), []);
    nft("add table ip nat; add chain ip nat KUBE-SERVICES; add chain ip nat KUBE-MARK-MASQ; add table ip6 kube-proxy");
    stack.links.create({ kind: "bridge", name: "kube-ipvs0" });
    const before = nft("list", "ruleset");
    const found = leftovers({ elements, links: stack.links }, "mine");
    assert.deepEqual(
      found.map((line) => line.split(" ").slice(0, 3).join(" ")),
      ["table ip nat", "table ip6 kube-proxy", "link kube-ipvs0 of"],
    );
    assert.equal(nft("list", "ruleset"), before);
  } finally {
    kernel.deleteNetNs(name);
  }
});
