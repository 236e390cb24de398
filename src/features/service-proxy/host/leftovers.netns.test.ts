import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { openKernel } from "#kernel/net";
import { openNftElements } from "#kernel/nft-elements";
import { leftovers } from "./leftovers.ts";

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
