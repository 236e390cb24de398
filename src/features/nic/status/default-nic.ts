import type { NicStatus } from "#kube/nic";

/** The gateways of a NIC's default routes, by family. */
interface Gateways {
  readonly 4: string | undefined;
  readonly 6: string | undefined;
}

const DEFAULT_METRIC = 100;
const EVERYWHERE = { 4: "0.0.0.0/0", 6: "::/0" } as const;

/** The gateways of a NIC. A route of its subnet to everywhere replaces the subnet's gateway (docs/spec/vpc-nics.md#8). */
export function gatewaysOf({ ips = [], routes = [] }: NicStatus): Gateways {
  const of = (family: 4 | 6): string | undefined => {
    const own = ips.filter(({ ip }) => ip.includes(":") === (family === 6));
    if (own.length === 0) return undefined;
    return (
      routes.find(({ dst }) => dst === EVERYWHERE[family])?.via ??
      own.find(({ gateway }) => gateway !== undefined)?.gateway
    );
  };
  return { 4: of(4), 6: of(6) };
}

/**
 * The NIC with the default route: the one that the user has chosen, else the first with a gateway; `undefined` if no NIC has a gateway.
 * `chosen` is the name of the NIC with `defaultRoute`.
 */
export function defaultNic(nics: readonly NicStatus[], chosen: string | undefined): NicStatus | undefined {
  const hasGateway = (nic: NicStatus): boolean => {
    const gateways = gatewaysOf(nic);
    return gateways[4] !== undefined || gateways[6] !== undefined;
  };
  return nics.find((nic) => nic.name === chosen && hasGateway(nic)) ?? nics.find(hasGateway);
}

/** The metric of the default routes of the NIC at an index: 100 for the NIC with the default route, more for every other. */
export function routeMetric(nics: readonly NicStatus[], index: number, first: NicStatus | undefined): number {
  if (nics[index] === first) return DEFAULT_METRIC;
  return DEFAULT_METRIC + (index === 0 ? nics.length : index);
}

/** Returns true if a route leads everywhere. */
export function isDefaultRoute(dst: string): boolean {
  return dst === EVERYWHERE[4] || dst === EVERYWHERE[6];
}
