import { Cidr, type IpAddress } from "#base/ip";

/** The host listener of the proxy (docs/spec/uplink-proxy.md#4). */
export const PROXY_URL = "http://127.0.0.1:5443";
/** The default ranges of k3s for pods and Services. */
export const DEFAULT_POD_CIDRS: readonly Cidr[] = [Cidr.parse("10.42.0.0/16")];
export const DEFAULT_SERVICE_CIDRS: readonly Cidr[] = [Cidr.parse("10.43.0.0/16")];

/** The input of the lists. */
export interface EnvironmentOptions {
  /** Default {@link PROXY_URL}. */
  readonly proxyURL?: string;
  /** CIDRs of pods, of both families. The IPv4 CIDRs replace the default of k3s in the list. */
  readonly podCIDRs?: readonly Cidr[];
  readonly serviceCIDRs?: readonly Cidr[];
  /** The address of this node in the cluster; absent when it is not known yet. */
  readonly nodeIP?: IpAddress | undefined;
  /** Prefix length of the node's subnet; unknown if absent or not above 0. */
  readonly prefixLength?: number | undefined;
  /** Include the IPv6 loopback, link-local and cluster ranges too. Default: when a CIDR or the node's address is IPv6. */
  readonly ipv6?: boolean;
  /** Addresses that are listed one by one at the end, for clients that do not understand CIDRs (curl before 7.86). */
  readonly literals?: readonly IpAddress[];
}

/** The variables of one command. Upper case only, and never `HTTP_PROXY` (docs/spec/uplink-proxy.md#10.1). */
export interface ProxyEnvironment {
  readonly HTTPS_PROXY: string;
  readonly NO_PROXY: string;
}

/** Makes both variables. */
export function proxyEnvironment(options: EnvironmentOptions = {}): ProxyEnvironment {
  return { HTTPS_PROXY: options.proxyURL ?? PROXY_URL, NO_PROXY: noProxy(options) };
}

/** The value of NO_PROXY. Existing users compare it as text, so its order must not change. */
export function noProxy(options: EnvironmentOptions = {}): string {
  const { podCIDRs = DEFAULT_POD_CIDRS, serviceCIDRs = DEFAULT_SERVICE_CIDRS, literals = [] } = options;
  const cidrs = [...podCIDRs, ...serviceCIDRs];
  const ofFamily = (family: 4 | 6): string[] => cidrs.filter((cidr) => cidr.family === family).map(String);
  const wantsIpv6 = options.ipv6 ?? (ofFamily(6).length > 0 || options.nodeIP?.family === 6);
  const list = ["127.0.0.0/8", ...ofFamily(4), "169.254.0.0/16", "localhost", ".svc", ".cluster.local"];
  if (wantsIpv6) list.push("::1", "fe80::/10", ...ofFamily(6));
  return [...list, ...nodeEntry(options), ...literals.map(String)].join(",");
}

/** The entry of the node: the host's own address with the prefix length, as in the reference, not the address of the network. */
function nodeEntry({ nodeIP, prefixLength = 0 }: EnvironmentOptions): string[] {
  if (nodeIP === undefined) return [];
  return [prefixLength > 0 ? `${nodeIP}/${prefixLength}` : `${nodeIP}`];
}
