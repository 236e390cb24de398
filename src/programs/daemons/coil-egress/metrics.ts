import { Counter, Gauge, type Registry } from "#base/metrics";

/** Declares the metrics of `coil-egress`. */
export function coilEgressMetrics(registry: Registry) {
  const ofEgress = { labelNames: ["namespace", "egress"] as const, registers: [registry] };
  const ofPod = { labelNames: ["namespace", "pod", "egress"] as const, registers: [registry] };
  const ofFamily = { labelNames: ["namespace", "pod", "egress", "protocol"] as const, registers: [registry] };
  return {
    clients: new Gauge({
      name: "coil_egress_client_pod_count",
      help: "Pods with an address that use this Egress.",
      ...ofEgress,
    }),
    clientInfo: new Gauge({
      name: "coil_egress_client_pod_info",
      help: "1 for each address of a pod that uses this Egress, and the tunnel's link.",
      labelNames: ["namespace", "pod", "pod_ip", "interface", "egress", "egress_namespace"] as const,
      registers: [registry],
    }),
    flows: new Gauge({
      name: "coil_egress_nf_conntrack_entries_count",
      help: "Flows that the router's connection tracking has.",
      ...ofPod,
    }),
    flowLimit: new Gauge({
      name: "coil_egress_nf_conntrack_entries_limit",
      help: "Flows that the router's connection tracking can have.",
      ...ofPod,
    }),
    masqueradedPackets: new Counter({
      name: "coil_egress_nftables_masqueraded_packets_total",
      help: "First packets of flows that got the router's address, with either backend.",
      ...ofFamily,
    }),
    masqueradedBytes: new Counter({
      name: "coil_egress_nftables_masqueraded_bytes_total",
      help: "Bytes of these packets.",
      ...ofFamily,
    }),
    invalidPackets: new Counter({
      name: "coil_egress_nftables_invalid_packets_total",
      help: "Packets that were dropped because they belong to no connection, with either backend.",
      ...ofFamily,
    }),
    invalidBytes: new Counter({
      name: "coil_egress_nftables_invalid_bytes_total",
      help: "Bytes of these packets.",
      ...ofFamily,
    }),
    dropped: new Counter({
      name: "coil_egress_dropped_packets_total",
      help: "Packets that the router does not take, by reason.",
      labelNames: ["namespace", "pod", "egress", "reason"] as const,
      registers: [registry],
    }),
    crowded: new Gauge({
      name: "coil_egress_crowded_destinations",
      help: "Addresses and ports outside to which the common source ports of this router have run out within the last half minute: each client has its share of the others.",
      ...ofFamily,
    }),
    refused: new Gauge({
      name: "coil_egress_refused_pod_count",
      help: "Pods that would use this Egress and may not (access), or whose address is another node's (address).",
      labelNames: ["namespace", "egress", "reason"] as const,
      registers: [registry],
    }),
    unchecked: new Gauge({
      name: "coil_egress_unchecked",
      help: "1 if the router does not check this, because its account may not read it.",
      labelNames: ["namespace", "egress", "check"] as const,
      registers: [registry],
    }),
    driver: new Gauge({
      name: "coil_egress_tunnel_driver_info",
      help: "1, with the tunnel driver in use.",
      labelNames: ["driver"] as const,
      registers: [registry],
    }),
  };
}
