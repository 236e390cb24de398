import { type NftTable, NftTransaction, openNft } from "#kernel/nft";
import type { FeatureProbe } from "./types.ts";

const TABLE: NftTable = { family: "inet", name: "probe" };

function nftProbe(name: string, affects: readonly string[], fill: (tx: NftTransaction) => void): FeatureProbe {
  return {
    name,
    affects,
    attempt(ns) {
      using nft = openNft(ns);
      const tx = new NftTransaction(TABLE).addTable();
      fill(tx);
      nft.run(tx);
      return "the kernel accepted a sample";
    },
  };
}

/** Samples of the constructs that the suite's rules are made of. */
export const NFT_PROBES: readonly FeatureProbe[] = [
  nftProbe("nf_tables", ["service proxy", "egress", "uplink proxy"], (tx) => {
    tx.chain("c", { type: "filter", hook: "forward", priority: 0 }).rule("c", "ct state invalid counter drop");
  }),
  nftProbe("nft nat", ["service proxy", "egress"], (tx) => {
    tx.chain("c", { type: "nat", hook: "postrouting", priority: 100 }).rule("c", "masquerade fully-random");
    tx.chain("d", { type: "nat", hook: "prerouting", priority: -100 }).rule(
      "d",
      "ip daddr 192.0.2.1 dnat ip to 192.0.2.2",
    );
  }),
  nftProbe("nft verdict maps", ["service proxy"], (tx) => {
    tx.chain("svc").set("m", { key: "ipv4_addr . inet_proto . inet_service", value: "verdict" });
    tx.elements("m", [{ key: ["192.0.2.1", "tcp", "80"], value: ["goto svc"] }]);
    tx.chain("c").rule("c", "ip daddr . meta l4proto . th dport vmap @m");
  }),
  nftProbe("nft numgen", ["service proxy"], (tx) => {
    tx.chain("c").chain("a").rule("c", "numgen random mod 2 vmap { 0 : goto a, 1 : drop }");
  }),
  nftProbe("nft interval concatenations", ["service proxy (source ranges)"], (tx) => {
    tx.set("s", { key: "ipv4_addr . inet_service . ipv4_addr", flags: ["interval"] });
    tx.elements("s", [{ key: ["192.0.2.1", "80", "10.0.0.0/8"] }]);
  }),
  nftProbe("nft dynamic sets", ["service proxy (session affinity)"], (tx) => {
    tx.set("s", { key: "ipv4_addr", flags: ["dynamic", "timeout"], timeoutSeconds: 60 });
    tx.chain("c").rule("c", "update @s { ip saddr }");
  }),
  nftProbe("nft fib", ["service proxy (node ports)"], (tx) => {
    tx.chain("c", { type: "filter", hook: "prerouting", priority: 0 }).rule("c", "fib daddr type local accept");
  }),
  nftProbe("nft reject", ["service proxy"], (tx) => {
    tx.chain("c", { type: "filter", hook: "forward", priority: 0 }).rule("c", "reject");
  }),
  nftProbe("nft ct mark", ["egress (originating only)"], (tx) => {
    tx.chain("c", { type: "route", hook: "output", priority: -150 }).rule("c", "meta mark set ct mark");
  }),
];
