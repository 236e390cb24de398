import type { FlagValues, ListenAddress } from "#base/config";
import { ExpectedError } from "#base/errors";
import { Cidr, IpAddress } from "#base/ip";
import { duplicateTargets, isPrivate, parseBindAddress, type Target } from "#features/tunnel";
import { formatHostPort, type HostPort, parseHostPort } from "#wire/http-connect";
import { parseIdentifiers } from "#wire/konnectivity";
import {
  CLUSTER_TO_MASTER,
  checkIdentity,
  checkWorkers,
  Faults,
  identity,
  workerCount,
} from "../../shared/tunnel/index.ts";
import type { AgentFlags } from "./flags.ts";

type Values = FlagValues<AgentFlags>;

/** Maximum length of an interface name: Linux's IFNAMSIZ without the terminating zero. */
const MAX_INTERFACE_BYTES = 15;
/** Private address ranges (RFC 1918 and RFC 4193). */
const PRIVATE = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"].map((text) => Cidr.parse(text));

/** Settings of the tunnel's direction from nodes to the control plane. */
export interface ReverseConfig {
  readonly targets: readonly Target[];
  readonly bindAddresses: readonly IpAddress[];
}

/** The parts of `proxy-agent`'s command line that depend on several flags, checked. */
export interface AgentConfig {
  /** Each worker has an ID of its own. */
  readonly agentID: string;
  /** The number of processes that share the work; 1: this one does it. */
  readonly workers: number;
  readonly servers: readonly HostPort[];
  readonly health: ListenAddress;
  readonly admin: ListenAddress;
  readonly leaseSelector: string;
  readonly reverse: ReverseConfig | undefined;
  /** Warnings about settings that work but should be changed, one sentence each. */
  readonly warnings: readonly string[];
}

/**
 * Checks the flags, for the program's one process, for a leader, or for a worker. Throws `ConfigError` with a sentence for each fault, which names
 * its flag (docs/spec/tunnel.md#9.3, #14).
 */
export function agentConfig(values: Values, worker?: { readonly index: number; readonly count: number }): AgentConfig {
  const faults = new Faults();
  const warnings: string[] = [];
  checkFiles(values, faults);
  checkNumbers(values, faults);
  const workers = worker?.count ?? workerCount(values.workers);
  checkWorkers(values, workers, faults);
  const agentID = identity(values.agentId, "PROXY_AGENT_ID", worker);
  checkIdentity(agentID, "agent-id", { workers, worker }, faults);
  checkIdentifiers(values.agentIdentifiers, faults);
  checkNames(values, faults);
  const config: AgentConfig = {
    agentID,
    workers,
    servers: serversOf(values, faults),
    health: listenAddress(values.healthServerHost, values.healthServerPort),
    admin: listenAddress(values.adminBindAddress, values.adminServerPort),
    leaseSelector: values.leaseLabel === "" ? values.leaseLabelSelector : values.leaseLabel,
    reverse: reverseOf(values, faults, warnings),
    warnings,
  };
  faults.throwIfAny();
  return config;
}

/** Values of identifiers must have the form that servers compare. */
function checkIdentifiers(text: string, faults: Faults): void {
  const flag = "agent-identifiers";
  const found = faults.parsed(flag, () => parseIdentifiers(text, { unknownKeys: "refuse" }), undefined);
  if (found === undefined) return;
  const kinds = [
    ["ipv4", found.ipv4, (one: string) => IpAddress.tryParse(one)?.family === 4, "an IPv4 address, such as 192.0.2.1"],
    [
      "ipv6",
      found.ipv6,
      (one: string) => IpAddress.tryParse(one)?.family === 6,
      "an IPv6 address, such as 2001:db8::1",
    ],
    ["cidr", found.cidr, isCidr, "a network, such as 10.0.0.0/8"],
    [
      "host",
      found.host,
      (one: string) => one !== "" && !/[^\x21-\x7e]/.test(one),
      "a name or an address, such as node1",
    ],
  ] as const;
  for (const [key, values, isRight, right] of kinds) {
    for (const value of values.filter((one) => !isRight(one))) {
      faults.add(flag, `${key}=${value}: ${JSON.stringify(value)} is not valid; expected ${right}`);
    }
  }
}

