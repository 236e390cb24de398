import type { AbortOptions } from "#base/async";
import { ExpectedError } from "#base/errors";
import type { ConntrackPort } from "#kernel/conntrack";
import type { NetStack } from "#kernel/net";
import { clientScope, isOriginRule, listMarks, type OriginMark, observeUplinks, originTable } from "../client/index.ts";
import type { FilterBackend } from "../filter/index.ts";
import { EGRESS_PROTOCOL, hasTraces, type NetScope, observeNet } from "../net-plan/index.ts";
import {
  CLIENT_TABLE,
  foreignFlows,
  isRouter,
  type ListedRouterRule,
  routerRules,
  routerScope,
} from "../router/index.ts";
import { ipv6OffKey } from "../tunnel/index.ts";
import type { PodSpace, RouterState, SpaceId } from "./state.ts";

/** Addresses of one router whose flows are told; a client may send from any number of them. */
const MAX_SOURCES = 1000;
const ROUTER_LINK = "coil_vxlan";

/** Everything that may be ours in a namespace, of a client or of a router: what it is, its pod decides. */
export function egressScope(port: number): NetScope {
  const [client, router] = [clientScope(port), routerScope(port)];
  return {
    tables: new Set([...client.tables, ...router.tables]),
    isOurRule: (rule) => client.isOurRule(rule) || router.isOurRule(rule) || rule.protocol === EGRESS_PROTOCOL,
    isOurLink: (name) => client.isOurLink(name) || router.isOurLink(name),
    port,
    families: [4, 6],
  };
}

/** The settings that a plan of this interface may have. */
export function settingKeys(ifname: string): readonly string[] {
  return [
    "net.ipv4.ip_forward",
    "net.ipv4.conf.default.rp_filter",
    "net.ipv4.conf.all.rp_filter",
    `net/ipv4/conf/${ifname}/rp_filter`,
    "net.ipv6.conf.all.forwarding",
    ipv6OffKey(ifname),
  ];
}

/**
 * Returns the kernel objects of a NAT client or router in a pod's namespace; `undefined`: there are none. The packet filter is read where a rule shows that it may have rules
 * of ours. Changes nothing. Throws `KernelError`; {@link PodSpace.unread} names the parts of the packet filter and of connection tracking that cannot be read.
 */
export async function observeSpace(
  net: NetStack,
  { ifname, ...id }: SpaceId & { readonly ifname: string },
  {
    port,
    openMarks,
    openFilters,
    openConntrack,
    signal,
  }: AbortOptions & {
    readonly port: number;
    /** The packet filter of clients. */
    readonly openMarks: () => FilterBackend & Disposable;
    /** All packet filters. */
    readonly openFilters: () => Disposable & { readonly all: readonly FilterBackend[] };
    readonly openConntrack: () => ConntrackPort;
  },
): Promise<PodSpace | undefined> {
  const scope = egressScope(port);
  const link = net.links.get({ name: ifname });
  const tables = net.links.list().map(({ index }) => ({ table: originTable(index) }));
  const settings = new Map(settingKeys(ifname).map((key) => [key, ""]));
  const observed = observeNet(net, scope, { settings, routes: tables });
  if (!hasTraces(observed, scope)) return undefined;
  const uplinks = observeUplinks(net, scope.isOurLink);
  const isOfRouter = isRouter(net) || observed.links.some(({ name }) => name === ROUTER_LINK);
  const ways = observed.routes.filter(({ table }) => table === CLIENT_TABLE).map(({ dst }) => String(dst.base));
  const unread: string[] = [];
  const attempt = async <T>(what: string, work: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      unread.push(`${what}: ${error.message}`);
      return undefined;
    }
  };
  const marks = observed.rules.some(isOriginRule)
    ? await attempt("its packet filter was not read", () => readMarks(openMarks))
    : undefined;
  const router = isOfRouter
    ? await attempt("its packet filter or connection tracking was not read", async (): Promise<RouterState> => {
        const rules = await readRules(openFilters);
        using conntrack = openConntrack();
        const addresses = net.addresses.list().map(({ address }) => address);
        const options = { limit: MAX_SOURCES, ...(signal === undefined ? {} : { signal }) };
        return { rules, flows: await foreignFlows(conntrack, { addresses, port, ways: new Set(ways) }, options) };
      })
    : undefined;
  return { ...id, ifname, mtuBytes: link?.mtu, net: observed, uplinks, marks, router, unread };
}

async function readMarks(open: () => FilterBackend & Disposable): Promise<readonly OriginMark[]> {
  using filter = open();
  return await listMarks(filter);
}

/** Which packet filter the router was told to use is not known: that of the first which has rules of it. */
async function readRules(
  open: () => Disposable & { readonly all: readonly FilterBackend[] },
): Promise<readonly ListedRouterRule[]> {
  using filters = open();
  for (const filter of filters.all) {
    const found = await routerRules(filter).list();
    if (found.length > 0) return found;
  }
  return [];
}
