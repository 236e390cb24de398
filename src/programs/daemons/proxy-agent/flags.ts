import { ConfigError, choiceFlag, durationFlag, integerFlag, repeatedFlag, stringFlag, switchFlag } from "#base/config";
import { Cidr } from "#base/ip";
import { parseForwardDestination, parseTarget } from "#features/tunnel";
import { type HostPort, parseHostPort } from "#wire/http-connect";
import { apiServerFlag } from "../../shared/api-server-flag/index.ts";
import { heapSnapshotFlag, metricsAuthorizationFlag, metricsFromFlag } from "../../shared/http-endpoints/index.ts";
import {
  commaListFlag,
  gatesFlag,
  klogFlags,
  muxFlags,
  TIMEOUT_BOUNDS,
  workersFlag,
} from "../../shared/tunnel/index.ts";

const file = (name: string, help: string) => stringFlag(name, "", help, "FILE");
const port = (name: string, initial: number, help: string) => integerFlag(name, initial, help, { min: 0, max: 65_535 });
const address = (name: string, initial: string, help: string) => stringFlag(name, initial, help, "ADDRESS");

/** Konnectivity's flags, with its defaults (docs/spec/tunnel.md#14). */
const konnectivityFlags = {
  agentCert: file("agent-cert", "client certificate for servers"),
  agentKey: file("agent-key", "its key"),
  caCert: file("ca-cert", "authorities of servers' certificates; empty: the system's"),
  proxyServerHost: stringFlag(
    "proxy-server-host",
    "127.0.0.1",
    "name or address of the servers or their balancer",
    "HOST",
  ),
  proxyServerPort: port("proxy-server-port", 8091, "its port"),
  alpnProto: commaListFlag("alpn-proto", "protocol names offered to servers before h2", "NAME,..."),
  healthServerHost: address(
    "health-server-host",
    "",
    "address of /healthz, /readyz and /metrics; empty: all addresses",
  ),
  healthServerPort: port("health-server-port", 8093, "its port"),
  adminBindAddress: address("admin-bind-address", "127.0.0.1", "address of profiling"),
  adminServerPort: port("admin-server-port", 8094, "its port"),
  enableProfiling: switchFlag("enable-profiling", false, "serve /debug/pprof/ on the admin port"),
  enableContentionProfiling: switchFlag(
    "enable-contention-profiling",
    false,
    "no effect, and needs --enable-profiling; Node.js does not profile lock contention",
  ),
  agentId: stringFlag("agent-id", "", "unique name of this agent; else $PROXY_AGENT_ID, else a random UUID", "ID"),
  agentIdentifiers: stringFlag(
    "agent-identifiers",
    "",
    "identifiers by which servers choose this agent: ipv4, ipv6, host, cidr, default-route, such as host=node1&default-route=true",
    "KEY=VALUE&...",
  ),
  syncInterval: durationFlag("sync-interval", "1s", "how often the agent checks whether a server is missing"),
  probeInterval: durationFlag("probe-interval", "1s", "no effect; a dead connection is detected at once", {
    min: "1ms",
  }),
  syncIntervalCap: durationFlag("sync-interval-cap", "10s", "the longest interval after failures"),
  keepaliveTime: durationFlag("keepalive-time", "1h", "send a PING to a server that has sent nothing for this time"),
  serviceAccountTokenPath: file("service-account-token-path", "token for servers; read for each connection"),
  warnOnChannelLimit: switchFlag("warn-on-channel-limit", false, "no effect"),
  syncForever: switchFlag("sync-forever", false, "continue to connect when every known server is connected"),
  xfrChannelSize: integerFlag(
    "xfr-channel-size",
    150,
    "no effect; queues are limited in bytes, see --conn-buffer-bytes",
    { min: 0, max: 1_000_000 },
  ),
  countServerLeases: switchFlag("count-server-leases", false, "count servers by their Leases"),
  leaseNamespace: stringFlag("lease-namespace", "kube-system", "namespace of the Leases", "NAME"),
  leaseLabelSelector: stringFlag(
    "lease-label-selector",
    "k8s-app=konnectivity-server",
    "label selector of the Leases, in the syntax of kubectl -l",
    "SELECTOR",
  ),
  leaseLabel: stringFlag("lease-label", "", "deprecated name of --lease-label-selector", "SELECTOR"),
  serverCountSource: choiceFlag(
    "server-count-source",
    ["", "default", "max"],
    "default",
    "default: Leases if they are counted, else the servers' headers; max: the larger number",
  ),
  kubeconfig: file(
    "kubeconfig",
    "credentials of the API server for Leases and --metrics-authorization; else the pod's own",
  ),
  kubeApiContentType: stringFlag(
    "kube-api-content-type",
    "application/vnd.kubernetes.protobuf",
    "no effect; requests are JSON",
    "TYPE",
  ),
};

/** Flags that Konnectivity does not have. */
const ownFlags = {
  ...apiServerFlag,
  proxyServer: repeatedFlag(
    "proxy-server",
    parseServer,
    "a server, in place of --proxy-server-host and --proxy-server-port",
    "HOST:PORT",
  ),
  tlsServerName: stringFlag(
    "tls-server-name",
    "",
    "server name (SNI) that is sent and verified, instead of the server's host name",
    "NAME",
  ),
  connectTimeout: durationFlag(
    "connect-timeout",
    "20s",
    "how long connecting to a server may take, its answer included",
    TIMEOUT_BOUNDS,
  ),
  dialTimeout: durationFlag("dial-timeout", "5s", "timeout for connecting to an endpoint", TIMEOUT_BOUNDS),
  drainTimeout: durationFlag(
    "drain-timeout",
    "30s",
    "how long connections may continue after the first SIGTERM; 0: until the second SIGTERM",
  ),
  reconnectJitter: durationFlag(
    "reconnect-jitter",
    "200ms",
    "after a lost connection, wait for a random time of up to this",
  ),
  forwardAllowedDestination: repeatedFlag(
    "forward-allowed-destination",
    parseForwardDestination,
    "endpoints that servers may reach through this agent; without the flag: all",
    "CIDR[:PORT]",
  ),
  featureGates: gatesFlag,
  target: repeatedFlag(
    "target",
    parseTarget,
    "a port of the bind addresses, and its destination on the control plane's side",
    "LOCAL_PORT:HOST:PORT",
  ),
  bindAddress: commaListFlag("bind-address", "addresses on which targets are served, IPv4, IPv6 or both", "IP,..."),
  bindInterface: stringFlag("bind-interface", "knode0", "dummy interface that holds the bind addresses", "NAME"),
  manageBindInterface: switchFlag("manage-bind-interface", true, "create the interface and its addresses"),
  keepBindInterface: switchFlag(
    "keep-bind-interface",
    false,
    "keep the interface and its addresses when the agent ends",
  ),
  allowedSource: repeatedFlag(
    "allowed-source",
    (text: string) => Cidr.parse(text),
    "sources that may connect to the bind addresses, besides the node itself; without the flag: all",
    "CIDR",
  ),
  ...metricsFromFlag,
  ...metricsAuthorizationFlag,
  ...heapSnapshotFlag,
  ...workersFlag,
  ...muxFlags,
};

/** All flags of `proxy-agent`. */
export const agentFlags = { ...konnectivityFlags, ...ownFlags, ...klogFlags };

export type AgentFlags = typeof agentFlags;

function parseServer(text: string): HostPort {
  const server = parseHostPort(text);
  if (server !== undefined) return server;
  throw new ConfigError("invalid-value", [
    `${JSON.stringify(text)} is not HOST:PORT; an example is proxy.example.com:8091`,
  ]);
}
