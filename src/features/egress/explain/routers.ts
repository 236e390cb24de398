import type { IpAddress } from "#base/ip";
import type { FilterBackend } from "../filter/index.ts";
import { planRules, routerRules } from "../router/index.ts";

/** A router that the tunnel's packets may arrive at. */
export interface RouterEnd {
  /** The router's pod, as `NAMESPACE/NAME`; absent if no EndpointSlice names it. */
  readonly pod?: string;
  readonly node?: string;
  /** The address that the receiver sees as the source. */
  readonly leavesAs: string;
  /** The router's rule that masquerades, in nftables' words. */
  readonly rule: string;
  /** True if the packet filter in the router's namespace has the rule; absent if the router is not on this machine. */
  readonly isThere?: boolean;
}

const ROUTER_INTERFACE = "eth0";

/** Returns the action of a router on a packet for an address outside. `filters`: those of its namespace, if it is on this machine. Throws `NftError` and `IptablesError`. */
export async function routerEnd(
  address: IpAddress,
  at: { readonly pod?: string; readonly node?: string },
  filters: readonly FilterBackend[] | undefined,
): Promise<RouterEnd> {
  const { family } = address;
  const plan = planRules({ addresses: { [family]: address }, ifname: ROUTER_INTERFACE });
  const rule = plan.find(({ kind }) => kind === "masquerade")?.nftables ?? "";
  const end = { ...at, leavesAs: String(address), rule };
  if (filters === undefined) return end;
  for (const filter of filters) {
    const found = await routerRules(filter).counters();
    if (found.some((one) => one.family === family && one.kind === "masquerade")) return { ...end, isThere: true };
  }
  return { ...end, isThere: false };
}
