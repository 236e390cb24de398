import { openAddressPort } from "#kernel/address";
import { KernelError } from "#kernel/errors";
import { openOffloadPort } from "#kernel/ethtool";
import { openFouPort } from "#kernel/fou";
import { openLinkPort, openNetnsIdPort } from "#kernel/link";
import { openNeighbourPort } from "#kernel/neighbour";
import { NETLINK, NetlinkConnection } from "#kernel/netlink";
import { createAnonymousNetNs, createNetNs, deleteNetNs, listNetNs, type NetNs, openNetNs } from "#kernel/netns";
import { openRoutePort } from "#kernel/route";
import { openRulePort } from "#kernel/rule";
import { openSysctlPort } from "#kernel/sysctl";
import type { Kernel, NetStack, StackOptions } from "./types.ts";

/** The kernel of this machine. Needs CAP_NET_ADMIN, and CAP_SYS_ADMIN for namespaces other than its own. */
export function openKernel(): Kernel {
  return { openStack, openNetNs, createNetNs, createAnonymousNetNs, deleteNetNs, listNetNs };
}

function openStack(netns: NetNs, options: StackOptions = {}): NetStack {
  if (netns.fd < 0) throw new KernelError("invalid", "Cannot open a stack: the namespace belongs to a fake kernel");
  const connection = NetlinkConnection.open(netns, NETLINK.ROUTE, options);
  const ns = {
    get fd(): number {
      return connection.namespaceFd;
    },
  };
  return {
    links: openLinkPort(connection),
    addresses: openAddressPort(connection),
    neighbours: openNeighbourPort(connection),
    routes: openRoutePort(connection),
    rules: openRulePort(connection),
    fou: openFouPort(ns),
    sysctl: openSysctlPort(ns),
    offloads: openOffloadPort(ns),
    netnsIds: openNetnsIdPort(connection),
    [Symbol.dispose]: () => connection[Symbol.dispose](),
  };
}
