import { describeError } from "#base/errors";
import type { IpFamily } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import type { Link } from "#kernel/link";
import type { NetStack } from "#kernel/net";
import type { PodNetworkOptions } from "./plan.ts";

/** A setting that the host lacks, as plain data. */
export type HostStep =
  | { readonly kind: "sysctl"; readonly key: string; readonly value: string }
  | { readonly kind: "rule"; readonly family: IpFamily; readonly priority: number; readonly table: number };

const LOOPBACK = "lo";
const FORWARDING = { 4: "net/ipv4/ip_forward", 6: "net/ipv6/conf/all/forwarding" } as const;
/** Values of accept_ra: router advertisements count unless the host forwards, or whatever it does (ip-sysctl.rst of Linux). */
const ACCEPT_RA = { unlessForwarding: "1", always: "2" } as const;

/** The links whose router advertisements the host must go on to accept, as input of {@link planHost}. */
export interface Advertised {
  /** The indexes of the links that have a default route of any family. */
  readonly uplinks: ReadonlySet<number>;
  /** IPv6 forwarding is on because of an earlier {@link applyHost}. Where somebody else has turned it on, `accept_ra` is left as it is. */
  readonly forwardsForUs: boolean;
}

/**
 * The steps after which the host forwards and has the rule for the pods' table; empty if the host does both already. Their order matters.
 * `advertised` absent: nothing is done for router advertisements. Reads only.
 */
export function planHost(
  host: NetStack,
  options: Pick<PodNetworkOptions, "tableId" | "rulePriority">,
  advertised?: Advertised,
): HostStep[] {
  const steps: HostStep[] = ([4, 6] as const).flatMap((family) => {
    const key = FORWARDING[family];
    const isOn = read(() => host.sysctl.get(key)) === "1";
    const isOurs = !isOn || advertised?.forwardsForUs === true;
    return [
      ...(family === 6 && isOurs && advertised !== undefined ? keepAdvertised(host, advertised) : []),
      ...(isOn ? [] : [{ kind: "sysctl" as const, key, value: "1" }]),
    ];
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
 * API server, and one whose router speaks later would never have one. So uplinks, and links that are hardware, accept what they accepted before.
 */
function keepAdvertised(host: NetStack, { uplinks }: Advertised): HostStep[] {
  return (read(() => host.links.list()) ?? []).flatMap((link) => {
    if (!uplinks.has(link.index) && !isHardware(link)) return [];
    const key = acceptRaKey(link.name);
    if (read(() => host.sysctl.get(key)) !== ACCEPT_RA.unlessForwarding) return [];
    return [{ kind: "sysctl" as const, key, value: ACCEPT_RA.always }];
  });
}

/** Pure: whether a link is a device of the machine: it may be an uplink whose router has not spoken yet. Bridges, tunnels and ends of pods have a kind. */
export function isHardware({ kind, name }: Pick<Link, "kind" | "name">): boolean {
  return kind === undefined && name !== LOOPBACK;
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
