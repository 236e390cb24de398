import { commandRunner, type FilterBackend, iptablesFilter, nftFilter } from "#features/egress";
import type { NetNs } from "#kernel/net";
import { openNft } from "#kernel/nft";

/** The values of `--backend`. */
export const FILTER_BACKENDS = ["iptables", "nftables"] as const;

/** Opens the packet filter of a network namespace, which must stay open as long. */
export function filterOpener(backend: (typeof FILTER_BACKENDS)[number]): (netns: NetNs) => FilterBackend & Disposable {
  if (backend === "nftables")
    return (netns) => {
      const nft = openNft(netns);
      return { ...nftFilter(nft), [Symbol.dispose]: () => nft[Symbol.dispose]() };
    };
  return (netns) => ({ ...iptablesFilter(commandRunner(netns)), [Symbol.dispose]: () => undefined });
}
