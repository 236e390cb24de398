import { type ConntrackPort, openConntrack } from "#kernel/conntrack";
import type { NetNs } from "#kernel/net";
import { openNft } from "#kernel/nft";
import { type NftElements, openNftElements } from "#kernel/nft-elements";
import { commandRunner, type FilterBackend, iptablesFilter, nftFilter } from "../filter/index.ts";
import { type ClientGuardPort, openClientGuard } from "../guard/index.ts";

/** The values of `--backend`. */
export const FILTER_BACKENDS = ["iptables", "nftables"] as const;

/** Open what a client needs of the packet filters of a network namespace, which must stay open as long: the packet filter in use, the other one, connection tracking, the guard, and elements of sets. */
export interface FilterOpeners {
  readonly openFilter: FilterOpener;
  readonly openOther: FilterOpener;
  readonly openConntrack: (netns: NetNs) => ConntrackPort;
  /** The table that takes tunnel packets from routers alone; of nftables, whatever the packet filter in use is. */
  readonly openGuard: (netns: NetNs) => ClientGuardPort & Disposable;
  /** The elements of sets, of nftables too. */
  readonly openElements: (netns: NetNs) => Pick<NftElements, "listInSlices"> & Disposable;
}

type FilterOpener = (netns: NetNs) => FilterBackend & Disposable;

/** The packet filters for a value of `--backend`. */
export function filterOpeners(backend: (typeof FILTER_BACKENDS)[number]): FilterOpeners {
  const other = backend === "nftables" ? "iptables" : "nftables";
  return {
    openFilter: openerOf(backend),
    openOther: openerOf(other),
    openConntrack,
    openGuard: openClientGuard,
    openElements: openNftElements,
  };
}

function openerOf(backend: (typeof FILTER_BACKENDS)[number]): FilterOpener {
  if (backend === "nftables")
    return (netns) => {
      const nft = openNft(netns);
      return { ...nftFilter(nft), [Symbol.dispose]: () => nft[Symbol.dispose]() };
    };
  return (netns) => ({ ...iptablesFilter(commandRunner(netns)), [Symbol.dispose]: () => undefined });
}
