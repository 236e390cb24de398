/**
 * nftables of one namespace: transactions as plain, printable data, applied through libnftables, and a fake of it.
 *
 * Owns: {@link Nft}, {@link NftTransaction}, {@link FakeNft}, the printing and reading of nft(8) text. Does not know:
 * owners of tables, purposes of rules.
 *
 * ```ts
 * using nft = openNft(netns);
 * const tx = new NftTransaction({ family: "ip", name: "isthmus" }).replaceTable();
 * tx.set("nodes", { key: "ipv4_addr" }).elements("nodes", [{ key: ["192.0.2.1"] }]);
 * nft.run(tx);
 * ```
 */
export { NftError, type NftErrorCode } from "./errors.ts";
export { FakeNft } from "./fake.ts";
export { parseScript } from "./parse.ts";
export { printChanges } from "./print.ts";
export { openNft, openRuleset, type RulesetReader } from "./real.ts";
export { NftTransaction } from "./transaction.ts";
export type { Nft, NftBase, NftElement, NftSetSpec, NftTable } from "./types.ts";
