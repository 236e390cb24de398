import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { nftContract } from "#kernel/contract";
import { FakeNft, NftError, NftTransaction, parseScript, printChanges } from "./index.ts";
import { parseChains, parseElements, parseSets, parseTables } from "./listing.ts";
import { parseRules } from "./rules-text.ts";

const TABLE = { family: "inet", name: "isthmus" } as const;

nftContract("fake", () => new FakeNft());

test("NftTransaction: prints as nft(8) syntax, a command a line", () => {
  const tx = new NftTransaction(TABLE)
    .replaceTable({ comment: "ours" })
    .chain("post", { type: "nat", hook: "postrouting", priority: "srcnat", policy: "accept" })
    .set("m", { key: "ipv4_addr . inet_service", value: "verdict", flags: ["interval"], comment: "who; where" })
    .elements("m", [{ key: ["10.0.0.0/8", "80"], value: ["drop"], comment: "a, b" }])
    .rule("post", 'oifname "eth0" masquerade', { comment: "leave" });
  assert.deepEqual(tx.toString().trimEnd().split("\n"), [
    "add table inet isthmus",
    "delete table inet isthmus",
    'add table inet isthmus { comment "ours" ; }',
    "add chain inet isthmus post { type nat hook postrouting priority srcnat ; policy accept ; }",
    'add map inet isthmus m { type ipv4_addr . inet_service : verdict ; flags interval ; comment "who; where" ; }',
    'add element inet isthmus m { 10.0.0.0/8 . 80 comment "a, b" : drop }',
    'add rule inet isthmus post oifname "eth0" masquerade comment "leave"',
  ]);
  assert.deepEqual(parseScript(tx.toString()), [...tx]);
});

test("printChanges: text that could end a command is refused", () => {
  for (const rule of ["accept; flush ruleset", "accept\nflush ruleset", ""]) {
    assert.throws(() => new NftTransaction(TABLE).rule("c", rule).toString(), NftError);
  }
  assert.throws(() => new NftTransaction(TABLE).rule("c", "accept", { comment: 'a" accept' }).toString(), NftError);
  assert.throws(() => new NftTransaction({ family: "ip", name: "a b" }).addTable().toString(), NftError);
});

test("FakeNft: what it dumps it reads back to the same", () => {
  const nft = new FakeNft();
  nft.run(
    new NftTransaction(TABLE)
      .addTable()
      .chain("a", { type: "filter", hook: "input", priority: -10 })
      .chain("b", undefined, { comment: "no hook" })
      .set("s", { key: "ipv4_addr", flags: ["timeout"], timeoutSeconds: 60, size: 100 })
      .elements("s", [{ key: ["10.0.0.1"], timeoutSeconds: 5, comment: "x" }])
      .rule("a", "ip saddr @s jump b", { comment: "first" }),
  );
  assert.notEqual(nft.dump(), "");
  assert.equal(FakeNft.parse(nft.dump()).dump(), nft.dump());
});

test("FakeNft: an injected failure refuses one transaction", () => {
  const nft = new FakeNft();
  nft.fail("busy");
  const tx = new NftTransaction(TABLE).addTable();
  assert.throws(() => nft.run(tx), { name: "NftError", code: "busy", script: tx.toString() });
  nft.run(tx);
  assert.equal(nft.listTables().length, 1);
});

test("parseScript, parseRules and the listing readers: only NftError escapes, whatever the bytes", () => {
  const only = (work: () => unknown): void => {
    try {
      work();
    } catch (error) {
      assert.ok(error instanceof NftError, String(error));
    }
  };
  const words = fc.constantFrom(
    "add",
    "delete",
    "rule",
    "set",
    "element",
    "ip",
    "t",
    "{",
    "}",
    ";",
    ":",
    ".",
    '"',
    "comment",
    "type",
    "\n",
  );
  const script = fc.oneof(
    fc.string(),
    fc.array(words, { maxLength: 20 }).map((list) => list.join(" ")),
  );
  fc.assert(
    fc.property(script, (text) => {
      only(() => parseScript(text));
      only(() => printChanges(parseScript(text)));
      parseRules(text);
    }),
  );
  const listing = fc.oneof(
    fc.jsonValue(),
    fc.record({ nftables: fc.array(fc.dictionary(fc.constantFrom("set", "map", "chain", "table"), fc.jsonValue())) }),
  );
  fc.assert(
    fc.property(listing, (value) => {
      for (const read of [parseTables, parseChains, parseSets, parseElements]) only(() => read(value));
    }),
  );
});
