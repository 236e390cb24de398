import { describeError } from "#base/errors";
import type { IpFamily } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import type { PodNetworkOptions } from "./plan.ts";

/** A setting that the host lacks, as plain data. */
export type HostStep =
  | { readonly kind: "sysctl"; readonly key: string; readonly value: string }
  | { readonly kind: "rule"; readonly family: IpFamily; readonly priority: number; readonly table: number };

const FORWARDING = { 4: "net/ipv4/ip_forward", 6: "net/ipv6/conf/all/forwarding" } as const;
const MAIN_TABLE = 254;
/** RTPROT_RA of linux/rtnetlink.h: the kernel made the route of a router advertisement. */
const PROTOCOL_RA = 9;
/** Values of accept_ra: router advertisements count unless the host forwards, or whatever it does (ip-sysctl.rst of Linux). */
const ACCEPT_RA = { unlessForwarding: "1", always: "2" } as const;

/**
 * The steps after which the host forwards and has the rule for the pods' table; empty if the host does both already. Their order matters.
 * Reads only.
 */
export function planHost(host: NetStack, options: Pick<PodNetworkOptions, "tableId" | "rulePriority">): HostStep[] {
  const steps: HostStep[] = ([4, 6] as const).flatMap((family) => {
    const key = FORWARDING[family];
    if (read(() => host.sysctl.get(key)) === "1") return [];
    return [...(family === 6 ? keepAdvertised(host) : []), { kind: "sysctl" as const, key, value: "1" }];
  });
  for (const family of [4, 6] as const) {
    const { rulePriority: priority, tableId: table } = options;
    const present = read(() => host.rules.list(family))?.some(
      (rule) => rule.priority === priority && rule.table === table,
    );
    if (present !== true) steps.push({ kind: "rule", family, priority, table });
  }
  return steps;
}

/**
 * When a host begins to forward, the kernel removes the default routes that it has from router advertisements, and ignores later ones, except
 * of links that accept them all the same (rt6_purge_dflt_routers of net/ipv6/route.c). A host that has no other default route would lose its
 * API server.
 */
function keepAdvertised(host: NetStack): HostStep[] {
  const routes = read(() => host.routes.list({ family: 6, table: MAIN_TABLE, protocol: PROTOCOL_RA })) ?? [];
  const indexes = new Set(
    routes
      .filter(({ dst }) => dst.prefixLength === 0)
      .flatMap(({ linkIndex, multipath = [] }) => [linkIndex, ...multipath.map((hop) => hop.linkIndex)]),
  );
  return [...indexes].flatMap((index) => {
    const name = index === undefined ? undefined : host.links.get({ index })?.name;
    if (name === undefined) return [];
    const key = acceptRaKey(name);
    if (read(() => host.sysctl.get(key)) !== ACCEPT_RA.unlessForwarding) return [];
    return [{ kind: "sysctl" as const, key, value: ACCEPT_RA.always }];
  });
}

function acceptRaKey(link: string): string {
  return `net/ipv6/conf/${link}/accept_ra`;
}

/** Writes the steps. One that this kernel refuses (it may lack IPv6) is returned, not thrown. */
export function applyHost(
  host: NetStack,
  steps: readonly HostStep[],
): { readonly step: string; readonly error: string }[] {
  return steps.flatMap((step) => {
    try {
      if (step.kind === "sysctl") host.sysctl.set(step.key, step.value);
      else host.rules.add({ family: step.family, priority: step.priority, table: step.table });
      return [];
    } catch (error) {
      if (!isKernelError(error)) throw error;
      const name = step.kind === "sysctl" ? step.key : `IPv${step.family} rule ${step.priority}`;
      return [{ step: name, error: describeError(error) }];
    }
  });
}

/** Reads a setting. An unreadable one counts as absent: the step that sets it then fails with the reason. */
function read<T>(get: () => T): T | undefined {
  try {
    return get();
  } catch (error) {
    if (isKernelError(error)) return undefined;
    throw error;
  }
}
