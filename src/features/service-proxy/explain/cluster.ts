import { type Cidr, IpAddress, type IpFamily } from "#base/ip";
import { type EndpointSlice, isKubeError, type KubeApi, type Node, resources, type Service } from "#kube/client";
import { fitShape } from "#kube/shape";
import {
  type AddressMode,
  addressesOf,
  type HostFacts,
  judgeAddress,
  type PortRange,
  podCIDRsOf,
} from "../addresses/index.ts";
import { PROXY_SELECTORS, rangesOf, SHAPES, serviceCIDRs } from "../inputs/index.ts";
import {
  addressOf,
  contextOf,
  type NodeConfig,
  nodeNetwork,
  nodePortAddressesOf,
  ruleOptionsOf,
} from "../node/index.ts";
import { type AddressJudge, addressBytes, WantedTable } from "../plan/index.ts";
import type { RuleOptions } from "../rules/index.ts";
import { type TraceContext, traceContext } from "../trace/index.ts";
import { portsOf, sliceView, Tracker } from "../track/index.ts";
import { ExplainError } from "./errors.ts";

/** The part of a proxy's configuration that decides where packets go. */
export interface ExplainConfig extends NodeConfig {
  readonly tableName: string;
  /** Overrides the node's primary address. */
  readonly bindAddress: IpAddress | undefined;
  readonly gates: { readonly allowServiceExternalIPs: boolean };
  readonly serviceAddresses: AddressMode;
  readonly hostPorts: readonly PortRange[];
}

/** All objects that a node's proxy reads from the API server. */
export interface Cluster {
  readonly node: Node;
  readonly otherNodes: readonly Node[];
  readonly services: readonly Service[];
  readonly slices: readonly EndpointSlice[];
  readonly serviceCIDRs: readonly Cidr[];
}

/** Reads the objects of {@link Cluster} once. Rejects with `ExplainError` if there is no such Node, and with `KubeError`. */
export async function readCluster(
  api: KubeApi,
  nodeName: string,
  options: { readonly signal: AbortSignal },
): Promise<Cluster> {
  const [nodes, services, slices, ranges] = await Promise.all([
    api.listAll(resources.nodes, options),
    api.listAll(resources.services, { ...options, labelSelector: PROXY_SELECTORS.services }),
    api.listAll(resources.endpointSlices, { ...options, labelSelector: PROXY_SELECTORS.slices }),
    readRanges(api, options),
  ]);
  const all = nodes.items.filter(isReadable("nodes"));
  const node = all.find(({ metadata }) => metadata.name === nodeName);
  if (node === undefined) throw noSuchNode(nodeName, nodes.items);
  return {
    node,
    otherNodes: all.filter((one) => one !== node),
    services: services.items.filter(isReadable("services")),
    slices: slices.items.filter(isReadable("endpointslices")),
    serviceCIDRs: ranges,
  };
}

/** True for objects that the proxy can read; the proxy ignores all others. */
function isReadable(resource: keyof typeof SHAPES): (object: object) => boolean {
  return (object) => fitShape(object, SHAPES[resource].shape) === undefined;
}

/** API servers before 1.33 do not serve ServiceCIDRs; the proxy then has no ranges either. */
async function readRanges(api: KubeApi, options: { readonly signal: AbortSignal }): Promise<readonly Cidr[]> {
  try {
    const { items } = await api.listAll(serviceCIDRs, options);
    return items.filter(isReadable("servicecidrs")).flatMap(rangesOf);
  } catch (error) {
    if (isKubeError(error, "not-found")) return [];
    throw error;
  }
}

/** Maximum of Nodes that a message names. */
const MAX_NAMES = 5;

function noSuchNode(name: string, nodes: readonly Node[]): ExplainError {
  const names = nodes.slice(0, MAX_NAMES).map(({ metadata }) => metadata.name);
  const more = nodes.length > MAX_NAMES ? ` and ${nodes.length - MAX_NAMES} more` : "";
  const known = nodes.length === 0 ? "the cluster has no Nodes" : `the Nodes are ${names.join(", ")}${more}`;
  return new ExplainError("no-such-object", `there is no Node ${name} (--node); ${known}`);
}

