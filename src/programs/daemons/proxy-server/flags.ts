import { choiceFlag, commaFlag, durationFlag, integerFlag, repeatedFlag, stringFlag, switchFlag } from "#base/config";
import { Cidr } from "#base/ip";
import { parseAllowedDestination } from "#features/tunnel";
import { apiServerFlag } from "../../shared/api-server-flag/index.ts";
import { balancerFlags } from "../../shared/balancers/index.ts";
import { heapSnapshotFlag, metricsAuthorizationFlag, metricsFromFlag } from "../../shared/http-endpoints/index.ts";
import {
  commaListFlag,
  decimalFlag,
  gatesFlag,
  klogFlags,
  muxFlags,
  TIMEOUT_BOUNDS,
  workersFlag,
} from "../../shared/tunnel/index.ts";

const file = (name: string, help: string) => stringFlag(name, "", help, "FILE");
const port = (name: string, initial: number, help: string) => integerFlag(name, initial, help, { min: 0, max: 65_535 });
const address = (name: string, initial: string, help: string) => stringFlag(name, initial, help, "ADDRESS");
const count = { min: 0, max: 1_000_000 };

/** Konnectivity's flags, with its defaults (docs/spec/tunnel.md#14). */
const konnectivityFlags = {
  serverCert: file("server-cert", "certificate for frontends"),
  serverKey: file("server-key", "its key"),
  serverCaCert: file("server-ca-cert", "authorities of frontends' certificates; required without --uds-name"),
  clusterCert: file("cluster-cert", "certificate for agents"),
  clusterKey: file("cluster-key", "its key"),
  clusterCaCert: file("cluster-ca-cert", "CA certificates for agents; if set, every agent must present a certificate"),
  mode: choiceFlag("mode", ["grpc", "http-connect"], "grpc", "protocol of frontends"),
  udsName: stringFlag("uds-name", "", "UNIX socket for frontends, in place of --server-port", "PATH"),
  deleteExistingUdsFile: switchFlag(
    "delete-existing-uds-file",
    true,
    "remove a socket that an earlier process left behind",
  ),
  serverPort: port("server-port", 8090, "port for frontends; 0 with --uds-name"),
  serverBindAddress: address("server-bind-address", "", "address for frontends; empty: all addresses"),
  agentPort: port("agent-port", 8091, "port for agents"),
  agentBindAddress: address("agent-bind-address", "", "address for agents; empty: all addresses"),
  healthPort: port("health-port", 8092, "port of /healthz, /readyz and /metrics"),
  healthBindAddress: address("health-bind-address", "", "address of the health port; empty: all addresses"),
  adminPort: port("admin-port", 8095, "port of /metrics and profiling"),
  adminBindAddress: address("admin-bind-address", "127.0.0.1", "its address"),
  keepaliveTime: durationFlag("keepalive-time", "1h", "send a PING to an agent that has sent nothing for this time"),
  frontendKeepaliveTime: durationFlag(
    "frontend-keepalive-time",
    "1h",
    "send a PING to a frontend that has sent nothing for this time",
  ),
  enableProfiling: switchFlag("enable-profiling", false, "serve /debug/pprof/ on the admin port"),
  enableContentionProfiling: switchFlag(
    "enable-contention-profiling",
    false,
    "no effect, and needs --enable-profiling; Node.js does not profile lock contention",
  ),
  serverId: stringFlag("server-id", "", "unique name of this server; else $PROXY_SERVER_ID, else a random UUID", "ID"),
  serverCount: integerFlag("server-count", 1, "the number of servers, sent to agents; 0 counts as 1", {
    min: 0,
    max: 999_999,
  }),
  agentNamespace: stringFlag("agent-namespace", "", "namespace of the service account that agents must have", "NAME"),
  agentServiceAccount: stringFlag("agent-service-account", "", "name of that service account", "NAME"),
  authenticationAudience: stringFlag("authentication-audience", "", "audience that agents' tokens must have", "TEXT"),
  kubeconfig: file(
    "kubeconfig",
    "credentials of the API server for TokenReviews, Leases, Nodes and --metrics-authorization; else the pod's own",
  ),
  kubeconfigQps: decimalFlag(
    "kubeconfig-qps",
    0,
    "requests a second to the API server, of token reviews and of Leases each; 0: no limit",
  ),
  kubeconfigBurst: integerFlag("kubeconfig-burst", 0, "burst of --kubeconfig-qps; 0: twice the rate", count),
  kubeApiContentType: stringFlag(
    "kube-api-content-type",
    "application/vnd.kubernetes.protobuf",
    "no effect; requests are JSON",
    "TYPE",
  ),
  proxyStrategies: stringFlag(
    "proxy-strategies",
    "default",
    "how an agent is chosen, tried in order: default, destHost, defaultRoute",
    "NAME,...",
  ),
  cipherSuites: commaListFlag(
    "cipher-suites",
    "IANA names of TLS 1.2 suites; empty: all secure ones except CBC",
    "NAME,...",
  ),
  tlsMinVersion: stringFlag("tls-min-version", "", "VersionTLS10 to VersionTLS13; empty: VersionTLS12", "VERSION"),
  xfrChannelSize: integerFlag(
    "xfr-channel-size",
    10,
    "no effect; queues are limited in bytes, see --conn-buffer-bytes",
    count,
  ),
  enableLeaseController: switchFlag("enable-lease-controller", false, "keep a Lease, by which agents count servers"),
  leaseNamespace: stringFlag("lease-namespace", "kube-system", "namespace of the Leases", "NAME"),
  leaseLabel: stringFlag("lease-label", "k8s-app=konnectivity-server", "labels of the Leases", "KEY=VALUE,..."),
  gracefulShutdownTimeout: durationFlag(
    "graceful-shutdown-timeout",
    "0s",
    "how long connections may continue after SIGTERM; 0: they are closed at once",
  ),
  backendDialTimeout: durationFlag("backend-dial-timeout", "0s", "timeout for a dial by an agent; 0: 60s"),
  frontendWriteChannelSize: integerFlag(
    "frontend-write-channel-size",
    10,
    "no effect; queues are limited in bytes, see --conn-buffer-bytes",
    count,
  ),
  warnOnChannelLimit: switchFlag("warn-on-channel-limit", false, "deprecated; accepted and ignored"),
};

