import type { AbortOptions } from "#base/async";
import { IpAddress } from "#base/ip";
import type { KubeConnection } from "#kube/client";
import type { LabState, LabTunnel } from "#lab/host";
import { connectInside, InsideError, request } from "#lab/inside";
import type { ObservedCluster } from "./observe.ts";
import { A_NODE_PORT, nodePortTries, PodNameServers } from "./tunnel-forward.ts";
import type { TunnelReport } from "./tunnel-report.ts";
import { connectedPrograms, reverseTries, tryWithoutTunnel } from "./tunnel-reverse.ts";
import { tryAll } from "./tunnel-tries.ts";

const LOOPBACK = IpAddress.parse("127.0.0.1");
const METRICS_MS = 5000;
const PREFIX = "konnectivity_network_proxy_";

/**
 * Tries the tunnel in both directions, and connections without it. Failures are in the report. `connection` is the
 * nodes'. Rejects with `KernelError`, `KubeConfigError` and the signal's reason.
 */
export async function verifyTunnel(
  at: {
    readonly state: LabState;
    readonly tunnel: LabTunnel;
    readonly cluster: ObservedCluster;
    readonly connection: KubeConnection;
  },
  options: AbortOptions,
): Promise<TunnelReport> {
  const { state, tunnel, cluster, connection } = at;
  const startedMs = performance.now();
  // The programs are listed first, so that connections of this check are not counted.
  const programs = connectedPrograms(state, tunnel);
  await using servers = await PodNameServers.open(cluster.pods, tunnel, options);
  const [direct, reverse, pods, nodePorts] = await Promise.all([
    tryWithoutTunnel({ nodes: state.nodes, tunnel }, A_NODE_PORT, options),
    tryAll(reverseTries({ nodes: state.nodes, tunnel }, cluster, connection, options)),
    tryAll(servers.tries),
    tryAll(nodePortTries(state.nodes, tunnel, options)),
  ]);
  const server = await metricsOf({ netns: tunnel.netns, port: tunnel.serverHealthPort }, options);
  const agents = await Promise.all(
    state.nodes.map(({ netns }) => metricsOf({ netns, port: tunnel.agentHealthPort }, options)),
  );
  const accepted = agents.reduce((sum, text) => sum + sumOf(text, "agent_reverse_accepted_total"), 0);
  return {
    agents: {
      connected: sumOf(server, 'server_ready_backends{proxy_strategy="default"}'),
      wanted: state.nodes.length,
    },
    direct,
    reverse: { ...reverse, connections: accepted },
    programs,
    forward: { pods, nodePorts, connections: sumOf(server, "server_dial_duration_seconds_count") },
    seconds: Number(((performance.now() - startedMs) / 1000).toFixed(2)),
  };
}

/** The metrics of a program of the tunnel; empty if it does not answer. */
async function metricsOf(
  { netns, port }: { readonly netns: string; readonly port: number },
  { signal }: AbortOptions,
): Promise<string> {
  const options = { timeoutMs: METRICS_MS, signal };
  try {
    const socket = await connectInside({ name: netns }, { address: LOOPBACK, port }, options);
    return (await request(socket, { path: "/metrics", host: "localhost" }, options)).body;
  } catch (error) {
    if (!(error instanceof InsideError)) throw error;
    return "";
  }
}

/** The sum of a metric over its labels; a name with labels selects one series. */
function sumOf(text: string, name: string): number {
  const lines = text.split("\n").filter((line) => [" ", "{"].some((end) => line.startsWith(`${PREFIX}${name}${end}`)));
  return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}