/** The table that one family's proxy on the node would have in the kernel. */
export interface NodePlan {
  readonly family: IpFamily;
  readonly options: RuleOptions;
  readonly tracker: Tracker;
  readonly wanted: WantedTable;
  readonly context: TraceContext;
  /** Addresses of the node in the family, the primary one first. */
  readonly addresses: readonly IpAddress[];
  /** Addresses that take NodePorts; empty if all local ones do. */
  readonly nodePortAddresses: readonly IpAddress[];
  /** Keys of external front ends at addresses of nodes, which a Service gets if no socket of this node listens there. */
  readonly unlessListened: ReadonlySet<string>;
  /** Services without rules, because they need more elements than a table may have of one, with an upper bound for theirs. */
  readonly tooLarge: ReadonlyMap<string, number>;
}

/** Plans one family's table with the same functions as the proxy. `further`: addresses of the node that its Node does not name. Pure. */
export function planNode(
  { node, otherNodes, services, slices, serviceCIDRs: cidrs }: Cluster,
  config: ExplainConfig,
  family: IpFamily,
  further: readonly IpAddress[],
): NodePlan {
  const network = nodeNetwork(node, config.bindAddress);
  const named = (node.status?.addresses ?? []).flatMap(({ address }) => IpAddress.tryParse(address ?? "") ?? []);
  const addresses = distinct([...network.addresses, ...named, ...further]).filter((one) => one.family === family);
  const options = ruleOptionsOf(config, network, family, addresses);
  const facts: HostFacts = {
    ...{ mode: config.serviceAddresses, hostPorts: config.hostPorts, ownNode: named, serviceCIDRs: cidrs },
    host: new Set([...addresses, ...further].map(String)),
    otherNodes: new Map(
      otherNodes.flatMap((one) => addressesOf(one).map((text) => [text, one.metadata.name] as const)),
    ),
    podRanges: [...config.clusterCIDRs, ...[node, ...otherNodes].flatMap(podCIDRsOf)],
    apiServer: undefined,
  };
  const unlessListened = new Set<string>();
  const judge: AddressJudge = {
    judge: (_family, claim, cluster) => {
      const judgement = judgeAddress(claim, facts, cluster);
      if (judgement.kind !== "refused" && judgement.kind !== "free") unlessListened.add(claim.key);
      return judgement.kind === "refused" ? judgement.owner : undefined;
    },
    forget: () => undefined,
  };
  const tracker = new Tracker(family, contextOf(config, network, family), { judge });
  for (const service of services) {
    const ports = portsOf(service, family, { allowExternalIPs: config.gates.allowServiceExternalIPs });
    tracker.setService(keyOf(service), ports);
  }
  for (const slice of slices) tracker.setSlice(keyOf(slice), sliceView(slice));
  const wanted = new WantedTable();
  for (const service of tracker.take().services) wanted.set(service, tracker.plan(service));
  const nodePorts = nodePortAddressesOf(config, family, addresses, addressOf(network, family));
  const table = {
    frontEnds: new Map(wanted.frontEnds()),
    clusterIPs: wanted.clusterIPs,
    hairpinEndpoints: wanted.hairpinEndpoints,
    nodePortIPs: new Set(nodePorts.addresses.map(addressBytes)),
    serviceCIDRs: cidrs.filter((cidr) => cidr.family === family),
  };
  return {
    family,
    options,
    tracker,
    wanted,
    addresses,
    unlessListened,
    tooLarge: tracker.takeTooLarge(),
    nodePortAddresses: nodePorts.mode === "set" ? nodePorts.addresses : [],
    context: traceContext(table, options, addresses),
  };
}

const keyOf = ({ metadata }: Pick<Service, "metadata">): string => `${metadata.namespace ?? ""}/${metadata.name}`;

function distinct(addresses: readonly IpAddress[]): IpAddress[] {
  return [...new Map(addresses.map((address) => [address.toString(), address])).values()];
}
