import { Cidr, IpAddress, type IpFamily, type MacAddress } from "#base/ip";
import type { Link } from "#kernel/link";
import type { NetStack } from "#kernel/net";
import type { CniResult } from "#wire/cni";
import { parseAlias } from "./alias.ts";
import { PodNetworkError } from "./errors.ts";
import { type HostStep, planHost } from "./host.ts";
import type { PodNetworkOptions, PodRequest } from "./plan.ts";

const MAIN_TABLE = 254;

interface Ends {
  readonly host: NetStack;
  readonly pod: NetStack;
  /** The host's end. */
  readonly link: Link;
  readonly attachment: PodRequest["attachment"];
}

/**
 * Compares one attachment with what it should be (docs/spec/pod-network.md#4.4): both ends are up, are ends of one link and bear their
 * names; the pod has its addresses, the way to its gateway and a default route of each family; the host has the gateway's address, the
 * routes to the pod, and a rule for the table of these routes. `addresses` are the addresses that coild has allocated; `expected` may
 * contain further addresses. Later plugins may have added to it. The pod's interface has the MAC address of `expected`, which a later
 * plugin may have changed; if `expected` has none, that of `mac`. Throws {@link PodNetworkError} `check-failed` naming the first missing part.
 */
export function checkAttachment(
  at: Ends & {
    readonly options: Pick<PodNetworkOptions, "tableId" | "rulePriority">;
    readonly addresses: readonly IpAddress[];
    readonly expected: CniResult | undefined;
    readonly mac: MacAddress | undefined;
  },
): void {
  const { host, pod, link, attachment, options } = at;
  const { ifname } = attachment;
  const podLink = checkEnds(at);
  checkExpectedLink(at.expected, ifname);
  checkMac(podLink, expectedMac(at.expected, ifname) ?? at.mac?.toString());
  const present = pod.addresses.list({ linkIndex: podLink.index });
  const wanted = new Map(
    [...at.addresses.map((one) => Cidr.host(one)), ...expectedAddresses(at.expected)].map((one) => [`${one}`, one]),
  );
  const lacking = planHost(host, options);
  for (const cidr of wanted.values()) {
    const { base: address, family } = cidr;
    if (!present.some((one) => one.address.equals(address))) throw missing(`address ${cidr} on ${ifname} in the pod`);
    const toPod = host.routes
      .list({ family, table: options.tableId })
      .some((route) => route.dst.equals(cidr) && route.linkIndex === link.index);
    if (!toPod) throw missing(`route ${cidr} dev ${link.name} in table ${options.tableId} of the host`);
    checkWayOut(at, podLink, family);
    const step = lacking.find((one) => familyOf(one) === family);
    if (step !== undefined) throw missing(nameOf(step));
  }
}

/** Checks the interface of another plugin, of which only the alias is ours. Returns nothing; throws as {@link checkAttachment} does. */
export function checkAdopted(at: {
  readonly pod: NetStack;
  readonly link: Link;
  readonly podLink: Link;
  readonly expected: CniResult | undefined;
}): void {
  const { name: ifname } = at.podLink;
  if (!at.link.up) throw missing(`state up of host link ${at.link.name}`);
  if (!at.podLink.up) throw missing(`state up of interface ${ifname} in the pod`);
  checkExpectedLink(at.expected, ifname);
  const present = at.pod.addresses.list({ linkIndex: at.podLink.index });
  for (const { address: text } of (at.expected?.ips ?? []).filter((ip) => isOnPod(at.expected, ip.interface))) {
    // The prefix length is chosen by the other plugin.
    const wanted = IpAddress.tryParse(text.split("/")[0] ?? "");
    if (wanted === undefined || !present.some(({ address }) => address.equals(wanted)))
      throw missing(`address ${text} on ${ifname} in the pod`);
  }
}

