import type { AbortOptions } from "#base/async";
import type { IpAddress } from "#base/ip";
import type { ConntrackPort } from "#kernel/conntrack";
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
