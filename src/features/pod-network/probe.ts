import { IpAddress } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import type { Kernel, NetStack } from "#kernel/net";
import { applyHostSide, applyPodSide } from "./apply.ts";
import { POD_DEFAULTS } from "./defaults.ts";
import { planPod } from "./plan.ts";

/** The probe's addresses, of TEST-NET-1 and the documentation prefix (RFC 5737, RFC 3849): no pod has them, and no packet of the probe leaves its namespace. */
const ADDRESSES = { ipv4: IpAddress.parse("192.0.2.1"), ipv6: IpAddress.parse("2001:db8::1") };
const NODE = { ipv4: IpAddress.parse("192.0.2.2"), ipv6: IpAddress.parse("2001:db8::2") };
const PLACE = { ...POD_DEFAULTS, hostLinkLocal: false, mtuBytes: undefined };

/**
 * Makes one attachment, sysctls included, between two throwaway namespaces, and removes all of it. So a `coild` without the privileges
 * reports that when it starts, not at each pod. A kernel without IPv6 is probed only with IPv4, because its node may have only IPv4 pods.
 * Throws `KernelError` naming the refused step.
 */
export function probePodSetUp(kernel: Kernel): void {
  using hostNs = kernel.createAnonymousNetNs();
  using podNs = kernel.createAnonymousNetNs();
  using host = kernel.openStack(hostNs);
  using pod = kernel.openStack(podNs);
  const attachment = { containerId: "probe", ifname: "eth0" };
  const ipv6 = hasIpv6(host) ? ADDRESSES.ipv6 : undefined;
  const request = { attachment, pool: "probe", pod: { namespace: "probe", name: "probe" }, ...ADDRESSES, ipv6 };
  const plan = planPod(request, NODE, PLACE, "veth00000000");
  const link = host.links.create({
    kind: "veth",
    name: plan.hostName,
    mac: plan.hostMac,
    alias: plan.pendingAlias,
    peer: { name: plan.podName, netns: podNs },
  });
  applyHostSide(host, link.index, plan, PLACE);
  applyPodSide(pod, plan);
}

function hasIpv6(stack: NetStack): boolean {
  try {
    stack.sysctl.get("net/ipv6/conf/all/disable_ipv6");
    return true;
  } catch (error) {
    if (!isKernelError(error, "not-found")) throw error;
    return false;
  }
}
