import type { FlagValues, ListenAddress } from "#base/config";
import { describeError } from "#base/errors";
import { type Cidr, unmappedCidr } from "#base/ip";
import type { Worker } from "#base/workers";
import {
  type AgentListen,
  type AllowedDestination,
  type FrontendListen,
  type IdentityLimits,
  leaseName,
  opensslCiphers,
  parseLabels,
  parseStrategies,
  parseTlsVersion,
  readDestinations,
  type Strategy,
  waitingPathOf,
} from "#features/tunnel";
import { balancerFault } from "../../shared/balancers/index.ts";
import {
  CLUSTER_TO_MASTER,
  checkIdentity,
  checkWorkers,
  Faults,
  identity,
  workerCount,
} from "../../shared/tunnel/index.ts";
import type { ServerFlags } from "./flags.ts";

type Values = FlagValues<ServerFlags>;

/** The ports that Konnectivity's server accepts: neither reserved nor ephemeral. */
const [MIN_PORT, MAX_PORT] = [1024, 49_151];
/** The longest path in sockaddr_un on Linux. */
const MAX_UDS_BYTES = 107;

/** The service account and audience of accepted tokens. */
export interface TokenRules {
  readonly namespace: string;
  readonly serviceAccount: string;
  readonly audience: string;
}

/** The parts of `proxy-server`'s command line that depend on several flags, checked. */
export interface ServerConfig {
  /** Each worker has an ID of its own. */
  readonly serverID: string;
  /** The number of processes that share the work; 1: this one does it. */
  readonly workers: number;
  readonly frontend: FrontendListen;
  readonly agent: AgentListen;
  readonly health: ListenAddress;
  readonly admin: ListenAddress;
  readonly strategies: readonly Strategy[];
  readonly tokens: TokenRules | undefined;
  /** Files and names of rules about agents; `undefined`: an agent is what it says. */
  readonly identity:
    | {
        readonly sources: readonly string[];
        readonly limits: IdentityLimits;
        /** Ranges of pods and Services; absent unless both are known. */
        readonly notNodes: readonly Cidr[] | undefined;
      }
    | undefined;
  readonly lease: { readonly namespace: string; readonly labels: Readonly<Record<string, string>> } | undefined;
  /** `undefined` if the feature gate is off or no destination is allowed. */
  readonly destinations: readonly AllowedDestination[] | undefined;
}

/**
 * Checks the flags, for the program's one process, for a leader, or for a worker. Throws `ConfigError` with a sentence for each fault, which names
 * its flag (docs/spec/tunnel.md#14).
 */
export function serverConfig(values: Values, worker?: Pick<Worker, "index" | "count" | "descriptor">): ServerConfig {
  const faults = new Faults();
  checkPorts(values, faults);
  checkFiles(values, faults);
  checkOthers(values, faults);
  const workers = worker?.count ?? workerCount(values.workers);
  const isShared = workers > 1;
  const serverID = identity(values.serverId, "PROXY_SERVER_ID", worker);
  checkWorkers(values, workers, faults);
  checkTakeOver(values, workers, faults);
  const longestID = checkIdentity(serverID, "server-id", { workers, worker }, faults);
  const config: ServerConfig = {
    serverID,
    workers,
    frontend: frontendOf(values, faults, { worker, isShared }),
    agent: {
      isShared: isShared || values.takeOver,
      address: listenAddress(values.agentBindAddress, values.agentPort),
      tls: {
        cert: values.clusterCert,
        key: values.clusterKey,
        clientCa: values.clusterCaCert === "" ? undefined : values.clusterCaCert,
      },
    },
    health: listenAddress(values.healthBindAddress, values.healthPort),
    admin: listenAddress(values.adminBindAddress, values.adminPort),
    strategies: faults.parsed("proxy-strategies", () => parseStrategies(values.proxyStrategies), []),
    tokens: tokensOf(values, faults),
    identity: identityOf(values, faults),
    lease: leaseOf(values, longestID, faults),
    destinations: destinationsOf(values, faults),
  };
  faults.throwIfAny();
  return config;
}

