import { type Cidr, IpAddress, type IpFamily } from "#base/ip";
import {
  addressBytes,
  portsOf,
  type RuleOptions,
  sliceView,
  Tracker,
  WantedTable,
  type TraceContext,
  traceContext,
} from "#features/service-proxy";
import { type EndpointSlice, isKubeError, type KubeApi, type Node, resources, type Service } from "#kube/client";
import { fitShape } from "#kube/shape";
import type { ServiceProxyConfig } from "../service-proxy/config.ts";
import { OURS, rangesOf, serviceCIDRs } from "../service-proxy/inputs.ts";
import { nodePortPlaces } from "../service-proxy/node-ports.ts";
import { addressOf, nodeState } from "../service-proxy/node-state.ts";
import { SHAPES } from "../service-proxy/readable.ts";
import { contextOf, ruleOptionsOf } from "../service-proxy/rule-options.ts";
import { ExplainError } from "./errors.ts";

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
    api.listAll(resources.services, { ...options, labelSelector: OURS.services }),
    api.listAll(resources.endpointSlices, { ...options, labelSelector: OURS.slices }),
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
  config: ServiceProxyConfig,
  family: IpFamily,
  further: readonly IpAddress[],
): NodePlan {
  const state = nodeState(node, config.bindAddress);
  const named = (node.status?.addresses ?? []).flatMap(({ address }) => IpAddress.tryParse(address ?? "") ?? []);
  const addresses = distinct([...state.addresses, ...named, ...further]).filter((one) => one.family === family);
  const options = ruleOptionsOf(config, state, family, addresses);
  const tracker = new Tracker(family, contextOf(config, state, family));
  for (const service of services) {
    const ports = portsOf(service, family, { allowExternalIPs: config.gates.allowServiceExternalIPs });
    tracker.setService(keyOf(service), ports);
  }
  for (const slice of slices) tracker.setSlice(keyOf(slice), sliceView(slice));
  const wanted = new WantedTable();
  for (const service of tracker.take().services) wanted.set(service, tracker.plan(service));
  const places = nodePortPlaces(config, family, addresses, addressOf(state, family));
  const table = {
    frontEnds: new Map(wanted.frontEnds()),
    clusterIPs: wanted.clusterIPs,
    hairpinEndpoints: wanted.hairpinEndpoints,
    nodePortIPs: new Set(places.addresses.map(addressBytes)),
    serviceCIDRs: cidrs.filter((cidr) => cidr.family === family),
  };
  return {
    family,
    options,
    tracker,
    wanted,
    addresses,
    nodePortAddresses: places.mode === "set" ? places.addresses : [],
    context: traceContext(table, options, addresses),
  };
}

const keyOf = ({ metadata }: Pick<Service, "metadata">): string => `${metadata.namespace ?? ""}/${metadata.name}`;

function distinct(addresses: readonly IpAddress[]): IpAddress[] {
  return [...new Map(addresses.map((address) => [address.toString(), address])).values()];
}
