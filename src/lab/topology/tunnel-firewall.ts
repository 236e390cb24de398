import { openNetNs } from "#kernel/netns";
import { NftTransaction, openNft } from "#kernel/nft";
import type { LabNode } from "./lab-node.ts";

/** The name of our table; other tables are not changed. */
const TABLE = { family: "inet", name: "isthmus-lab" } as const;

/**
 * Closes the control plane's namespace in both directions: nodes reach one TCP port of it, and it reaches no port of theirs. Throws
 * `NftError`, `KernelError`.
 */
export function closeControlPlane(controlPlane: LabNode, allow: { readonly agentPort: number }): void {
  using netns = openNetNs({ name: controlPlane.netns });
  using nft = openNft(netns);
  nft.run(firewall(allow));
}

/** Pure. The rules do not use connection tracking, because not every kernel has it. They recognise answers by the source port. */
function firewall({ agentPort }: { readonly agentPort: number }): NftTransaction {
  const tx = new NftTransaction(TABLE).replaceTable({ comment: "the control plane of a lab, apart from its nodes" });
  const neighbours = "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept";
  for (const [hook, link, port] of [
    ["input", "iifname", "dport"],
    ["output", "oifname", "sport"],
  ] as const) {
    tx.chain(hook, { type: "filter", hook, priority: "filter", policy: "drop" });
    tx.rule(hook, `${link} "lo" accept`);
    tx.rule(hook, neighbours, { comment: "who has an IPv6 address" });
    tx.rule(hook, `tcp ${port} ${agentPort} accept`, { comment: "agents of the nodes come in" });
  }
  return tx;
}
