import { networkInterfaces } from "node:os";
import { ConfigError, integerFlag, listFlag, optionalFlag, parsedFlag, stringFlag, switchFlag } from "#base/config";
import { Cidr, IpAddress } from "#base/ip";
import {
  DEFAULT_POD_CIDRS,
  DEFAULT_SERVICE_CIDRS,
  type EnvironmentOptions,
  OFF_SWITCH,
  PROXY_URL,
  SENTINEL_PATH,
} from "#features/uplink-proxy";

/** Flags that determine the environment variables. */
export const environmentFlags = {
  proxyURL: stringFlag("proxy-url", PROXY_URL, "listen address of the proxy", "URL"),
  podCIDRs: listFlag("pod-cidr", `pod CIDR; default ${DEFAULT_POD_CIDRS.join(", ")}`, "CIDR"),
  serviceCIDRs: listFlag("service-cidr", `Service CIDR; default ${DEFAULT_SERVICE_CIDRS.join(", ")}`, "CIDR"),
  nodeIP: parsedFlag("node-ip", (text) => IpAddress.parse(text), "this node's address in the cluster", "ADDRESS"),
  nodeInterface: optionalFlag("node-interface", "take the node's address and prefix from this interface", "NAME"),
  prefixLength: integerFlag("prefix-length", 0, "prefix length of the node's subnet; 0: unknown", { min: 0, max: 128 }),
  ipv6: switchFlag("ipv6", false, "add the IPv6 loopback and link-local ranges; this is implied if a CIDR is IPv6"),
  literal: switchFlag(
    "literal",
    false,
    "list the node's addresses one by one, for clients that do not understand CIDRs",
  ),
  apiService: parsedFlag(
    "api-service",
    (text) => IpAddress.parse(text),
    "address of the API server's Service; listed with --literal",
    "ADDRESS",
  ),
  flag: stringFlag("off-switch", OFF_SWITCH, "the file that switches the proxy off for new programs", "FILE"),
  sentinel: stringFlag("sentinel", SENTINEL_PATH, "file that records the environment variables of the runtime", "FILE"),
};

interface EnvironmentValues {
  readonly proxyURL: string;
  readonly podCIDRs: readonly string[];
  readonly serviceCIDRs: readonly string[];
  readonly nodeIP: IpAddress | undefined;
  readonly nodeInterface: string | undefined;
  readonly prefixLength: number;
  readonly ipv6: boolean;
  readonly literal: boolean;
  readonly apiService: IpAddress | undefined;
}

/** Reads the flags, and the interface if a flag names an interface. Throws `ConfigError`. */
export function environmentOptions(values: EnvironmentValues): EnvironmentOptions {
  const podCIDRs = values.podCIDRs.length === 0 ? DEFAULT_POD_CIDRS : parseCidrs("pod-cidr", values.podCIDRs);
  const serviceCIDRs =
    values.serviceCIDRs.length === 0 ? DEFAULT_SERVICE_CIDRS : parseCidrs("service-cidr", values.serviceCIDRs);
  const node = nodeAddress(values);
  return {
    proxyURL: values.proxyURL,
    podCIDRs,
    serviceCIDRs,
    nodeIP: node?.address,
    prefixLength: node?.prefixLength,
    ...(values.ipv6 ? { ipv6: true } : {}),
    literals: values.literal ? literals(node?.address, values.apiService) : [],
  };
}

/** The node's present address; `undefined` if no flag gives it. The address of an interface may change while a program runs. */
export function nodeAddress(
  values: Pick<EnvironmentValues, "nodeIP" | "nodeInterface" | "prefixLength">,
): { readonly address: IpAddress; readonly prefixLength: number } | undefined {
  if (values.nodeIP !== undefined) return { address: values.nodeIP, prefixLength: values.prefixLength };
  if (values.nodeInterface === undefined) return undefined;
  for (const { address, cidr } of networkInterfaces()[values.nodeInterface] ?? []) {
    const parsed = IpAddress.tryParse(address);
    if (parsed === undefined || Cidr.parse("fe80::/10").contains(parsed)) continue;
    return { address: parsed, prefixLength: Number(cidr?.split("/")[1] ?? 0) };
  }
  return undefined;
}

/** All addresses of this host except loopback and link-local addresses. The node's address comes first. */
function literals(node: IpAddress | undefined, apiService: IpAddress | undefined): IpAddress[] {
  const skipped = ["127.0.0.0/8", "::1/128", "169.254.0.0/16", "fe80::/10"].map((text) => Cidr.parse(text));
  const own = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .flatMap(({ address }) => IpAddress.tryParse(address) ?? [])
    .filter((address) => !skipped.some((cidr) => cidr.contains(address)));
  const all = [...(node === undefined ? [] : [node]), ...own, ...(apiService === undefined ? [] : [apiService])];
  return [...new Map(all.map((address) => [address.toString(), address])).values()];
}

function parseCidrs(name: string, texts: readonly string[]): Cidr[] {
  return texts
    .flatMap((text) => text.split(","))
    .map((text) => {
      const cidr = Cidr.tryParse(text.trim());
      if (cidr === undefined)
        throw new ConfigError("invalid-flags", [`--${name}: "${text}" is not a CIDR; an example is 10.42.0.0/16`]);
      return cidr;
    });
}
