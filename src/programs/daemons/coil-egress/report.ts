import { hostname } from "node:os";
import type { IpFamily } from "#base/ip";
import {
  type Admission,
  type CrowdedDestination,
  type GuardCounter,
  masqueraded,
  type NetPlan,
  ROUTER_DROPS,
  type RouterPod,
  type RuleBackend,
  type TunnelDriver,
} from "#features/egress";
import { isKernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import type { coilEgressMetrics } from "./metrics.ts";
import { CHECKS, type Check } from "./sources.ts";

const FAMILIES: readonly IpFamily[] = [4, 6];

/** The sources of a router's metrics. */
export interface RouterReport {
  /** After each sync: its clients and its plan. */
  readonly clients: (admission: Admission, plan: NetPlan) => void;
  /** Sets the metric of the checks that the router cannot make. */
  readonly unchecked: (checks: readonly Check[]) => void;
  /** Sets the metric of the destinations to which the common source ports have run out. */
  readonly crowded: (destinations: readonly CrowdedDestination[]) => void;
  /** Reads the counters of the kernel. Throws as `RuleBackend.counters`, `KernelError` and `NftError`. */
  readonly counters: () => Promise<void>;
}

/** Makes the functions that set the metrics of one router. */
export function reportRouter(
  parts: {
    readonly metrics: ReturnType<typeof coilEgressMetrics>;
    readonly backend: RuleBackend;
    /** The counters of the guard. */
    readonly counters: () => readonly GuardCounter[];
    readonly stack: Pick<NetStack, "sysctl">;
  },
  router: { readonly egress: RouterPod["egress"]; readonly driver: TunnelDriver },
): RouterReport {
  const { metrics, backend, stack } = parts;
  const { namespace, name } = router.egress;
  const labels = { namespace, pod: process.env["HOSTNAME"] ?? hostname(), egress: name };
  metrics.driver.set({ driver: router.driver.name }, 1);
  const before = new Map<string, number>();
  /** Returns the growth of a counter of the kernel. A rule that was created anew counts from 0. */
  const risen = (counter: string, value: number): number => {
    const last = before.get(counter) ?? 0;
    before.set(counter, value);
    return value < last ? value : value - last;
  };
  /** Flows of TCP and UDP are masqueraded by the guard, and all others by the rules of the backend. */
  const masquerade = (family: IpFamily, counter: string, value: Pick<GuardCounter, "packets" | "bytes">): void => {
    const of = { ...labels, protocol: `ipv${family}` };
    metrics.masqueradedPackets.inc(of, risen(counter, value.packets));
    metrics.masqueradedBytes.inc(of, risen(`${counter} bytes`, value.bytes));
  };
  for (const reason of Object.keys(ROUTER_DROPS)) metrics.dropped.inc({ ...labels, reason }, 0);
  return {
    clients: ({ clients, refused }, { routes }) => {
      metrics.clients.set({ namespace, egress: name }, clients.length);
      for (const reason of ["access", "address"] as const)
        metrics.refused.set({ namespace, egress: name, reason }, refused[reason]);
      const links = new Map(routes.map(({ dst, link }) => [String(dst.base), link ?? ""]));
      metrics.clientInfo.reset();
      for (const { metadata, addresses } of clients) {
        for (const address of addresses) {
          const of = { namespace: metadata.namespace ?? "", pod: metadata.name, pod_ip: String(address) };
          const at = { interface: links.get(String(address)) ?? "", egress: name, egress_namespace: namespace };
          metrics.clientInfo.set({ ...of, ...at }, 1);
        }
      }
    },
    unchecked: (checks) => {
      for (const check of CHECKS)
        metrics.unchecked.set({ namespace, egress: name, check }, Number(checks.includes(check)));
    },
    crowded: (destinations) => {
      for (const protocol of ["tcp", "udp"])
        metrics.crowded.set({ ...labels, protocol }, destinations.filter((one) => one.protocol === protocol).length);
    },
    counters: async () => {
      for (const { reason, packets, bytes } of parts.counters()) {
        if (Object.hasOwn(ROUTER_DROPS, reason)) metrics.dropped.inc({ ...labels, reason }, risen(reason, packets));
        const family = FAMILIES.find((one) => masqueraded(one) === reason);
        if (family !== undefined) masquerade(family, `${reason} by the guard`, { packets, bytes });
      }
      metrics.flows.set(labels, settingOf(stack, "net.netfilter.nf_conntrack_count"));
      metrics.flowLimit.set(labels, settingOf(stack, "net.netfilter.nf_conntrack_max"));
      for (const { family, kind, packets, bytes } of await backend.counters()) {
        if (kind === "masquerade") {
          masquerade(family, `${family} ${kind}`, { packets, bytes });
          continue;
        }
        metrics.invalidPackets.inc({ ...labels, protocol: `ipv${family}` }, risen(`${family} ${kind}`, packets));
        metrics.invalidBytes.inc({ ...labels, protocol: `ipv${family}` }, risen(`${family} ${kind} bytes`, bytes));
      }
    },
  };
}

/** A number of the kernel; 0 before its connection tracking is in use. */
function settingOf({ sysctl }: Pick<NetStack, "sysctl">, key: string): number {
  try {
    return Number(sysctl.get(key));
  } catch (error) {
    if (!isKernelError(error, "not-found")) throw error;
    return 0;
  }
}
