import { Cidr } from "#base/ip";
import type { NftElements } from "#kernel/nft-elements";
import { cidrsIn } from "../plan/index.ts";
import { SETS } from "../rules/index.ts";

/** The ranges of cluster IPs (ServiceCIDRs) that a proxy has written into its tables of this name, of both families. Throws `KernelError`. */
export function serviceRanges(elements: Pick<NftElements, "names" | "list">, tableName: string): readonly Cidr[] {
  return (["ip", "ip6"] as const).flatMap((family) => {
    const table = { family, name: tableName };
    if (elements.names(table)?.sets.includes(SETS.serviceCidrs) !== true) return [];
    const texts = cidrsIn(elements.list(table, SETS.serviceCidrs)).split(",");
    return texts.flatMap((text) => Cidr.tryParse(text) ?? []);
  });
}
