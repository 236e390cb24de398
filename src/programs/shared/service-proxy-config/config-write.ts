import { writeFileSync } from "node:fs";
import { stringify } from "yaml";
import { ConfigError, formatListenAddress } from "#base/config";
import { describeError } from "#base/errors";
import { placeWords, type ServiceProxyConfig, serviceProxyConfig } from "./config.ts";
import { NO_LISTENER } from "./config-file.ts";
import type { ServiceProxyValues } from "./flags.ts";

/** Writes {@link writeConfig} to a file. Throws `ConfigError` if the write fails, and in the cases in which `serviceProxyConfig` throws. */
export function writeConfigTo(path: string, values: ServiceProxyValues): void {
  const text = writeConfig(values);
  try {
    writeFileSync(path, text);
  } catch (error) {
    throw new ConfigError("invalid-flags", [`--write-config-to: cannot write ${path}: ${describeError(error)}`]);
  }
}

/** The configuration in force as a file for `--config`. A pause of 0 between syncs cannot be written: 0 means the default in a file. */
export function writeConfig(values: ServiceProxyValues): string {
  const config = serviceProxyConfig(values);
  // With --config the file's values are in force, not the flags'.
  const address = (listen: ServiceProxyConfig["healthz"]): string =>
    listen === undefined ? NO_LISTENER : formatListenAddress(listen);
  const content = {
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    clientConnection: { kubeconfig: config.kubeconfig ?? "" },
    hostnameOverride: values.hostnameOverride,
    bindAddress: config.bindAddress?.toString() ?? values.bindAddress,
    healthzBindAddress: address(config.healthz),
    metricsBindAddress: address(config.metrics),
    bindAddressHardFail: config.bindAddressHardFail,
    enableProfiling: config.profiling,
    mode: "nftables",
    nftables: {
      masqueradeBit: Math.log2(config.mark),
      masqueradeAll: config.masqueradeAll,
      syncPeriod: `${config.syncMs}ms`,
      minSyncPeriod: `${config.minSyncMs}ms`,
    },
    detectLocalMode: config.detectLocalMode,
    detectLocal: { bridgeInterface: config.podBridgeInterface, interfaceNamePrefix: config.podInterfaceNamePrefix },
    clusterCIDR: config.clusterCIDRs.join(","),
    nodePortAddresses: placeWords(config.nodePortAddresses),
    oomScoreAdj: config.oomScoreAdj,
    featureGates: {
      KubeProxyDrainingTerminatingNodes: config.gates.drainingTerminatingNodes,
      AllowServiceExternalIPs: config.gates.allowServiceExternalIPs,
    },
    conntrack: {
      maxPerCore: config.conntrack.maxPerCore,
      min: config.conntrack.min,
      tcpEstablishedTimeout: `${config.conntrack.tcpEstablishedSeconds}s`,
      tcpCloseWaitTimeout: `${config.conntrack.tcpCloseWaitSeconds}s`,
      tcpBeLiberal: config.conntrack.tcpBeLiberal,
      udpTimeout: `${config.conntrack.udpSeconds}s`,
      udpStreamTimeout: `${config.conntrack.udpStreamSeconds}s`,
    },
  };
  // kube-proxy reads YAML 1.1, in which a plain "on" is true.
  return stringify(content, { version: "1.1" });
}
