import type { Cidr } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import type { Link } from "#kernel/link";
import type { NetStack } from "#kernel/net";
import type { NetNs } from "#kernel/netns";
import { ignoreRouters } from "#kernel/sysctl";
import { PodNetworkError } from "./errors.ts";
import type { PlannedAddress, PodNetworkOptions, PodPlan } from "./plan.ts";
import { forwardingSetting } from "./router-settings.ts";

/** RTPROT_BOOT of linux/rtnetlink.h: the protocol of `ip route add`. No program syncs the pod's own routes. */
const PROTOCOL_BOOT = 3;
const MAIN_TABLE = 254;
/**
 * Value of arp_announce (ip-sysctl.rst of Linux). By default the sender of an ARP request is the source of the packet that waits, so a pod that uses an extra source
 * asks for its gateway with an address that the guard refuses in ARP. With 2 the sender is the pod's own address.
 */
const ANNOUNCE_BEST = "2";
const LOOPBACK_IPV6 = "net/ipv6/conf/lo/disable_ipv6";

/** Makes both ends of a pod's link, under the alias of an attachment that is not finished. */
export function createLink(host: NetStack, plan: PodPlan, netns: NetNs): Link {
  return host.links.create({
    kind: "veth",
    name: plan.hostName,
    mac: plan.hostMac,
    mtu: plan.mtuBytes,
    alias: plan.pendingAlias,
    peer: { name: plan.podName, netns, mtu: plan.mtuBytes, mac: plan.podMac },
  });
}

/** Gives both ends addresses and routes, then the alias of a finished attachment. Returns the pod's end. */
export function finishLink(
  at: { readonly host: NetStack; readonly pod: NetStack; readonly link: Link },
  plan: PodPlan,
  options: Pick<PodNetworkOptions, "tableId" | "protocolId">,
): Link {
  applyHostSide(at.host, at.link.index, plan, options);
  const podLink = applyPodSide(at.pod, plan);
  at.host.links.set(at.link.index, { alias: plan.alias, group: plan.group });
  return podLink;
}

/**
 * Sets the host's end up, and adds the gateway addresses and the routes to the pod. The pod is no router: its link takes no advertisement and no
 * redirect, and no IPv6 if the pod has none.
 */
export function applyHostSide(
  host: NetStack,
  index: number,
  plan: PodPlan,
  options: Pick<PodNetworkOptions, "tableId" | "protocolId">,
): void {
  ignoreRouters(host.sysctl, plan.hostName, { ipv6: plan.hasIpv6 });
  // A new link has conf/default, which may be off while the host forwards.
  const [key, value] = forwardingSetting(plan.hostName);
  if (host.sysctl.get(key) !== value) host.sysctl.set(key, value);
  if (plan.hasIpv6) {
    enableIpv6(host, plan.hostName);
    // The link-local address is set here: the kernel would make its own only with the carrier.
    host.sysctl.set(`net/ipv6/conf/${plan.hostName}/addr_gen_mode`, "1");
  }
  host.links.set(index, { up: true });
  addAddresses(host, index, plan.hostAddresses);
  for (const { dst } of plan.hostRoutes) addHostRoute(host, index, dst, options);
}

/** Adds the route to a pod. It never replaces an existing route: an address that is routed to another link is in use there. */
export function addHostRoute(
  host: NetStack,
  index: number,
  dst: Cidr,
  { tableId, protocolId }: Pick<PodNetworkOptions, "tableId" | "protocolId">,
): void {
  const spec = { dst, linkIndex: index, scope: "link", table: tableId, protocol: protocolId, type: "unicast" } as const;
  try {
    host.routes.add(spec);
  } catch (error) {
    if (!isKernelError(error, "already-exists")) throw error;
    throw new PodNetworkError(
      "address-in-use",
      `${dst} is in use: routing table ${tableId} has a route for this address to another link`,
      {
        cause: error,
      },
    );
  }
}

/** Sets the pod's end up, and adds its addresses and routes. Returns the link. */
export function applyPodSide(pod: NetStack, plan: PodPlan): Link {
  const link = pod.links.get({ name: plan.podName });
  if (link === undefined)
    throw new PodNetworkError("netns-not-found", `the pod's interface ${plan.podName} was deleted meanwhile`);
  if (plan.hasIpv6) {
    // Packets to the pod's own addresses come in by lo, and a runtime may have switched IPv6 off on all links.
    if (pod.sysctl.get(LOOPBACK_IPV6) !== "0") pod.sysctl.set(LOOPBACK_IPV6, "0");
    enableIpv6(pod, plan.podName);
  }
  if (plan.announcesOwn) pod.sysctl.set(announceKey(plan.podName), ANNOUNCE_BEST);
  pod.links.set(link.index, { up: true });
  addAddresses(pod, link.index, plan.podAddresses);
  for (const { dst, gateway, scope } of plan.podRoutes) {
    pod.routes.add({
      dst,
      ...(gateway === undefined ? {} : { gateway }),
      linkIndex: link.index,
      scope,
      table: MAIN_TABLE,
      protocol: PROTOCOL_BOOT,
      type: "unicast",
    });
  }
  return link;
}

/** Does for a pod that runs what an ADD does for one with extra sources. What the pod has set itself stays. Throws `KernelError`. */
export function announceOwn(pod: NetStack, name: string): void {
  if (pod.sysctl.get(announceKey(name)) === "0") pod.sysctl.set(announceKey(name), ANNOUNCE_BEST);
}

function announceKey(name: string): string {
  return `net/ipv4/conf/${name}/arp_announce`;
}

/** Enables IPv6 without duplicate address detection, which takes 1.4 to 2 s. A veth has two ends, and we set the addresses of both. */
function enableIpv6(stack: NetStack, name: string): void {
  const conf = `net/ipv6/conf/${name}`;
  if (stack.sysctl.get(`${conf}/disable_ipv6`) !== "0") stack.sysctl.set(`${conf}/disable_ipv6`, "0");
  stack.sysctl.set(`${conf}/accept_dad`, "0");
}

/** Adds addresses to a link; addresses that the link already has stay. */
export function addAddresses(stack: NetStack, linkIndex: number, addresses: readonly PlannedAddress[]): void {
  for (const { address, prefixLength, scope } of addresses) {
    stack.addresses.replace({ linkIndex, address, prefixLength, scope, noDad: address.family === 6 });
  }
}
