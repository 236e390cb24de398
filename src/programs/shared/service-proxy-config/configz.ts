import { formatDuration, formatListenAddress } from "#base/config";
import { placeWords, type ServiceProxyConfig } from "./config.ts";

/**
 * The body of `/configz`: kube-proxy's, with the names and the shape of its own configuration type, as far as a field means something here; then
 * what only this program has. Pure.
 */
export function configzOf(config: ServiceProxyConfig): Readonly<Record<string, unknown>> {
  return { "kubeproxy.config.k8s.io": kubeProxyOf(config), "service-proxy.isthmus.dev": ownOf(config) };
}

function kubeProxyOf(config: ServiceProxyConfig): object {
  const { conntrack, gates, nodePortAddresses } = config;
  const seconds = (count: number): string => formatDuration(count * 1000);
  return {
    Linux: {
      Conntrack: {
        MaxPerCore: conntrack.maxPerCore,
        Min: conntrack.min,
        TCPEstablishedTimeout: seconds(conntrack.tcpEstablishedSeconds),
        TCPCloseWaitTimeout: seconds(conntrack.tcpCloseWaitSeconds),
        TCPBeLiberal: conntrack.tcpBeLiberal,
        UDPTimeout: seconds(conntrack.udpSeconds),
        UDPStreamTimeout: seconds(conntrack.udpStreamSeconds),
      },
      MasqueradeAll: config.masqueradeAll,
      OOMScoreAdj: config.oomScoreAdj,
    },
    FeatureGates: {
      AllowServiceExternalIPs: gates.allowServiceExternalIPs,
      KubeProxyDrainingTerminatingNodes: gates.drainingTerminatingNodes,
    },
    ClientConnection: { Kubeconfig: config.kubeconfig ?? "" },
    HostnameOverride: config.nodeName,
    BindAddress: String(config.bindAddress ?? "0.0.0.0"),
    HealthzBindAddress: config.healthz === undefined ? "" : formatListenAddress(config.healthz),
    MetricsBindAddress: config.metrics === undefined ? "" : formatListenAddress(config.metrics),
    BindAddressHardFail: config.bindAddressHardFail,
    EnableProfiling: config.profiling,
    Mode: "nftables",
    NFTables: { MasqueradeBit: Math.log2(config.mark) },
    DetectLocalMode: config.detectLocalMode,
    DetectLocal: {
      BridgeInterface: config.podBridgeInterface,
      ClusterCIDRs: config.clusterCIDRs.map(String),
      InterfaceNamePrefix: config.podInterfaceNamePrefix,
    },
    NodePortAddresses: placeWords(nodePortAddresses),
    SyncPeriod: formatDuration(config.syncMs),
    MinSyncPeriod: formatDuration(config.minSyncMs),
  };
}

function ownOf(config: ServiceProxyConfig): object {
  return {
    source: config.source,
    tableName: config.tableName,
    startupHealth: config.startupHealth,
    serviceAddresses: config.serviceAddresses,
    hostPorts: config.hostPorts,
    drainingTaintKeys: config.drainingTaintKeys,
    metricsFrom: config.metricsFrom.map(String),
    metricsAuthorization: config.metricsAuthorization,
    heapSnapshotSocket: config.heapSnapshotSocket,
    recordDir: config.recordDir,
  };
}
