import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { parseFlags } from "#base/config";
import type { EndpointRequest } from "#wire/http-endpoint";
import { configzOf, serviceProxyConfig, serviceProxyFlags } from "../../shared/service-proxy-config/index.ts";
import { zpages } from "./zpages.ts";

const { values } = parseFlags(serviceProxyFlags, [
  "--sync-period=90s",
  "--cluster-cidr=10.0.0.0/8",
  "--kube-api-qps=9",
]);
const REQUEST = {} as EndpointRequest;

test("/flagz: has each flag with an effect, with its value; /statusz since when the program runs, and its version", async () => {
  const clock = new FakeClock();
  const routes = zpages(values, { clock });
  await clock.advance(3_723_000);
  const body = async (path: string): Promise<string> => {
    const answer = await routes[path]?.(REQUEST);
    return String(answer?.body);
  };
  const flags = await body("/flagz");
  assert.match(flags, /^\nservice-proxy flagz\nWarning: .*\n\n/);
  for (const line of ["cluster-cidr=10.0.0.0/8", "sync-period=1m30s", "config=", "metrics-from="])
    assert.ok(flags.split("\n").includes(line), flags);
  assert.doesNotMatch(flags, /kube-api-qps/);
  assert.match(
    await body("/statusz"),
    /^\nservice-proxy statusz\nWarning: .*\n\nStarted: Thu, 01 Jan 2026 00:00:00 GMT\nUp: 1 hr 02 min 03 sec\nNode version: v\d+.*\nBinary version: \S+\n$/,
  );
});

test("configzOf: has the shape of kube-proxy's configuration, and prints as JSON", () => {
  const config = serviceProxyConfig({ ...values, hostnameOverride: "node-a" });
  const printed = JSON.parse(JSON.stringify(configzOf(config))) as Record<string, Record<string, unknown>>;
  assert.deepEqual(Object.keys(printed), ["kubeproxy.config.k8s.io", "service-proxy.isthmus.dev"]);
  const { Linux, ...rest } = printed["kubeproxy.config.k8s.io"] ?? {};
  assert.deepEqual((Linux as { readonly Conntrack: unknown }).Conntrack, {
    MaxPerCore: 32_768,
    Min: 131_072,
    TCPEstablishedTimeout: "24h0m0s",
    TCPCloseWaitTimeout: "1h0m0s",
    TCPBeLiberal: false,
    UDPTimeout: "0s",
    UDPStreamTimeout: "0s",
  });
  assert.deepEqual(rest, {
    FeatureGates: { AllowServiceExternalIPs: true, KubeProxyDrainingTerminatingNodes: true },
    ClientConnection: { Kubeconfig: "" },
    HostnameOverride: "node-a",
    BindAddress: "0.0.0.0",
    HealthzBindAddress: "0.0.0.0:10256",
    MetricsBindAddress: "127.0.0.1:10249",
    BindAddressHardFail: false,
    EnableProfiling: false,
    Mode: "nftables",
    NFTables: { MasqueradeBit: 14 },
    DetectLocalMode: "ClusterCIDR",
    DetectLocal: { BridgeInterface: "", ClusterCIDRs: ["10.0.0.0/8"], InterfaceNamePrefix: "" },
    NodePortAddresses: ["primary"],
    SyncPeriod: "1m30s",
    MinSyncPeriod: "1s",
  });
});