function checkEnds({ pod, link, attachment }: Ends): Link {
  const { containerId, ifname } = attachment;
  const alias = parseAlias(link.alias ?? "");
  if (alias?.kind !== "attached" || alias.containerId !== containerId || alias.ifname !== ifname) {
    throw missing(`alias of container ${containerId}, interface ${ifname}, on host link ${link.name}`);
  }
  const podLink = pod.links.get({ name: ifname });
  if (podLink === undefined) throw missing(`interface ${ifname} in the pod`);
  if (podLink.peerIndex !== link.index || link.peerIndex !== podLink.index) {
    throw missing(`link between interface ${ifname} in the pod and host link ${link.name}`);
  }
  if (!link.up) throw missing(`state up of host link ${link.name}`);
  if (!podLink.up) throw missing(`state up of interface ${ifname} in the pod`);
  return podLink;
}

/** If a result lists interfaces, the pod's interface must be among them. */
function checkExpectedLink(expected: CniResult | undefined, ifname: string): void {
  const links = expected?.interfaces ?? [];
  if (links.length === 0 || links.some(({ name, sandbox }) => name === ifname && sandbox !== undefined)) return;
  throw missing(`interface ${ifname} with a sandbox in prevResult`);
}

/** The MAC address of the pod's interface by prevResult, in the text that we write. */
function expectedMac(expected: CniResult | undefined, ifname: string): string | undefined {
  const link = expected?.interfaces.find(({ name, sandbox }) => name === ifname && sandbox !== undefined);
  return link?.mac === undefined || link.mac === "" ? undefined : link.mac.toLowerCase().replaceAll("-", ":");
}

function checkMac(podLink: Link, wanted: string | undefined): void {
  if (wanted === undefined || podLink.mac?.toString() === wanted) return;
  throw missing(`MAC address ${wanted} on ${podLink.name} in the pod, which has ${podLink.mac ?? "none"},`);
}

/** The pod's default route, the way to its gateway, and the gateway's address on the host's end. */
function checkWayOut({ host, pod, link, attachment }: Ends, podLink: Link, family: IpFamily): void {
  const { ifname } = attachment;
  const routes = pod.routes.list({ family, table: MAIN_TABLE }).filter(({ linkIndex }) => linkIndex === podLink.index);
  const out = routes.find(({ dst }) => dst.prefixLength === 0);
  if (out === undefined) throw missing(`default IPv${family} route through ${ifname} in the pod`);
  const { gateway } = out;
  if (gateway === undefined) return;
  if (!routes.some((one) => one.gateway === undefined && one.dst.prefixLength > 0 && one.dst.contains(gateway))) {
    throw missing(`route to gateway ${gateway} through ${ifname} in the pod`);
  }
  if (!host.addresses.list({ linkIndex: link.index }).some(({ address }) => address.equals(gateway))) {
    throw missing(`gateway address ${gateway} on host link ${link.name}`);
  }
}

/** The addresses of this interface by prevResult; other plugins' interfaces are not checked. */
function expectedAddresses(expected: CniResult | undefined): Cidr[] {
  return (expected?.ips ?? [])
    .filter((ip) => isOnPod(expected, ip.interface))
    .flatMap((ip) => Cidr.tryParse(ip.address) ?? [])
    .filter((cidr) => cidr.hostBits === 0);
}

function isOnPod(expected: CniResult | undefined, index: number | undefined): boolean {
  return index === undefined || expected?.interfaces[index]?.sandbox !== undefined;
}

function familyOf(step: HostStep): IpFamily {
  return step.kind === "rule" ? step.family : step.key.startsWith("net/ipv6") ? 6 : 4;
}

function nameOf(step: HostStep): string {
  if (step.kind === "rule") return `IPv${step.family} rule ${step.priority} for table ${step.table} of the host`;
  return `setting ${step.key}=${step.value} of the host`;
}

function missing(what: string): PodNetworkError {
  return new PodNetworkError("check-failed", `CHECK: ${what} is missing`);
}
