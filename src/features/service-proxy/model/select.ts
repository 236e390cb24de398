import { type Endpoint, isExternallyAccessible, type NodeInfo, type ServicePort } from "./types.ts";

/** The endpoints that a service port may use now (docs/spec/service-proxy.md#2.2). */
export interface Selection {
  /** Endpoints of the whole cluster; empty also if no policy uses them. */
  readonly cluster: readonly Endpoint[];
  /** Endpoints on this node, for the policies Local. */
  readonly local: readonly Endpoint[];
  /** True if some endpoint in the cluster would answer. If false, connections have to be rejected, not dropped. */
  readonly hasEndpoints: boolean;
}

/** Pure. The endpoints for new connections: ready ones, or else terminating ones that still serve. */
export function selectEndpoints(port: ServicePort, endpoints: readonly Endpoint[], node: NodeInfo): Selection {
  const isExternal = isExternallyAccessible(port);
  const usesCluster = port.internalTrafficPolicy !== "Local" || isExternal;
  const usesLocal = port.internalTrafficPolicy === "Local" || (port.externalTrafficPolicy === "Local" && isExternal);
  const cluster = usesCluster ? readyOrTerminating(filterByTopology(endpoints, node), endpoints) : [];
  const onNode = usesLocal ? endpoints.filter(({ isLocal }) => isLocal) : [];
  const local = readyOrTerminating(onNode.filter(isReady), onNode);
  const hasEndpoints =
    cluster.length > 0 || (usesLocal && endpoints.some((one) => isReady(one) || isTerminatingButServing(one)));
  return { cluster, local, hasEndpoints };
}

const isReady = ({ ready }: Endpoint): boolean => ready;
const isTerminatingButServing = ({ serving, terminating }: Endpoint): boolean => serving && terminating;

function readyOrTerminating(ready: readonly Endpoint[], all: readonly Endpoint[]): readonly Endpoint[] {
  return ready.length > 0 ? ready : all.filter(isTerminatingButServing);
}

/** The ready endpoints that the hints allow (docs/spec/service-proxy.md#2.3). */
function filterByTopology(endpoints: readonly Endpoint[], node: NodeInfo): readonly Endpoint[] {
  const ready = endpoints.filter(isReady);
  const mode = topologyMode(ready, node);
  if (mode === "node") return ready.filter(({ nodeHints }) => nodeHints.includes(node.name));
  if (mode === "zone") return ready.filter(({ zoneHints }) => zoneHints.includes(node.zone ?? ""));
  return ready;
}

/** Hints count only if every ready endpoint has hints and at least one hint names this node or its zone. */
function topologyMode(ready: readonly Endpoint[], node: NodeInfo): "node" | "zone" | "none" {
  if (ready.length === 0) return "none";
  const allOnNodes = ready.every(({ nodeHints }) => nodeHints.length > 0);
  if (allOnNodes && ready.some(({ nodeHints }) => nodeHints.includes(node.name))) return "node";
  const { zone } = node;
  if (zone === undefined) return "none";
  const allInZones = ready.every(({ zoneHints }) => zoneHints.length > 0);
  return allInZones && ready.some(({ zoneHints }) => zoneHints.includes(zone)) ? "zone" : "none";
}