function isCidr(text: string): boolean {
  try {
    return Cidr.parse(text) !== undefined;
  } catch (error) {
    if (!(error instanceof ExpectedError)) throw error;
    return false;
  }
}

function checkNames({ tlsServerName }: Values, faults: Faults): void {
  const isName = tlsServerName === "" || parseHostPort(formatHostPort({ host: tlsServerName, port: 1 })) !== undefined;
  faults.check(
    isName,
    "tls-server-name",
    `${JSON.stringify(tlsServerName)} is neither a name nor an address: an example is proxy.example.com`,
  );
}

function checkFiles(values: Values, faults: Faults): void {
  faults.pair("agent-cert", values.agentCert, "agent-key", values.agentKey);
  faults.file("ca-cert", values.caCert);
  faults.file("service-account-token-path", values.serviceAccountTokenPath);
  faults.file("kubeconfig", values.kubeconfig);
}

function checkNumbers(values: Values, faults: Faults): void {
  const ports = [
    ["proxy-server-port", values.proxyServerPort],
    ["health-server-port", values.healthServerPort],
    ["admin-server-port", values.adminServerPort],
  ] as const;
  for (const [flag, port] of ports) faults.check(port > 0, flag, `${port} is not a port: expected 1 to 65535`);
  faults.check(values.xfrChannelSize > 0, "xfr-channel-size", `${values.xfrChannelSize} is not above 0`);
  faults.check(
    values.syncInterval <= values.syncIntervalCap,
    "sync-interval",
    `${values.syncInterval} ms is longer than --sync-interval-cap, ${values.syncIntervalCap} ms`,
  );
  faults.check(values.syncInterval > 0, "sync-interval", "must be above 0");
  faults.check(
    values.enableProfiling || !values.enableContentionProfiling,
    "enable-contention-profiling",
    "needs --enable-profiling",
  );
}

function serversOf(values: Values, faults: Faults): HostPort[] {
  if (values.proxyServer.length > 0) return [...values.proxyServer];
  // IPv6 may come with brackets or without.
  const host = values.proxyServerHost.replace(/^\[(.*)\]$/, "$1");
  const port = Math.max(1, values.proxyServerPort);
  const server = parseHostPort(formatHostPort({ host, port }));
  if (server !== undefined) return [server];
  faults.add("proxy-server-host", `${JSON.stringify(values.proxyServerHost)} is neither a name nor an address`);
  return [];
}

function reverseOf(values: Values, faults: Faults, warnings: string[]): ReverseConfig | undefined {
  const { target: targets, bindAddress, bindInterface, featureGates } = values;
  if (featureGates[CLUSTER_TO_MASTER] !== true) {
    const given = [
      ["target", targets.length > 0],
      ["bind-address", bindAddress.length > 0],
    ] as const;
    for (const [flag, isGiven] of given) {
      faults.check(!isGiven, flag, `needs --feature-gates=${CLUSTER_TO_MASTER}=true`);
    }
    return undefined;
  }
  const bindAddresses = bindAddress.flatMap((text) =>
    faults.parsed<readonly IpAddress[]>("bind-address", () => [parseBindAddress(text)], []),
  );
  for (const why of duplicateTargets(targets)) faults.add("target", why);
  if (targets.length > 0 && bindAddress.length === 0) {
    warnings.push("--target has no effect without --bind-address: only connections from the control plane are served");
  }
  faults.check(
    /^[^\s/:]{1,15}$/.test(bindInterface) && Buffer.byteLength(bindInterface) <= MAX_INTERFACE_BYTES,
    "bind-interface",
    `${JSON.stringify(bindInterface)} cannot be the name of an interface: at most ${MAX_INTERFACE_BYTES} bytes, no "/" and no ":"`,
  );
  for (const address of bindAddresses) {
    if (isPrivate(address, PRIVATE)) continue;
    warnings.push(
      `--bind-address: ${address} is not private (RFC 1918, RFC 4193): the node would then not reach another host that has this address`,
    );
  }
  return targets.length === 0 || bindAddress.length === 0 ? undefined : { targets, bindAddresses };
}

function listenAddress(host: string, port: number): ListenAddress {
  return host === "" ? { port } : { host, port };
}
