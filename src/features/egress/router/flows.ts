import type { AbortOptions } from "#base/async";
import { Cidr, type IpAddress } from "#base/ip";
import type { ConntrackEntry, ConntrackPort } from "#kernel/conntrack";
import type { NetStack } from "#kernel/net";
import type { NetPlan } from "../net-plan/index.ts";
import { CLIENT_TABLE } from "./plan.ts";

/** Addresses that have a way back in the kernel, and none in the plan. Throws `KernelError`. */
export function formerClients({ routes }: Pick<NetStack, "routes">, plan: NetPlan): IpAddress[] {
  const wanted = new Set(plan.routes.map(({ dst }) => String(dst.base)));
  const found = ([4, 6] as const).flatMap((family) => routes.list({ family, table: CLIENT_TABLE }));
  return found.flatMap(({ dst }) => (wanted.has(String(dst.base)) ? [] : [dst.base]));
}

/**
 * Deletes what connection tracking knows of former clients: their flows, and the packets that carried them. An address may be another pod's next, and an
 * entry of UDP would live as long as packets come. Resolves to the number of entries. Throws `KernelError`.
 */
export async function endFlows(
  conntrack: ConntrackPort,
  addresses: readonly IpAddress[],
  options: AbortOptions = {},
): Promise<number> {
  const sources = new Set(addresses.map(String));
  let count = 0;
  for (const family of new Set(addresses.map((one) => one.family)))
    count += await conntrack.delete({ family }, ({ original }) => sources.has(String(original.src)), options);
  return count;
}

const UDP = 17;
/** Sources and destinations of packets that are never forwarded. */
const NEVER_FORWARDED = ["169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32", "fe80::/10", "ff00::/8"].map((text) =>
  Cidr.parse(text),
);

/** The flows of one address. */
export interface SourceFlows {
  readonly source: IpAddress;
  readonly entries: number;
}

/**
 * Lists the flows of a router's connection tracking from addresses that have no return route: flows that it forwards, and the packets that carry them. At most
 * `limit` addresses. `addresses`: all of the namespace; `ways`: those that have a return route. Throws `KernelError`.
 */
export async function foreignFlows(
  conntrack: ConntrackPort,
  router: { readonly addresses: readonly IpAddress[]; readonly port: number; readonly ways: ReadonlySet<string> },
  { limit, ...options }: AbortOptions & { readonly limit: number },
): Promise<SourceFlows[]> {
  const own = new Set(router.addresses.map(String));
  const found = new Map<string, SourceFlows>();
  const isOfClient = ({ protocol, original: { src, dst, dstPort } }: ConntrackEntry): boolean => {
    if (own.has(String(src)) || router.ways.has(String(src))) return false;
    if (own.has(String(dst))) return protocol === UDP && dstPort === router.port;
    return !NEVER_FORWARDED.some((range) => range.contains(src) || range.contains(dst));
  };
  for (const family of new Set(router.addresses.map((one) => one.family))) {
    for (const entry of await conntrack.listInSlices({ family }, options)) {
      if (!isOfClient(entry)) continue;
      const source = entry.original.src;
      const known = found.get(String(source));
      if (known === undefined && found.size >= limit) continue;
      found.set(String(source), { source, entries: (known?.entries ?? 0) + 1 });
    }
  }
  return [...found.values()];
}
