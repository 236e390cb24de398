import assert from "node:assert/strict";
import { test } from "node:test";
import { type Nft, NftError, type NftErrorCode, type NftTable, NftTransaction } from "#kernel/nft";

const TABLE: NftTable = { family: "ip", name: "isk-contract" };

/** The contract of every {@link Nft}. `open` returns one without tables; the caller of the suite cleans up. */
export function nftContract(label: string, open: () => Nft): void {
  const contract = (name: string, work: (nft: Nft) => void | Promise<void>): void => {
    test(`${label}: nft: ${name}`, async () => {
      using nft = open();
      try {
        await work(nft);
      } finally {
        nft.run(new NftTransaction(TABLE).removeTable());
      }
    });
  };
  const tx = (): NftTransaction => new NftTransaction(TABLE);

  contract("a table with chains, rules, sets and maps reads back", (nft) => {
    nft.run(
      tx()
        .replaceTable()
        .chain("services")
        .chain("post", { type: "nat", hook: "postrouting", priority: 100, policy: "accept" }, { comment: "our hook" })
        .set("nodes", { key: "ipv4_addr", comment: "all nodes" })
        .set("ports", { key: "ipv4_addr . inet_proto . inet_service", value: "verdict" })
        .elements("nodes", [{ key: ["192.0.2.1"], comment: "node 1" }, { key: ["192.0.2.2"] }])
        .elements("ports", [{ key: ["10.0.0.1", "tcp", "80"], value: ["goto services"] }])
        .rule("services", "ip saddr @nodes counter accept", { comment: "from nodes" })
        .rule("post", "ip daddr 10.0.0.0/8 jump services"),
    );
    assert.deepEqual(nft.listTables("ip"), [TABLE]);
    assert.deepEqual(nft.listChains(TABLE), [
      { name: "services" },
      {
        name: "post",
        base: { type: "nat", hook: "postrouting", priority: 100, policy: "accept" },
        ...(label.startsWith("fake") ? { comment: "our hook" } : {}),
      },
    ]);
    const rules = nft.listRules(TABLE, "services");
    assert.deepEqual(
      rules.map(({ comment }) => comment),
      ["from nodes"],
    );
    assert.match(rules[0]?.rule ?? "", /^ip saddr @nodes counter .*accept$/);
    assert.deepEqual(nft.listCounters(TABLE, "services"), [
      { comment: "from nodes", handle: rules[0]?.handle, packets: 0, bytes: 0 },
    ]);
    assert.deepEqual(nft.listCounters(TABLE, "post"), []);
    assert.deepEqual(
      nft.listSets(TABLE).map(({ name, key, value }) => ({ name, key, value })),
      [
        { name: "nodes", key: "ipv4_addr", value: undefined },
        { name: "ports", key: "ipv4_addr . inet_proto . inet_service", value: "verdict" },
      ],
    );
    assert.deepEqual(byKey(nft, "nodes"), ["192.0.2.1 # node 1", "192.0.2.2"]);
    assert.deepEqual(byKey(nft, "ports"), ["10.0.0.1 . 6 . 80 : goto services"]);
    assert.match(nft.print(TABLE) ?? "", /ip saddr @nodes counter/);
  });

  contract("a refused transaction changes nothing and is kept for replay", (nft) => {
    nft.run(tx().replaceTable().chain("one"));
    const bad = tx().chain("two").rule("one", "jump three");
    const error = refused(() => nft.run(bad), "not-found");
    assert.equal(error.script, bad.toString());
    assert.deepEqual(nft.listChains(TABLE), [{ name: "one" }]);
  });

  contract(
    "what is missing is not found, what is used is busy, what exists can be added again but not created",
    (nft) => {
      refused(() => nft.listChains(TABLE), "not-found");
      assert.equal(nft.print(TABLE), undefined);
      nft.run(tx().replaceTable().chain("one").chain("two").rule("one", "jump two").set("s", { key: "ipv4_addr" }));
      nft.run(tx().chain("one").set("s", { key: "ipv4_addr" }).rule("one", "ip saddr @s drop"));
      refused(() => nft.run([{ op: "create", kind: "chain", table: TABLE, chain: "one" }]), "already-exists");
      refused(() => nft.run(tx().deleteChain("three")), "not-found");
      refused(() => nft.run(tx().deleteChain("two")), "busy");
      refused(() => nft.run(tx().deleteSet("s")), "busy");
      refused(() => nft.listElements(TABLE, "nope"), "not-found");
      nft.run(tx().flushChain("one").deleteChain("two").deleteSet("s"));
      assert.deepEqual(nft.listRules(TABLE, "one"), []);
      assert.deepEqual(nft.listSets(TABLE), []);
    },
  );

  contract("rules keep their order, go in front or behind, and are deleted by handle", (nft) => {
    nft.run(
      tx().replaceTable().chain("one").rule("one", "accept", { comment: "b" }).rule("one", "drop", { comment: "c" }),
    );
    nft.run(tx().insertRule("one", "return", { comment: "a" }));
    const order = (): (string | undefined)[] => nft.listRules(TABLE, "one").map(({ comment }) => comment);
    assert.deepEqual(order(), ["a", "b", "c"]);
    const second = nft.listRules(TABLE, "one")[1];
    assert.equal(second?.rule, "accept");
    nft.run(tx().deleteRule("one", second?.handle ?? 0));
    assert.deepEqual(order(), ["a", "c"]);
    refused(() => nft.run(tx().deleteRule("one", 9999)), "not-found");
  });

  contract("elements are added once, refused with another value, and deleted", (nft) => {
    nft.run(tx().replaceTable().set("m", { key: "ipv4_addr", value: "ipv4_addr . inet_service" }));
    const element = { key: ["10.0.0.1"], value: ["10.1.0.1", "80"] };
    nft.run(tx().elements("m", [element]));
    nft.run(tx().elements("m", [element]));
    refused(() => nft.run(tx().elements("m", [{ key: ["10.0.0.1"], value: ["10.1.0.2", "80"] }])), "already-exists");
    nft.run(
      tx()
        .deleteElements("m", [element])
        .elements("m", [{ key: ["10.0.0.1"], value: ["10.1.0.2", "80"] }]),
    );
    assert.deepEqual(byKey(nft, "m"), ["10.0.0.1 : 10.1.0.2 . 80"]);
    refused(() => nft.run(tx().deleteElements("m", [{ key: ["10.0.0.9"] }])), "not-found");
    refused(() => nft.run(tx().elements("m", [{ key: ["10.0.0.9"] }])), "invalid");
  });

  contract("check says what run would, and changes nothing", (nft) => {
    nft.check(tx().replaceTable());
    assert.deepEqual(nft.listTables("ip"), []);
    refused(() => nft.check(tx().deleteChain("x")), "not-found");
  });

  contract("load splits many elements into transactions", async (nft) => {
    const elements = Array.from({ length: 1200 }, (_, at) => ({ key: [`10.0.${at >> 8}.${at & 255}`] }));
    await nft.load(tx().replaceTable().set("s", { key: "ipv4_addr" }).elements("s", elements));
    assert.equal(nft.listElements(TABLE, "s").length, 1200);
    await assert.rejects(nft.load(tx().deleteSet("s"), { signal: AbortSignal.abort(new Error("enough")) }), /enough/);
    assert.equal(nft.listSets(TABLE).length, 1);
  });
}

function byKey(nft: Nft, set: string): string[] {
  const proto = (part: string): string => (part === "tcp" ? "6" : part);
  return nft
    .listElements(TABLE, set)
    .map(({ key, value, comment }) => {
      const text = key.map(proto).join(" . ") + (value === undefined ? "" : ` : ${value.join(" . ")}`);
      return comment === undefined ? text : `${text} # ${comment}`;
    })
    .sort();
}

function refused(work: () => unknown, code: NftErrorCode): NftError {
  let caught: unknown;
  try {
    work();
  } catch (error) {
    caught = error;
  }
  assert.ok(caught instanceof NftError, `not refused: ${caught}`);
  assert.equal(caught.code, code, caught.message);
  return caught;
}
