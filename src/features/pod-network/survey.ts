import type { Link } from "#kernel/link";
import type { Kernel, NetStack } from "#kernel/net";
import type { Route } from "#kernel/route";
import { parseAlias } from "./alias.ts";
import { type AttachedPod, joinAttachments, type UnownedLink, unownedLinks } from "./listing.ts";
import type { PodNetworkOptions } from "./plan.ts";
import { PodNamespaces } from "./pod-namespaces.ts";

/** RT_TABLE_MAIN and RTPROT_BOOT of linux/rtnetlink.h. */
const MAIN_TABLE = 254;
const PROTOCOL_BOOT = 3;

/** The meaning of a link's alias. */
export interface AttachmentName {
  readonly containerId: string;
  readonly ifname: string;
}

/** Every link of the host that is an attachment, or has addresses of the pod network. */
export interface Survey {
  /** Without addresses: the addresses cannot be read. */
  readonly attached: readonly AttachedPod[];
  /** Attachments whose pod has no address now, and to which no route leads: a pod may remove the addresses of its interface for a while. */
  readonly bare: readonly AttachedPod[];
  /** Attachments whose ADD has not ended, or whose failed ADD could not be undone. */
  readonly pending: readonly AttachmentName[];
  /** Without addresses: the addresses cannot be read. */
  readonly unowned: readonly UnownedLink[];
}

/**
 * Reads the addresses of each link: from the routes, or by `readPod` inside its pod where there is no route; a link for which that returns `undefined` is one whose
 * addresses cannot be read. Throws `KernelError`.
 */
export function takeSurvey(
  kernel: Kernel,
  host: NetStack,
  options: Pick<PodNetworkOptions, "tableId" | "protocolId"> & { readonly registerFromMain: boolean },
  readPod: <T>(link: Link, read: () => T) => T | undefined,
): Survey {
  const links = host.links.list();
  const routes = readRoutes(host, options);
  const namespaces = new PodNamespaces(kernel, host);
  const byIndex = new Map(links.map((link) => [link.index, link] as const));
  const bare = new Set<number>();
  const read = <T extends AttachedPod | UnownedLink>(one: T): T => {
    const link = byIndex.get(one.ifindex);
    if (one.addresses.length > 0 || link === undefined) return one;
    const addresses = readPod(link, () => namespaces.addressesOf(link));
    if (addresses?.length === 0) bare.add(one.ifindex);
    return { ...one, addresses: addresses ?? [] };
  };
  const ours = routes.filter(({ table, protocol }) => table === options.tableId && protocol === options.protocolId);
  const found = joinAttachments(links, routes).map(read);
  const unowned = unownedLinks(links, ours).map(read);
  return {
    attached: found.filter(({ ifindex }) => !bare.has(ifindex)),
    bare: found.filter(({ ifindex }) => bare.has(ifindex)),
    pending: links.flatMap(({ alias }) => {
      const name = parseAlias(alias ?? "");
      return name?.kind === "pending" ? [{ containerId: name.containerId, ifname: name.ifname }] : [];
    }),
    unowned: unowned.filter(({ ifindex }) => !bare.has(ifindex)),
  };
}

/** The routes to pods: all routes of the pods' table, and the routes in the main table that old versions made. */
export function readRoutes(
  host: NetStack,
  options: Pick<PodNetworkOptions, "tableId" | "protocolId"> & { readonly registerFromMain: boolean },
): Route[] {
  const { tableId, protocolId, registerFromMain } = options;
  return [tableId, ...(registerFromMain ? [MAIN_TABLE] : [])]
    .flatMap((table) => ([4, 6] as const).flatMap((family) => host.routes.list({ family, table })))
    .filter(({ table, protocol }) => table !== MAIN_TABLE || protocol === protocolId || protocol === PROTOCOL_BOOT);
}
