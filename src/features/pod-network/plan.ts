import { createHash } from "node:crypto";
import { Cidr, IpAddress, MacAddress } from "#base/ip";
import { formatAlias } from "./alias.ts";
import { groupOfNetwork } from "./link-groups.ts";

/** Route and rule numbers; defaults are those of Coil (docs/spec/pod-network.md#17). */
export interface PodNetworkOptions {
  /** Table of the routes to pods. */
  readonly tableId: number;
  /** Priority of the rule that directs packets to the table. */
  readonly rulePriority: number;
  /** Protocol number that marks our routes. */
  readonly protocolId: number;
  /** Name host links after namespace and pod, as Calico does. */
  readonly compatCalico: boolean;
  /** Gateway of IPv4 pods: 169.254.1.1 rather than the node's address. */
  readonly hostLinkLocal: boolean;
  /** The MTU for every pod; `undefined`: the MTU of the node's uplinks. */
  readonly mtuBytes: number | undefined;
}

/** The node's own addresses. */
export interface NodeAddresses {
  readonly ipv4: IpAddress | undefined;
  readonly ipv6: IpAddress | undefined;
}

export interface PodRequest {
  readonly attachment: { readonly containerId: string; readonly ifname: string };
  readonly pool: string;
  readonly pod: { readonly namespace: string; readonly name: string };
  /** The CNI network's name. */
  readonly network?: string | undefined;
  readonly ipv4: IpAddress | undefined;
  readonly ipv6: IpAddress | undefined;
  /** Sources that the pod may use besides its addresses. */
  readonly extraSources?: readonly Cidr[] | undefined;
  /** The address of the pod's interface; without one the kernel chooses. */
  readonly mac?: MacAddress | undefined;
}

/** One address to be put on a link, without duplicate address detection. */
export interface PlannedAddress {
  readonly address: IpAddress;
  readonly prefixLength: number;
  readonly scope: "global" | "link";
}

export interface PlannedRoute {
  readonly dst: Cidr;
  readonly gateway: IpAddress | undefined;
  readonly scope: "link" | "global";
}

/** All objects of one attachment, as plain data: an ADD writes them, and CHECK compares the kernel with them. */
export interface PodPlan {
  readonly hostName: string;
  readonly podName: string;
  readonly hostMac: MacAddress;
  /** `undefined`: the kernel chooses one. */
  readonly podMac: MacAddress | undefined;
  readonly alias: string;
  readonly pendingAlias: string;
  /** IFLA_GROUP of the finished link. */
  readonly group: number;
  readonly mtuBytes: number | undefined;
  readonly hasIpv6: boolean;
  /** True: the pod may have addresses of others, which must not be senders of its ARP requests. */
  readonly announcesOwn: boolean;
  readonly hostAddresses: readonly PlannedAddress[];
  readonly podAddresses: readonly PlannedAddress[];
  /** The routes on the host, in the pods' table. */
  readonly hostRoutes: readonly PlannedRoute[];
  /** The routes in the pod's main table. Their order matters: a gateway's link route comes before its default route. */
  readonly podRoutes: readonly PlannedRoute[];
}

const LINK_LOCAL_GATEWAY = IpAddress.parse("169.254.1.1");
const ANY = { 4: Cidr.parse("0.0.0.0/0"), 6: Cidr.parse("::/0") } as const;

/** Pure: the objects of one attachment. */
export function planPod(
  request: PodRequest,
  node: NodeAddresses,
  options: Pick<PodNetworkOptions, "hostLinkLocal" | "mtuBytes">,
  hostName: string,
): PodPlan {
  const { attachment, pool, ipv4, ipv6, mac: podMac } = request;
  const hostMac = hostMacOf(hostName);
  const gateway4 = gatewayOf(node, options);
  const gateway6 = linkLocalOf(hostMac);
  return {
    hostName,
    podName: attachment.ifname,
    hostMac,
    podMac,
    alias: formatAlias({ kind: "attached", pool, ...attachment }),
    pendingAlias: formatAlias({ kind: "pending", ...attachment }),
    group: groupOfNetwork(request.network),
    mtuBytes: options.mtuBytes,
    hasIpv6: ipv6 !== undefined,
    announcesOwn: ipv4 !== undefined && (request.extraSources?.length ?? 0) > 0,
    hostAddresses: [
      ...(ipv4 === undefined ? [] : [host(gateway4)]),
      ...(ipv6 === undefined || node.ipv6 === undefined ? [] : [host(node.ipv6)]),
      ...(ipv6 === undefined ? [] : [{ address: gateway6, prefixLength: 64, scope: "link" as const }]),
    ],
    podAddresses: [ipv4, ipv6].filter((address) => address !== undefined).map(host),
    hostRoutes: [ipv4, ipv6].filter((address) => address !== undefined).map((address) => onLink(Cidr.host(address))),
    podRoutes: [
      ...(ipv4 === undefined ? [] : [onLink(Cidr.host(gateway4)), via(gateway4)]),
      ...(ipv6 === undefined ? [] : [via(gateway6)]),
    ],
  };
}

/** The gateway of IPv4 pods. */
export function gatewayOf(node: NodeAddresses, options: Pick<PodNetworkOptions, "hostLinkLocal">): IpAddress {
  return options.hostLinkLocal ? LINK_LOCAL_GATEWAY : (node.ipv4 ?? LINK_LOCAL_GATEWAY);
}

/**
 * The host's name for an attachment: `veth` and eight hex digits. They come from the attachment, so that DEL and a
 * repeated ADD find the link without a dump. `attempt` leads to another name if the first is taken.
 */
export function hostNameOf(attachment: PodRequest["attachment"], attempt = 0): string {
  const text = `${attachment.containerId}/${attachment.ifname}${attempt === 0 ? "" : `#${attempt}`}`;
  return `veth${createHash("sha1").update(text).digest("hex").slice(0, 8)}`;
}

/** Calico's name for a pod's link: `veth` and the first 11 hex digits of sha1(`<namespace>.<pod>`). */
export function calicoName(pod: PodRequest["pod"]): string {
  return `veth${createHash("sha1").update(`${pod.namespace}.${pod.name}`).digest("hex").slice(0, 11)}`;
}

/**
 * The MAC address of the host's end: locally administered, and derived from the link's name. So the pod's gateway is known before the link
 * exists, and a link that coild has made but not marked yet, because it was killed, can be recognised.
 */
export function hostMacOf(hostName: string): MacAddress {
  const bytes = Uint8Array.from(createHash("sha1").update(`isthmus ${hostName}`).digest().subarray(0, 6));
  bytes[0] = ((bytes[0] ?? 0) & 0xfc) | 0x02;
  return MacAddress.fromBytes(bytes);
}

/** The link-local address with the modified EUI-64 of a MAC address (RFC 4291 Appendix A), as the kernel makes it. */
export function linkLocalOf(mac: MacAddress): IpAddress {
  const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0] = mac.toBytes();
  return IpAddress.fromBytes(Uint8Array.of(0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f));
}

function host(address: IpAddress): PlannedAddress {
  return { address, prefixLength: address.bits, scope: "global" };
}

function onLink(dst: Cidr): PlannedRoute {
  return { dst, gateway: undefined, scope: "link" };
}

function via(gateway: IpAddress): PlannedRoute {
  return { dst: ANY[gateway.family], gateway, scope: "global" };
}
