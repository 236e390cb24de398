import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { nftContract } from "#kernel/contract";
import { openKernel } from "#kernel/net";
import { createNetNs, deleteNetNs, openNetNs } from "#kernel/netns";
import { type Nft, NftTransaction, openNft } from "./index.ts";

const NAME = `isk-nft-${process.pid}`;
before(() => createNetNs(NAME)[Symbol.dispose]());
after(() => deleteNetNs(NAME));

function open(): Nft {
  using ns = openNetNs({ name: NAME });
  return openNft(ns);
}

nftContract("real", open);

test("openNft: acts on its namespace and on no other, as nft(8) sees it", () => {
  using nft = open();
  const table = { family: "ip", name: `isk-${process.pid}` } as const;
  nft.run(new NftTransaction(table).addTable().chain("c").rule("c", "ip daddr 192.0.2.1 drop", { comment: "oracle" }));
  const inside = execFileSync("ip", ["netns", "exec", NAME, "nft", "list", "tables"], { encoding: "utf8" });
  const outside = execFileSync("nft", ["list", "tables"], { encoding: "utf8" });
  assert.match(inside, new RegExp(`table ip isk-${process.pid}`));
  assert.doesNotMatch(outside, new RegExp(`table ip isk-${process.pid}`));
  nft.run(new NftTransaction(table).removeTable());
});

test("openNft: link names are looked up in its namespace", () => {
  using ns = openNetNs({ name: NAME });
  using stack = openKernel().openStack(ns);
  const link = stack.links.create({ kind: "bridge", name: "only-here" });
  using nft = open();
  const table = { family: "ip", name: "lookup" } as const;
  nft.run(new NftTransaction(table).addTable().chain("c").rule("c", 'iif "only-here" accept'));
  assert.match(nft.listRules(table, "c")[0]?.rule ?? "", /iif "only-here" accept/);
  nft.run(new NftTransaction(table).removeTable());
  stack.links.delete(link.index);
});
