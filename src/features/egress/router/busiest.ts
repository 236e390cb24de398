import type { AbortOptions } from "#base/async";
import type { IpAddress } from "#base/ip";
import type { ConntrackPort } from "#kernel/conntrack";

/** A client's flows to one destination. */
export interface ClientFlows {
  readonly client: IpAddress;
  readonly flows: number;
}

const PROTOCOLS: Readonly<Record<string, number>> = { tcp: 6, udp: 17 };

/**
 * The clients with the most flows to one destination in a router's connection tracking, at most `limit`, in descending order. Rejects with `KernelError`, and when the
 * signal aborts.
 */
export async function busiestClients(
  conntrack: Pick<ConntrackPort, "listInSlices">,
  { protocol, address, port }: { readonly protocol: string; readonly address: IpAddress; readonly port: number },
  { limit, ...options }: AbortOptions & { readonly limit: number },
): Promise<ClientFlows[]> {
  const filter = {
    family: address.family,
    protocol: PROTOCOLS[protocol],
    original: { dst: address, dstPort: port },
  };
  const found = new Map<string, ClientFlows>();
  for (const { original } of await conntrack.listInSlices(filter, options)) {
    const known = found.get(String(original.src));
    found.set(String(original.src), { client: original.src, flows: (known?.flows ?? 0) + 1 });
  }
  return [...found.values()].toSorted((a, b) => b.flows - a.flows).slice(0, limit);
}
