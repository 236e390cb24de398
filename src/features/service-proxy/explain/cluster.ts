import { type Cidr, IpAddress, type IpFamily } from "#base/ip";
import { type EndpointSlice, isKubeError, type KubeApi, type Node, resources, type Service } from "#kube/client";
import { fitShape } from "#kube/shape";
import { PROXY_SELECTORS, rangesOf, SHAPES, serviceCIDRs } from "../inputs/index.ts";
import { addressOf, contextOf, type NodeConfig, nodeNetwork, nodePortAddressesOf, ruleOptionsOf } from "../node/index.ts";
import { addressBytes, WantedTable } from "../plan/index.ts";
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
}

/** All that a node's proxy reads from the API server. */
export interface Cluster {
  readonly node: Node;
  readonly services: readonly Service[];
  readonly slices: readonly EndpointSlice[];
  readonly serviceCIDRs: readonly Cidr[];
}

/** Reads it once. Rejects with `ExplainError` where there is no such Node, and with `KubeError`. */
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
  const node = nodes.items.filter(isReadable("nodes")).find(({ metadata }) => metadata.name === nodeName);
  if (node === undefined) throw noSuchNode(nodeName, nodes.items);
  return {
    node,
    services: services.items.filter(isReadable("services")),
    slices: slices.items.filter(isReadable("endpointslices")),
    serviceCIDRs: ranges,
  };
}

/** The proxy reads as if the others were not there. */
function isReadable(resource: keyof typeof SHAPES): (object: object) => boolean {
  return (object) => fitShape(object, SHAPES[resource].shape) === undefined;
}

/** API servers before 1.33 do not serve them; the proxy then drops nothing for them either. */
async function readRanges(api: KubeApi, options: { readonly signal: AbortSignal }): Promise<readonly Cidr[]> {
  try {
    const { items } = await api.listAll(serviceCIDRs, options);
    return items.filter(isReadable("servicecidrs")).flatMap(rangesOf);
  } catch (error) {
    if (isKubeError(error, "not-found")) return [];
    throw error;
  }
}

/** So many names are told. */
const NAMES_TOLD = 5;

function noSuchNode(name: string, nodes: readonly Node[]): ExplainError {
  const names = nodes.slice(0, NAMES_TOLD).map(({ metadata }) => metadata.name);
  const more = nodes.length > NAMES_TOLD ? ` and ${nodes.length - NAMES_TOLD} more` : "";
  const known = nodes.length === 0 ? "there are none" : `there are ${names.join(", ")}${more}`;
  return new ExplainError("no-such-object", `there is no Node ${name} (--node); ${known}`);
}

/** What one family's proxy on the node would have in the kernel, to be walked through. */
export interface NodePlan {
  readonly family: IpFamily;
  readonly options: RuleOptions;
  readonly tracker: Tracker;
  readonly wanted: WantedTable;
  readonly context: TraceContext;
  /** Of the node, in the family; the primary one first. */
  readonly addresses: readonly IpAddress[];
  /** Where NodePorts are taken; empty where the rules know without a list. */
  readonly nodePortAddresses: readonly IpAddress[];
}

/** Pure: by the same functions as the proxy. `further`: addresses of the node that its Node does not name. */
export function planNode(
  { node, services, slices, serviceCIDRs: cidrs }: Cluster,
  config: ExplainConfig,
  family: IpFamily,
  further: readonly IpAddress[],
): NodePlan {
  const network = nodeNetwork(node, config.bindAddress);
  const named = (node.status?.addresses ?? []).flatMap(({ address }) => IpAddress.tryParse(address ?? "") ?? []);
  const addresses = distinct([...network.addresses, ...named, ...further]).filter((one) => one.family === family);
  const options = ruleOptionsOf(config, network, family, addresses);
  const tracker = new Tracker(family, contextOf(config, network, family));
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
    nodePortAddresses: nodePorts.mode === "set" ? nodePorts.addresses : [],
    context: traceContext(table, options, addresses),
  };
}

const keyOf = ({ metadata }: Pick<Service, "metadata">): string => `${metadata.namespace ?? ""}/${metadata.name}`;

function distinct(addresses: readonly IpAddress[]): IpAddress[] {
  return [...new Map(addresses.map((address) => [address.toString(), address])).values()];
}
