import { hostname } from "node:os";
import type { clientOf, NetPlan, RouterPod, RuleBackend, TunnelDriver } from "#features/egress";
import { isKernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import type { coilEgressMetrics } from "./metrics.ts";

/** What a router's metrics are set from. */
export interface RouterReport {
  /** After each sync: its clients and its plan. */
  readonly clients: (clients: readonly ReturnType<typeof clientOf>[], plan: NetPlan) => void;
  /** Reads the counters of the kernel. Throws as `RuleBackend.counters`, and `KernelError`. */
  readonly counters: () => Promise<void>;
}

/** Makes the functions that set the metrics of one router. */
export function reportRouter(
  parts: {
    readonly metrics: ReturnType<typeof coilEgressMetrics>;
    readonly backend: RuleBackend;
    readonly stack: Pick<NetStack, "sysctl">;
  },
  router: { readonly egress: RouterPod["egress"]; readonly driver: TunnelDriver },
): RouterReport {
  const { metrics, backend, stack } = parts;
  const { namespace, name } = router.egress;
  const labels = { namespace, pod: process.env["HOSTNAME"] ?? hostname(), egress: name };
  metrics.driver.set({ driver: router.driver.name }, 1);
  const before = new Map<string, { readonly packets: number; readonly bytes: number }>();
  return {
    clients: (clients, { routes }) => {
      metrics.clients.set({ namespace, egress: name }, clients.length);
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
    counters: async () => {
      metrics.flows.set(labels, settingOf(stack, "net.netfilter.nf_conntrack_count"));
      metrics.flowLimit.set(labels, settingOf(stack, "net.netfilter.nf_conntrack_max"));
      for (const { family, kind, packets, bytes } of await backend.counters()) {
        const last = before.get(`${family} ${kind}`) ?? { packets: 0, bytes: 0 };
        // A rule that was made anew counts from 0.
        const since = packets < last.packets ? { packets: 0, bytes: 0 } : last;
        before.set(`${family} ${kind}`, { packets, bytes });
        const [byPacket, byByte] =
          kind === "masquerade"
            ? [metrics.masqueradedPackets, metrics.masqueradedBytes]
            : [metrics.invalidPackets, metrics.invalidBytes];
        byPacket.inc({ ...labels, protocol: `ipv${family}` }, packets - since.packets);
        byByte.inc({ ...labels, protocol: `ipv${family}` }, bytes - since.bytes);
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
