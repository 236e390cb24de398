import { Cidr, type IpAddress } from "#base/ip";
import type { AddressClaim, ClusterFacts } from "../plan/index.ts";

/**
 * The addresses that Services may claim. `kube-proxy`: all but loopback. `guarded`: addresses of nodes for ports that the host does not serve, and nothing that is
 * somebody else's. `strict`: the same, and none of this node's addresses that its Node object has.
 */
export type AddressMode = "kube-proxy" | "guarded" | "strict";

/** Ports, first and last included. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

/** The addresses and ports of the host and the cluster, for one family or both. */
export interface HostFacts {
  readonly mode: AddressMode;
  /** Addresses of this node's Node object. */
  readonly ownNode: readonly IpAddress[];
  /** All addresses that the kernel has, as text. */
  readonly host: ReadonlySet<string>;
  /** Names of the other nodes by address. */
  readonly otherNodes: ReadonlyMap<string, string>;
  readonly podRanges: readonly Cidr[];
  readonly serviceCIDRs: readonly Cidr[];
  /** Ports of nodes that no Service gets. */
  readonly hostPorts: readonly PortRange[];
  /** The place of the API server by the proxy's own kubeconfig. */
  readonly apiServer: { readonly addresses: ReadonlySet<string>; readonly port: number } | undefined;
}

/**
 * `owner`: why the Service does not get the address. `unless-listened`: it gets it if no socket of the host listens there. `unless-port-listened`: the
 * address is another node's, and the Service gets it if no socket of this host listens on the port, as nodes mostly run the same programs.
 */
export type Judgement =
  | { readonly kind: "free" | "unless-listened" | "unless-port-listened" }
  | { readonly kind: "refused"; readonly owner: string };

/**
 * Ports of nodes that no Service gets: SSH, etcd, the API server, those of Kubernetes' own programs, the suite's (docs/security.md, "What listens
 * where"), and those of other networks' tunnels (VXLAN, Geneve, WireGuard), BGP and the node exporter.
 */
export const HOST_PORTS: readonly PortRange[] = [
  { first: 22, last: 22 },
  { first: 179, last: 179 },
  { first: 2379, last: 2380 },
  { first: 4789, last: 4789 },
  { first: 6081, last: 6081 },
  { first: 6443, last: 6443 },
  { first: 8090, last: 8095 },
  { first: 8472, last: 8472 },
  { first: 9100, last: 9100 },
  { first: 9384, last: 9399 },
  { first: 9406, last: 9407 },
  { first: 9443, last: 9445 },
  { first: 10_249, last: 10_259 },
  { first: 51_820, last: 51_820 },
  { first: 51_871, last: 51_871 },
];

const LOOPBACK = ["127.0.0.0/8", "::1/128"].map((text) => Cidr.parse(text));

/** Addresses that no Service can have in the other modes, and their owners. */
const RESERVED: readonly (readonly [range: Cidr, owner: string])[] = (
  [
    ["169.254.0.0/16", "the link"],
    ["fe80::/10", "the link"],
    ["0.0.0.0/8", "no host"],
    ["::/128", "no host"],
    ["224.0.0.0/4", "multicast"],
    ["ff00::/8", "multicast"],
    ["fd00:ec2::254/128", "the cloud's metadata service"],
    ["100.100.100.200/32", "the cloud's metadata service"],
    ["192.0.0.192/32", "the cloud's metadata service"],
  ] as const
).map(([range, owner]) => [Cidr.parse(range), owner]);

const refused = (owner: string): Judgement => ({ kind: "refused", owner });

/** Decides about a claim of an externalIP or a load balancer's address. Another Service's cluster IP is decided where claims meet. Pure. */
export function judgeAddress(claim: AddressClaim, host: HostFacts, cluster: ClusterFacts): Judgement {
  const { address, port } = claim;
  if (LOOPBACK.some((range) => range.contains(address))) return refused("loopback");
  if (host.mode === "kube-proxy") return { kind: "free" };
  const text = address.toString();
  if (host.apiServer?.addresses.has(text) === true && host.apiServer.port === port)
    return refused("the API server, as the proxy's kubeconfig says");
  const reserved = RESERVED.find(([range]) => range.contains(address));
  if (reserved !== undefined) return refused(reserved[1]);
  if (cluster.isClusterIP(address)) return { kind: "free" };
  if (host.serviceCIDRs.some((range) => range.contains(address)))
    return refused("a ServiceCIDR, and no Service has it");
  return judgeNode(claim, host, cluster) ?? judgePod(claim, host, cluster);
}

/** `undefined`: no node has the address. */
function judgeNode(claim: AddressClaim, host: HostFacts, cluster: ClusterFacts): Judgement | undefined {
  const { address, port, protocol, namespace, service } = claim;
  const text = address.toString();
  const isInNode = host.ownNode.some((one) => one.equals(address));
  if (isInNode && host.mode === "strict") return refused("this node");
  const isOwn = isInNode || host.host.has(text);
  const otherNode = host.otherNodes.get(text);
  if (!isOwn && otherNode === undefined) return undefined;
  const node = isOwn ? "this node" : `node ${otherNode}`;
  const isKept =
    host.hostPorts.some(({ first, last }) => first <= port && port <= last) || cluster.apiServerPorts().has(port);
  if (isKept) return refused(`${node}, which keeps port ${port} (--host-ports)`);
  const holder = cluster.nodePortOf(protocol, port, service);
  if (holder !== undefined) return refused(`${node}, where port ${port} is a NodePort of Service ${holder}`);
  const other = cluster.otherEndpoint(address, namespace, { protocol, port });
  if (other !== undefined) return refused(`${node}, where port ${port} is an endpoint of namespace ${other}`);
  return { kind: isOwn ? "unless-listened" : "unless-port-listened" };
}

/** A load balancer's address was given by a controller, while whoever may write slices can name any address in one: the former goes before the latter. */
function judgePod(claim: AddressClaim, host: HostFacts, cluster: ClusterFacts): Judgement {
  const { address, namespace, isLoadBalancer } = claim;
  const range = host.podRanges.find((one) => one.contains(address));
  if (range !== undefined) return refused(`the pods (${range})`);
  if (isLoadBalancer) return { kind: "free" };
  const other = cluster.otherEndpoint(address, namespace);
  if (other !== undefined) return refused(`an endpoint of namespace ${other}`);
  return { kind: "free" };
}

/** Parses `443,8000-8100`. Returns `undefined` if a word is neither a port nor a range of ports. Pure. */
export function parsePortRanges(text: string): readonly PortRange[] | undefined {
  const words = text.split(",").flatMap((word) => (word.trim() === "" ? [] : [word.trim()]));
  const ranges = words.map((word): PortRange | undefined => {
    const [, from, to = from] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(word) ?? [];
    const [first, last] = [Number(from), Number(to)];
    return from !== undefined && first >= 1 && first <= last && last <= 65_535 ? { first, last } : undefined;
  });
  return ranges.some((one) => one === undefined) ? undefined : ranges.flatMap((one) => one ?? []);
}
