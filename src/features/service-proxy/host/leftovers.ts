import { readFileSync } from "node:fs";
import type { IpFamily } from "#base/ip";
import type { LinkPort } from "#kernel/net";
import { inNetNs } from "#kernel/netns";
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
 * it. This function removes nothing. Of legacy iptables, whose chains are not in nftables, it sees only that there is a table, with `hasLegacyNat`.
 * Throws `KernelError`.
 */
export function leftovers(
  kernel: {
    readonly elements: Pick<NftElements, "names">;
    readonly links: Pick<LinkPort, "get">;
    readonly hasLegacyNat?: (family: IpFamily) => boolean;
  },
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
  for (const family of [4, 6] as const) {
    if (kernel.hasLegacyNat?.(family) !== true) continue;
    const save = `${family === 4 ? "iptables" : "ip6tables"}-legacy-save -t nat`;
    found.push(
      `table nat of legacy iptables exists in IPv${family}, whose chains cannot be read here; it may be of kube-proxy's iptables mode, or of another program, such as Docker: ${save} shows chains KUBE-SVC-... in the first case`,
    );
  }
  if (kernel.links.get({ name: IPVS_LINK }) !== undefined) {
    found.push(
      `link ${IPVS_LINK} of kube-proxy's IPVS mode exists; remove it with ipvsadm --clear && ip link delete ${IPVS_LINK}`,
    );
  }
  return found;
}

/** Returns true if legacy iptables has a table nat in this namespace. False if that cannot be read: only root may. The opener keeps `netns` open. */
export function hasLegacyNat(netns: { readonly fd: number }, family: IpFamily): boolean {
  // The kernel lists the tables that exist. It makes one when it is first used; reading the list makes none.
  const path = `/proc/thread-self/net/ip${family === 4 ? "" : "6"}_tables_names`;
  try {
    return inNetNs(netns, () => readFileSync(path, "utf8"))
      .split("\n")
      .includes("nat");
  } catch (error) {
    // The module of legacy iptables is not loaded, or the list is not for this user.
    if (["ENOENT", "EACCES", "EPERM"].includes((error as NodeJS.ErrnoException).code ?? "")) return false;
    throw error;
  }
}