function checkPorts(values: Values, faults: Faults): void {
  const ports = [
    ["agent-port", values.agentPort],
    ["health-port", values.healthPort],
    ["admin-port", values.adminPort],
  ] as const;
  const usable = (port: number): boolean => port >= MIN_PORT && port <= MAX_PORT;
  for (const [flag, port] of ports) faults.check(usable(port), flag, rangeText(port));
  if (values.udsName === "") faults.check(usable(values.serverPort), "server-port", rangeText(values.serverPort));
}

function checkTakeOver(
  { takeOver, udsName, serverId, heapSnapshotSocket }: Values,
  workers: number,
  faults: Faults,
): void {
  if (!takeOver) return;
  faults.check(udsName !== "", "take-over", "needs --uds-name: it is the socket that is taken over");
  faults.check(workers === 1, "take-over", "does not work with workers: remove this flag, or set --workers=1");
  const hasId = serverId !== "" || (process.env["PROXY_SERVER_ID"] ?? "") !== "";
  faults.check(
    !hasId,
    "take-over",
    "needs an id for each start: remove --server-id and the variable PROXY_SERVER_ID, or this flag",
  );
  faults.check(
    heapSnapshotSocket === "",
    "take-over",
    "does not work with --heap-snapshot-socket: remove one of the two flags",
  );
  const bytes = Buffer.byteLength(waitingPathOf(udsName));
  faults.check(
    bytes <= MAX_UDS_BYTES,
    "uds-name",
    `needs ${bytes} bytes with --take-over; a socket's path has at most ${MAX_UDS_BYTES}`,
  );
}

function rangeText(port: number): string {
  return `${port} is not from ${MIN_PORT} to ${MAX_PORT}: lower ones are reserved, higher ones ephemeral`;
}

function checkFiles(values: Values, faults: Faults): void {
  faults.pair("server-cert", values.serverCert, "server-key", values.serverKey);
  faults.pair("cluster-cert", values.clusterCert, "cluster-key", values.clusterKey);
  faults.check(
    values.clusterCert !== "" || values.clusterKey !== "",
    "cluster-cert",
    "is required: agents connect with TLS",
  );
  faults.file("server-ca-cert", values.serverCaCert);
  faults.file("cluster-ca-cert", values.clusterCaCert);
  faults.file("kubeconfig", values.kubeconfig);
}

function checkOthers(values: Values, faults: Faults): void {
  faults.check(
    values.enableProfiling || !values.enableContentionProfiling,
    "enable-contention-profiling",
    "needs --enable-profiling",
  );
  faults.check(values.xfrChannelSize > 0, "xfr-channel-size", `${values.xfrChannelSize} is not above 0`);
  const why = balancerFault(values);
  if (why !== undefined) faults.add("balancer-proxy-protocol", why);
  faults.parsed("tls-min-version", () => parseTlsVersion(values.tlsMinVersion), undefined);
  faults.parsed("cipher-suites", () => opensslCiphers(values.cipherSuites), undefined);
}

function frontendOf(
  values: Values,
  faults: Faults,
  { worker, isShared }: { readonly worker: Pick<Worker, "descriptor"> | undefined; readonly isShared: boolean },
): FrontendListen {
  const { udsName, serverCert, serverKey, serverCaCert, serverPort } = values;
  if (udsName !== "") {
    const useless = [
      ["server-cert", serverCert],
      ["server-key", serverKey],
      ["server-ca-cert", serverCaCert],
    ] as const;
    for (const [flag, value] of useless)
      faults.check(value === "", flag, "has no effect with --uds-name: remove this flag");
    faults.check(serverPort === 0, "server-port", `must be 0 with --uds-name, not ${serverPort}`);
    const bytes = Buffer.byteLength(udsName);
    faults.check(
      bytes <= MAX_UDS_BYTES,
      "uds-name",
      `has ${bytes} bytes; a socket's path has at most ${MAX_UDS_BYTES}`,
    );
    if (worker !== undefined) return { kind: "shared-uds", fd: worker.descriptor(0) };
    return { kind: "uds", path: udsName, deleteExisting: values.deleteExistingUdsFile };
  }
  faults.check(serverCaCert !== "", "server-ca-cert", "is required without --uds-name");
  faults.check(serverCert !== "" || serverKey !== "", "server-cert", "is required without --uds-name");
  return {
    kind: "tcp",
    address: listenAddress(values.serverBindAddress, serverPort),
    tls: { cert: serverCert, key: serverKey, clientCa: serverCaCert },
    isShared,
  };
}

