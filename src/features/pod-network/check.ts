import { Cidr } from "#base/ip";
import type { Link } from "#kernel/link";
import type { NetStack } from "#kernel/net";
import type { CniResult } from "#wire/cni";
import { PodNetworkError } from "./errors.ts";

const MAIN_TABLE = 254;

/**
 * Compares one attachment with what it should be (docs/spec/pod-network.md#4.4): the host's link is up, the pod has the
 * addresses of the result and a default route for each family, the pods' table leads to this link. Later plugins may have
 * added to it. Throws {@link PodNetworkError} `check-failed` naming the first missing part.
 */
export function checkAttachment(at: {
  readonly host: NetStack;
  readonly pod: NetStack;
  readonly link: Link;
  readonly ifname: string;
  readonly tableId: number;
  readonly expected: CniResult | undefined;
}): void {
  const { host, pod, link, ifname, tableId } = at;
  const podLink = pod.links.get({ name: ifname });
  if (podLink === undefined) throw missing(`interface ${ifname} in the pod`);
  if (!link.up) throw missing(`state up of host link ${link.name}`);
  if (!podLink.up) throw missing(`state up of interface ${ifname} in the pod`);
  const present = pod.addresses.list({ linkIndex: podLink.index });
  for (const cidr of expectedAddresses(at.expected)) {
    const { base: address, family } = cidr;
    if (!present.some((one) => one.address.equals(address))) throw missing(`address ${cidr} on ${ifname} in the pod`);
    const toPod = host.routes
      .list({ family, table: tableId })
      .some((route) => route.dst.equals(cidr) && route.linkIndex === link.index);
    if (!toPod) throw missing(`route ${cidr} dev ${link.name} in table ${tableId} of the host`);
    const wayOut = pod.routes
      .list({ family, table: MAIN_TABLE })
      .some((route) => route.dst.prefixLength === 0 && route.linkIndex === podLink.index);
    if (!wayOut) throw missing(`default IPv${family} route through ${ifname} in the pod`);
  }
}

/** The addresses of this interface by prevResult; other plugins' interfaces are not checked. */
function expectedAddresses(expected: CniResult | undefined): Cidr[] {
  const sandboxed = (expected?.interfaces ?? []).map((entry) => entry.sandbox !== undefined);
  return (expected?.ips ?? [])
    .filter((ip) => ip.interface === undefined || sandboxed[ip.interface] === true)
    .flatMap((ip) => Cidr.tryParse(ip.address) ?? [])
    .filter((cidr) => cidr.hostBits === 0);
}

function missing(what: string): PodNetworkError {
  return new PodNetworkError("check-failed", `CHECK: ${what} is missing`);
}
