/**
 * The flags for balancers in front of a listener of TLS.
 *
 * Owns: which addresses are balancers, and whether they send PROXY headers. Does not know: the listeners, and the headers.
 *
 * ```ts
 * const { isBalancer, readsProxyHeaders } = balancersOf(values);
 * ```
 */
import { commaFlag, switchFlag } from "#base/config";
import { Cidr, socketAddress, unmappedCidr } from "#base/ip";

export const balancerFlags = {
  balancerCidr: commaFlag(
    "balancer-cidr",
    (text) => Cidr.parse(text),
    "addresses of balancers in front of this listener: the bound of clients of one address that have not proved themselves is not for them, that of the listener is",
    "CIDR,...",
  ),
  balancerProxyProtocol: switchFlag(
    "balancer-proxy-protocol",
    false,
    "connections from --balancer-cidr must begin with a PROXY header, v1 or v2, whose address counts as the client's; it is read from nobody else",
  ),
};

interface BalancerValues {
  readonly balancerCidr: readonly Cidr[];
  readonly balancerProxyProtocol: boolean;
}

/** Returns the fault of `--balancer-proxy-protocol`, if there is one. */
export function balancerFault({ balancerCidr, balancerProxyProtocol }: BalancerValues): string | undefined {
  return balancerProxyProtocol && balancerCidr.length === 0
    ? "needs --balancer-cidr: a PROXY header is read from balancers alone"
    : undefined;
}

export interface Balancers {
  /** Takes an address of a socket. `undefined` if there are no balancers. */
  readonly isBalancer: ((address: string) => boolean) | undefined;
  readonly readsProxyHeaders: boolean;
}

export function balancersOf({ balancerCidr: ranges, balancerProxyProtocol }: BalancerValues): Balancers {
  if (ranges.length === 0) return { isBalancer: undefined, readsProxyHeaders: false };
  const plain = ranges.map(unmappedCidr);
  const isBalancer = (text: string): boolean => {
    const address = socketAddress(text);
    return address !== undefined && plain.some((range) => range.contains(address));
  };
  return { isBalancer, readsProxyHeaders: balancerProxyProtocol };
}