function tokensOf(values: Values, faults: Faults): TokenRules | undefined {
  const { agentNamespace: namespace, agentServiceAccount: serviceAccount, authenticationAudience: audience } = values;
  const trio = [
    ["agent-namespace", namespace],
    ["agent-service-account", serviceAccount],
    ["authentication-audience", audience],
  ] as const;
  const hasCa = values.clusterCaCert !== "";
  if (trio.every(([, value]) => value === "")) {
    faults.check(
      hasCa || values.insecureAllowUnauthenticatedAgents,
      "cluster-ca-cert",
      "agents would not be authenticated: set this flag, or the three flags of token authentication, or --insecure-allow-unauthenticated-agents",
    );
    return undefined;
  }
  for (const [flag, value] of trio) faults.check(value !== "", flag, "is needed for token authentication");
  faults.check(
    !hasCa || values.allowTokenAndMtls,
    "cluster-ca-cert",
    "cannot be combined with token authentication, unless --allow-token-and-mtls is set",
  );
  return { namespace, serviceAccount, audience };
}

function identityOf(values: Values, faults: Faults): ServerConfig["identity"] {
  const { agentIdentity: sources, maxAgentsPerIdentity: agents, maxStreamsPerIdentity: streams } = values;
  if (sources.length === 0) return undefined;
  faults.check(
    values.clusterCaCert !== "" || values.authenticationAudience !== "",
    "agent-identity",
    "agents prove nothing: set --cluster-ca-cert, or the three flags of token authentication",
  );
  const { podCidr, serviceCidr } = values;
  const notNodes =
    podCidr.length === 0 || serviceCidr.length === 0 ? undefined : [...podCidr, ...serviceCidr].map(unmappedCidr);
  return { sources, limits: { agents, streams }, notNodes };
}

function leaseOf(values: Values, serverID: string, faults: Faults): ServerConfig["lease"] {
  const labels = faults.parsed("lease-label", () => parseLabels(values.leaseLabel), {});
  if (!values.enableLeaseController) return undefined;
  faults.parsed("server-id", () => leaseName(serverID), "");
  return { namespace: values.leaseNamespace, labels };
}

function destinationsOf(values: Values, faults: Faults): ServerConfig["destinations"] {
  const { allowedDestination, allowedDestinationFile: path } = values;
  const given = [
    ["allowed-destination", allowedDestination.length > 0],
    ["allowed-destination-file", path !== ""],
  ] as const;
  if (values.featureGates[CLUSTER_TO_MASTER] !== true) {
    for (const [flag, isGiven] of given) {
      faults.check(!isGiven, flag, `needs --feature-gates=${CLUSTER_TO_MASTER}=true`);
    }
    return undefined;
  }
  if (given.every(([, isGiven]) => !isGiven)) return undefined;
  return [...allowedDestination, ...(path === "" ? [] : fromFile(path, faults))];
}

function fromFile(path: string, faults: Faults): AllowedDestination[] {
  try {
    return faults.parsed("allowed-destination-file", () => readDestinations(path), []);
  } catch (error) {
    faults.add("allowed-destination-file", `cannot read "${path}": ${describeError(error)}`);
    return [];
  }
}

function listenAddress(host: string, port: number): ListenAddress {
  return host === "" ? { port } : { host, port };
}
