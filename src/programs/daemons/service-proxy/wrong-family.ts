import { formatListenAddress, type ListenAddress } from "#base/config";
import { type Cidr, IpAddress, type IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import type { NodeNetwork } from "#features/service-proxy";
import type { ServiceProxyConfig } from "../../shared/service-proxy-config/index.ts";
import { ServiceProxyError } from "./errors.ts";

/** The configuration that has addresses of a family. */
export type FamilyConfig = Pick<
  ServiceProxyConfig,
  "detectLocalMode" | "clusterCIDRs" | "nodePortAddresses" | "healthz" | "metrics"
>;

/**
 * Looks for configuration that has nothing of the node's primary family, once its first address is known (docs/spec/service-proxy.md#2.10). It takes
 * effect in the other family only, and nothing else shows that.
 */
export class FamilyCheck {
  readonly #config: FamilyConfig;
  readonly #families: readonly IpFamily[];
  readonly #log: Logger;
  #isDone = false;

  /** `families`: those that the machine has. */
  constructor(
    config: FamilyConfig,
    { families, log }: { readonly families: readonly IpFamily[]; readonly log: Logger },
  ) {
    this.#config = config;
    this.#families = families;
    this.#log = log;
  }

  /** To be called with each state of the Node. Throws {@link ServiceProxyError} `wrong-family`; the other findings are logged. */
  node({ addresses, podCIDRs }: Pick<NodeNetwork, "addresses" | "podCIDRs">): void {
    const [primary] = addresses;
    if (this.#isDone || primary === undefined) return;
    this.#isDone = true;
    const { detectLocalMode, clusterCIDRs, nodePortAddresses, healthz, metrics } = this.#config;
    const { family } = primary;
    const place = { node: String(primary), family };
    if (detectLocalMode === "ClusterCIDR" && isOther(clusterCIDRs, family)) {
      if (!this.#families.includes(other(family)))
        throw new ServiceProxyError(
          "wrong-family",
          `Cannot recognize pods by --cluster-cidr (in a file: clusterCIDR) ${clusterCIDRs.join(",")}: it has only IPv${other(family)}, and the node, whose address is ${primary}, has only IPv${family}; add the range of pods of that family`,
        );
      // The pods may have the other family alone, and be served by it.
      this.#log.warn(
        "--cluster-cidr (in a file: clusterCIDR) has no range of the node's primary family: pods of that family count as clients from outside",
        { ...place, ranges: clusterCIDRs.map(String) },
      );
    }
    if (detectLocalMode === "NodeCIDR" && isOther(podCIDRs, family))
      this.#log.warn(
        "the Node's podCIDRs have no range of its primary family: its pods count as clients from outside",
        {
          ...place,
          podCIDRs: podCIDRs.map(String),
        },
      );
    if (!nodePortAddresses.hasPrimary && isOther(nodePortAddresses.ranges, family))
      this.#log.warn(
        "--nodeport-addresses (in a file: nodePortAddresses) has no range of the node's primary family: all local addresses of that family take NodePorts",
        { ...place, ranges: nodePortAddresses.ranges.map(String) },
      );
    this.#listener("--healthz-bind-address (in a file: healthzBindAddress)", healthz, primary);
    this.#listener("--metrics-bind-address (in a file: metricsBindAddress)", metrics, primary);
  }

  #listener(flag: string, listener: ListenAddress | undefined, { family }: IpAddress): void {
    const address = IpAddress.tryParse(listener?.host ?? "");
    // The wildcard is of both families, and loopback needs no address of the node.
    if (listener === undefined || address === undefined || address.isUnspecified || address.isLoopback) return;
    if (address.family === family) return;
    this.#log.warn(`${flag} is not of the node's primary family: clients that use that family cannot connect`, {
      address: formatListenAddress(listener),
      family,
    });
  }
}

const other = (family: IpFamily): IpFamily => (family === 4 ? 6 : 4);

/** Returns true if there are ranges, and none of this family. */
function isOther(ranges: readonly Cidr[], family: IpFamily): boolean {
  return ranges.length > 0 && ranges.every((range) => range.family !== family);
}