/** Flags that Konnectivity does not have. */
const ownFlags = {
  ...apiServerFlag,
  featureGates: gatesFlag,
  allowedDestination: repeatedFlag(
    "allowed-destination",
    parseAllowedDestination,
    "a destination that agents may reach on the control plane's side; without the flag: none",
    "[sni=NAME,][agents=CN,]HOST:PORT",
  ),
  allowedDestinationFile: file(
    "allowed-destination-file",
    "file with destinations as of --allowed-destination, one on each line; read again at SIGHUP",
  ),
  reverseMaxConnections: integerFlag(
    "reverse-max-connections-per-agent",
    1000,
    "maximum of open connections from one agent to the control plane's side",
    { min: 1, max: 1_000_000 },
  ),
  reverseDialRate: integerFlag(
    "reverse-dial-rate-per-agent",
    100,
    "maximum of new connections a second from one agent to the control plane's side; a burst may be twice this",
    { min: 1, max: 1_000_000 },
  ),
  reverseDialTimeout: durationFlag(
    "reverse-dial-timeout",
    "5s",
    "timeout for connecting to a destination",
    TIMEOUT_BOUNDS,
  ),
  agentAcceptRate: integerFlag(
    "agent-accept-rate",
    200,
    "maximum of agents that are admitted in a second; a burst may be twice this; other agents wait; 0: no limit",
    count,
  ),
  insecureAllowUnauthenticatedAgents: switchFlag(
    "insecure-allow-unauthenticated-agents",
    false,
    "start although agents are authenticated neither by --cluster-ca-cert nor by tokens",
  ),
  agentIdentity: commaListFlag(
    "agent-identity",
    "rules about who may be which agent, by certificate or token: files, or ready rules (kubelet, node-addresses); without the flag an agent is what it says",
    "FILE|NAME,...",
  ),
  podCidr: commaFlag(
    "pod-cidr",
    (text) => Cidr.parse(text),
    "for rules with nodeAddresses, which need it: the ranges of pods, of which no address is a Node's",
    "CIDR,...",
  ),
  serviceCidr: commaFlag(
    "service-cidr",
    (text) => Cidr.parse(text),
    "for rules with nodeAddresses, which need it: the ranges of Services, of which no address is a Node's",
    "CIDR,...",
  ),
  maxAgentsPerIdentity: integerFlag(
    "max-agents-per-identity",
    16,
    "with --agent-identity: maximum of agentIDs that one certificate or token has at once; 0: no limit",
    count,
  ),
  maxStreamsPerIdentity: integerFlag(
    "max-streams-per-identity",
    64,
    "with --agent-identity: maximum of streams that one certificate or token has at once; 0: no limit",
    count,
  ),
  allowTokenAndMtls: switchFlag(
    "allow-token-and-mtls",
    false,
    "require both a certificate and a token of agents; Konnectivity allows only one of the two",
  ),
  takeOver: switchFlag(
    "take-over",
    false,
    "start beside a proxy-server of the same ports and --uds-name that has this flag too, and take its clients over when it ends",
  ),
  ...metricsFromFlag,
  ...metricsAuthorizationFlag,
  ...balancerFlags,
  ...heapSnapshotFlag,
  ...workersFlag,
  ...muxFlags,
};

/** All flags of `proxy-server`. */
export const serverFlags = { ...konnectivityFlags, ...ownFlags, ...klogFlags };

export type ServerFlags = typeof serverFlags;
