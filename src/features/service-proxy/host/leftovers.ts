import type { LinkPort } from "#kernel/net";
import type { NftElements } from "#kernel/nft-elements";

/** kube-proxy's own table of nftables mode (docs/spec/service-proxy.md#2.12). */
const KUBE_PROXY_TABLE = "kube-proxy";
/** The link that has all cluster IPs in kube-proxy's IPVS mode. */
const IPVS_LINK = "kube-ipvs0";
/** `kube-proxy --cleanup` deletes the tables of its nftables mode too, whose name ours have. */
const REMEDY =
  "the iptables commands of docs/guides/service-proxy.md; kube-proxy --cleanup would delete the tables of service-proxy too";
/** Chains that translate. kubelet's chains begin with KUBE too, but do not match. */
const TRANSLATES = /^KUBE-(SERVICES|NODEPORTS|EXTERNAL-SERVICES|SVC-.+|SEP-.+)$/;

/**
 * Objects that another proxy left in the kernel and that still translate Services. Each line names an object and the command that removes
 * it. This function removes nothing. Does not see chains of legacy iptables, which are not in nftables. Throws `KernelError`.
 */
export function leftovers(
  kernel: { readonly elements: Pick<NftElements, "names">; readonly links: Pick<LinkPort, "get"> },
  tableName: string,
): string[] {
  const found: string[] = [];
  for (const family of ["ip", "ip6"] as const) {
    const chains = kernel.elements.names({ family, name: "nat" })?.chains ?? [];
    const count = chains.filter((name) => TRANSLATES.test(name)).length;
    if (count > 0) {
      found.push(`table ${family} nat has ${count} chains of kube-proxy's iptables mode; remove them with ${REMEDY}`);
    }
    if (tableName !== KUBE_PROXY_TABLE && kernel.elements.names({ family, name: KUBE_PROXY_TABLE }) !== undefined) {
      found.push(
        `table ${family} ${KUBE_PROXY_TABLE} of another proxy exists; remove it with nft delete table ${family} ${KUBE_PROXY_TABLE}`,
      );
    }
  }
  if (kernel.links.get({ name: IPVS_LINK }) !== undefined) {
    found.push(
      `link ${IPVS_LINK} of kube-proxy's IPVS mode exists; remove it with ipvsadm --clear && ip link delete ${IPVS_LINK}`,
    );
  }
  return found;
}
