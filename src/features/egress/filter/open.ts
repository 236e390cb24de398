import type { NetNs } from "#kernel/net";
import { openNft } from "#kernel/nft";
import { commandRunner, IptablesError, iptablesFilter } from "./iptables-filter.ts";
import { nftFilter } from "./nft-filter.ts";
import type { FilterBackend } from "./types.ts";

/** The packet filters of a namespace, nftables first: which one its owner has chosen is not known. A machine without iptables has no rules of it. */
export function openFilters(netns: NetNs): Disposable & { readonly all: readonly FilterBackend[] } {
  const nft = openNft(netns);
  const iptables = iptablesFilter(commandRunner(netns));
  const ifThere = async <T>(work: () => Promise<readonly T[]>): Promise<readonly T[]> => {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof IptablesError) || error.code !== "missing") throw error;
      return [];
    }
  };
  const optional: FilterBackend = {
    sync: iptables.sync,
    list: (kinds) => ifThere(() => iptables.list(kinds)),
    counters: (kinds) => ifThere(() => iptables.counters(kinds)),
  };
  return { all: [nftFilter(nft), optional], [Symbol.dispose]: () => nft[Symbol.dispose]() };
}
