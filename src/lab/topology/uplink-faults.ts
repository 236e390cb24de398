import type { Kernel } from "#kernel/net";
import { openNetNs } from "#kernel/netns";
import { NftTransaction, openNft } from "#kernel/nft";
import { PROVIDER_LINKS } from "./build-uplinks.ts";
import type { UplinkLink } from "./uplinks.ts";

/**
 * Faults of an uplink. `link-down`: the provider's end is down, the node's end has no carrier. `gateway-dead`: the provider drops all
 * packets. `swallow`: TCP handshakes complete, data after them is dropped.
 */
export type UplinkFault = "link-down" | "gateway-dead" | "swallow";

export const UPLINK_FAULTS: readonly UplinkFault[] = ["link-down", "gateway-dead", "swallow"];

/** The name of our table. */
const TABLE = { family: "inet", name: "isthmus-lab" } as const;

/** Starts a fault, which lasts until {@link healUplink}. Throws `KernelError`, `NftError`. */
export function breakUplink(kernel: Kernel, link: Pick<UplinkLink, "netns">, fault: UplinkFault): void {
  if (fault === "link-down") setLink(kernel, link, false);
  else runInside(link, faultRules(fault));
}

/** Ends every fault. No effect if there is none. */
export function healUplink(kernel: Kernel, link: Pick<UplinkLink, "netns">): void {
  runInside(link, new NftTransaction(TABLE).removeTable());
  setLink(kernel, link, true);
}

/** Pure. The rules do not use connection tracking, because not every kernel has it. */
function faultRules(fault: Exclude<UplinkFault, "link-down">): NftTransaction {
  const tx = new NftTransaction(TABLE).replaceTable({ comment: `a fault of a lab: ${fault}` });
  if (fault === "gateway-dead") {
    tx.chain("in", { type: "filter", hook: "prerouting", priority: -300 });
    tx.chain("out", { type: "filter", hook: "output", priority: -300 });
    return tx.rule("in", "drop").rule("out", "drop");
  }
  tx.chain("on", { type: "filter", hook: "forward", priority: "filter" });
  const fromNode = `iifname "${PROVIDER_LINKS.node}"`;
  tx.rule("on", `${fromNode} tcp flags & psh == psh drop`, { comment: "the last segment of a write" });
  return tx.rule("on", `${fromNode} meta l4proto tcp meta length > 100 drop`, { comment: "longer than a bare ACK" });
}

function runInside({ netns: name }: Pick<UplinkLink, "netns">, tx: NftTransaction): void {
  using netns = openNetNs({ name });
  using nft = openNft(netns);
  nft.run(tx);
}

function setLink(kernel: Kernel, { netns: name }: Pick<UplinkLink, "netns">, up: boolean): void {
  using netns = openNetNs({ name });
  using stack = kernel.openStack(netns);
  const link = stack.links.get({ name: PROVIDER_LINKS.node });
  if (link === undefined) throw new Error(`${name} has no link ${PROVIDER_LINKS.node}`);
  stack.links.set(link.index, { up });
}
