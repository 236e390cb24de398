import type { IpAddress } from "#base/ip";
import { type Endpoint, type NodeInfo, packed, packedSet, type ServicePort, selectEndpoints } from "../model/index.ts";
import { frontEndId, frontEndsOf, type OwnerOf } from "./front-end.ts";
import { addressBytes, hairpinKey } from "./keys.ts";
import type { ServicePlan } from "./wanted.ts";

/** One port of a Service with all its endpoints. */
export interface PortWithEndpoints {
  readonly port: ServicePort;
  readonly endpoints: readonly Endpoint[];
}

/**
 * All that a Service requests of one family's table. `nodeIPs`: addresses of this node in the family. `ownerOf`: who has an external address that the
 * Service claims; default: nobody. Pure if `ownerOf` is.
 */
export function planService(
  ports: readonly PortWithEndpoints[],
  node: NodeInfo,
  nodeIPs: readonly IpAddress[],
  ownerOf: OwnerOf = () => undefined,
): ServicePlan {
  const requested = ports.flatMap(({ port, endpoints }) =>
    frontEndsOf(port, selectEndpoints(port, endpoints, node), nodeIPs, ownerOf),
  );
  const hairpinEndpoints = ports.flatMap(({ port, endpoints }) =>
    endpoints.filter(({ isLocal }) => isLocal).map((one) => hairpinKey(one.address, port.protocol, one.port)),
  );
  const external = requested.filter(({ isExternal, owner }) => isExternal && owner === undefined);
  return {
    frontEnds: packed(requested.flatMap(({ frontEnd, owner }) => (owner === undefined ? frontEnd : []))),
    external: packedSet(external.map(({ frontEnd }) => frontEndId(frontEnd))),
    refused: packed(requested.flatMap(({ frontEnd, owner }) => (owner === undefined ? [] : { frontEnd, owner }))),
    clusterIPs: packed([...new Set(ports.map(({ port }) => addressBytes(port.clusterIP)))]),
    hairpinEndpoints: packed([...new Set(hairpinEndpoints)]),
    createdAt: Math.min(...ports.map(({ port }) => port.createdAt)),
  };
}
