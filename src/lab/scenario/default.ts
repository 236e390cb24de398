import type { SubnetSet } from "#kube/coil";
import type { LabIdentity } from "#lab/ownership";
import type { NodeFamilies } from "#lab/topology";

/** An AddressPool. */
export interface ScenarioPool {
  readonly name: string;
  readonly blockSizeBits: number;
  readonly subnets: readonly SubnetSet[];
}

/** A Deployment in a namespace that has a pool. */
export interface ScenarioWorkload {
  readonly namespace: string;
  readonly name: string;
  /** The namespace's pool. */
  readonly pool: string;
  readonly replicas: number;
}

/** The objects of a lab, as plain data. */
export interface Scenario {
  /** The owner of the objects. */
  readonly identity: LabIdentity;
  readonly pools: readonly ScenarioPool[];
  readonly workloads: readonly ScenarioWorkload[];
}

const SUBNETS = {
  default: { ipv4: "10.100.0.0/16", ipv6: "fd10:100::/112" },
  dual: { ipv4: "10.101.0.0/16", ipv6: "fd10:101::/112" },
} as const;

/**
 * Pure: two pools, half of the pods in each. If the lab has both families, one pool has only IPv4 and the other has both; if
 * it has one family, both pools have that family. Blocks are small, so that nodes need several.
 */
export function defaultScenario(
  options: { readonly pods: number; readonly families: NodeFamilies; readonly chained?: boolean },
  identity: LabIdentity,
): Scenario {
  const named = (name: string): string => `${identity.prefix}${name}`;
  const subnet = (pool: "default" | "dual"): SubnetSet => {
    const { ipv4, ipv6 } = SUBNETS[pool];
    if (options.families === "ipv6") return { ipv6 };
    return options.families === "dual" && pool === "dual" ? { ipv4, ipv6 } : { ipv4 };
  };
  const inDual = Math.floor(options.pods / 2);
  // Behind another plugin, that plugin assigns addresses, so there are no pools.
  if (options.chained === true) {
    const [name] = [named("default")];
    return { identity, pools: [], workloads: [{ namespace: name, name: "web", pool: name, replicas: options.pods }] };
  }
  return {
    identity,
    pools: [
      { name: named("default"), blockSizeBits: 1, subnets: [subnet("default")] },
      { name: named("dual"), blockSizeBits: 3, subnets: [subnet("dual")] },
    ],
    workloads: [
      { namespace: named("default"), name: "web", pool: named("default"), replicas: options.pods - inDual },
      { namespace: named("dual"), name: "api", pool: named("dual"), replicas: inDual },
    ],
  };
}
