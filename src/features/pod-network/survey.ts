import type { Kernel, NetStack } from "#kernel/net";
import type { Route } from "#kernel/route";
import { type AttachedPod, joinAttachments, type StrayLink, strayLinks } from "./listing.ts";
import type { PodNetworkOptions } from "./plan.ts";
import { PodNamespaces } from "./pod-namespaces.ts";

/** RT_TABLE_MAIN and RTPROT_BOOT of linux/rtnetlink.h. */
const MAIN_TABLE = 254;
const PROTOCOL_BOOT = 3;

/** Every link of the host that has addresses of the pod network. */
export interface Survey {
  /** Without addresses: those cannot be read. */
  readonly attached: readonly AttachedPod[];
  /** Without addresses: those cannot be read. */
  readonly strays: readonly StrayLink[];
}

/**
 * Reads which link has which addresses: from the routes, and inside its pod where no route tells. Links that have none at all are
 * left out. Throws `KernelError`.
 */
export function takeSurvey(
  kernel: Kernel,
  host: NetStack,
  options: Pick<PodNetworkOptions, "tableId" | "protocolId"> & { readonly registerFromMain: boolean },
): Survey {
  const links = host.links.list();
  const routes = readRoutes(host, options);
  const namespaces = new PodNamespaces(kernel, host);
  const byIndex = new Map(links.map((link) => [link.index, link] as const));
  const read = <T extends AttachedPod | StrayLink>(one: T): T[] => {
    const link = byIndex.get(one.ifindex);
    if (one.addresses.length > 0 || link === undefined) return [one];
    const addresses = namespaces.addressesOf(link);
    if (addresses === undefined) return [one];
    return addresses.length === 0 ? [] : [{ ...one, addresses }];
  };
  const ours = routes.filter(({ table, protocol }) => table === options.tableId && protocol === options.protocolId);
  return {
    attached: joinAttachments(links, routes).flatMap(read),
    strays: strayLinks(links, ours).flatMap(read),
  };
}

/** The routes that tell pods' addresses: all of the pods' table, and of the main one those that old versions made. */
export function readRoutes(
  host: NetStack,
  options: Pick<PodNetworkOptions, "tableId" | "protocolId"> & { readonly registerFromMain: boolean },
): Route[] {
  const { tableId, protocolId, registerFromMain } = options;
  return [tableId, ...(registerFromMain ? [MAIN_TABLE] : [])]
    .flatMap((table) => ([4, 6] as const).flatMap((family) => host.routes.list({ family, table })))
    .filter(({ table, protocol }) => table !== MAIN_TABLE || protocol === protocolId || protocol === PROTOCOL_BOOT);
}
