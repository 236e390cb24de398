import { type Endpoint, isExternallyAccessible, type NodeInfo, type ServicePort } from "./types.ts";

/** The endpoints that a service port may use now (docs/spec/service-proxy.md#2.2). */
export interface Selection {
  /** For everybody; empty also where no policy needs it. */
  readonly cluster: readonly Endpoint[];
  /** On this node, for the policies named Local. */
  readonly local: readonly Endpoint[];
  /** Somewhere in the cluster somebody would answer: false means refuse, not drop. */
  readonly hasEndpoints: boolean;
}

/** Pure: new connections go to these. Ready ones first; else those that end but still serve. */
export function selectEndpoints(port: ServicePort, endpoints: readonly Endpoint[], node: NodeInfo): Selection {
  const isExternal = isExternallyAccessible(port);
  const usesCluster = port.internalTrafficPolicy !== "Local" || isExternal;
  const usesLocal = port.internalTrafficPolicy === "Local" || (port.externalTrafficPolicy === "Local" && isExternal);
  const cluster = usesCluster ? readyOrTerminating(filterByTopology(endpoints, node), endpoints) : [];
  const onNode = usesLocal ? endpoints.filter(({ isLocal }) => isLocal) : [];
  const local = readyOrTerminating(onNode.filter(isReady), onNode);
  const hasEndpoints = cluster.length > 0 || (usesLocal && endpoints.some((one) => isReady(one) || isTerminatingButServing(one)));
  return { cluster, local, hasEndpoints };
}

const isReady = ({ ready }: Endpoint): boolean => ready;
const isTerminatingButServing = ({ serving, terminating }: Endpoint): boolean => serving && terminating;

function readyOrTerminating(ready: readonly Endpoint[], all: readonly Endpoint[]): readonly Endpoint[] {
  return ready.length > 0 ? ready : all.filter(isTerminatingButServing);
}

/** Only ready endpoints count, here and in what they hint at (docs/spec/service-proxy.md#2.3). */
function filterByTopology(endpoints: readonly Endpoint[], node: NodeInfo): readonly Endpoint[] {
  const ready = endpoints.filter(isReady);
  const mode = topologyMode(ready, node);
  if (mode === "node") return ready.filter(({ nodeHints }) => nodeHints.includes(node.name));
  if (mode === "zone") return ready.filter(({ zoneHints }) => zoneHints.includes(node.zone ?? ""));
  return ready;
}

/** Hints count only when every ready endpoint has them and one of them means us. */
function topologyMode(ready: readonly Endpoint[], node: NodeInfo): "node" | "zone" | "none" {
  if (ready.length === 0) return "none";
  const allOnNodes = ready.every(({ nodeHints }) => nodeHints.length > 0);
  if (allOnNodes && ready.some(({ nodeHints }) => nodeHints.includes(node.name))) return "node";
  const { zone } = node;
  if (zone === undefined) return "none";
  const allInZones = ready.every(({ zoneHints }) => zoneHints.length > 0);
  return allInZones && ready.some(({ zoneHints }) => zoneHints.includes(zone)) ? "zone" : "none";
}
