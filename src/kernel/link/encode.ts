import { MessageWriter, type NetlinkRequest, RTM } from "#kernel/netlink";
import {
  BRIDGE,
  ENCAP_FLAG,
  IFF,
  IFLA,
  INFO,
  IPTUN,
  MACVLAN_MODE,
  MACVLAN_MODES,
  VETH_INFO_PEER,
  VXLAN,
} from "./constants.ts";
import type { BridgeOptions, CommonLinkSpec, LinkChange, LinkSpec, TunnelOptions, VxlanOptions } from "./types.ts";

/** Specs that netlink can make; tun links are made by an ioctl. */
export type NetlinkLinkSpec = Exclude<LinkSpec, { readonly kind: "tun" }>;

/** `struct ifinfomsg`. */
export function linkHeader(init: { index?: number; flags?: number; change?: number } = {}): Buffer {
  const header = Buffer.alloc(16);
  header.writeInt32LE(init.index ?? 0, 4);
  header.writeUInt32LE(init.flags ?? 0, 8);
  header.writeUInt32LE(init.change ?? 0, 12);
  return header;
}

/** The body of RTM_NEWLINK that makes a link; the alias is not part of it, because the kernel ignores it there. */
export function encodeCreate(spec: NetlinkLinkSpec): Uint8Array {
  const writer = new MessageWriter();
  writer.raw(linkHeader(upFlags(spec.up)));
  writeCommon(writer, spec);
  if (spec.masterIndex !== undefined) writer.u32(IFLA.MASTER, spec.masterIndex);
  if (spec.kind === "macvlan") writer.u32(IFLA.LINK, spec.parentIndex);
  writer.nest(IFLA.LINKINFO, (info) => {
    info.string(INFO.KIND, spec.kind);
    info.nest(INFO.DATA, (data) => writeDetails(data, spec));
  });
  return writer.bytes;
}

/** The body of RTM_SETLINK. */
export function encodeChange(index: number, change: LinkChange): Uint8Array {
  const up = upFlags(change.up);
  const others = flagsOf([
    [IFF.NOARP, change.arp === undefined ? undefined : !change.arp],
    [IFF.PROMISC, change.promiscuous],
  ]);
  const writer = new MessageWriter();
  writer.raw(linkHeader({ index, flags: (up.flags ?? 0) | others.flags, change: (up.change ?? 0) | others.change }));
  if (change.name !== undefined) writer.string(IFLA.IFNAME, change.name);
  if (change.mtu !== undefined) writer.u32(IFLA.MTU, change.mtu);
  if (change.mac !== undefined) writer.attribute(IFLA.ADDRESS, change.mac.toBytes());
  // The alias is written without its NUL: an empty alias must have length 0 to remove the old one.
  if (change.alias !== undefined) writer.attribute(IFLA.IFALIAS, Buffer.from(change.alias));
  if (change.group !== undefined) writer.u32(IFLA.GROUP, change.group);
  if (change.masterIndex !== undefined) writer.u32(IFLA.MASTER, change.masterIndex ?? 0);
  if (change.netns !== undefined) writer.u32(IFLA.NET_NS_FD, change.netns.fd);
  return writer.bytes;
}

/** RTM_DELLINK for one link. */
export function deletion(index: number): NetlinkRequest {
  return { type: RTM.DELLINK, body: linkHeader({ index }), what: () => `delete link ${index}` };
}

/** RTM_SETLINK that puts a link into a group. */
export function joiningGroup(index: number, group: number): NetlinkRequest {
  const body = new MessageWriter().raw(linkHeader({ index })).u32(IFLA.GROUP, group).bytes;
  return { type: RTM.SETLINK, body, what: () => `delete link ${index} (put it into group ${group})` };
}

/** RTM_DELLINK for all links of a group. The request must not name a link: the kernel checks the group last. */
export function deletionOfGroup(group: number): NetlinkRequest {
  const body = new MessageWriter().raw(linkHeader()).u32(IFLA.GROUP, group).bytes;
  return { type: RTM.DELLINK, body, what: () => `delete the links of group ${group}` };
}

type Common = Pick<CommonLinkSpec, "name" | "mtu" | "mac" | "netns">;

function writeCommon(writer: MessageWriter, spec: Common): void {
  writer.string(IFLA.IFNAME, spec.name);
  if (spec.mtu !== undefined) writer.u32(IFLA.MTU, spec.mtu);
  if (spec.mac !== undefined) writer.attribute(IFLA.ADDRESS, spec.mac.toBytes());
  if (spec.netns !== undefined) writer.u32(IFLA.NET_NS_FD, spec.netns.fd);
}

/** The bits of the flags that are given. */
function flagsOf(bits: readonly (readonly [bit: number, on: boolean | undefined])[]): {
  flags: number;
  change: number;
} {
  let [flags, change] = [0, 0];
  for (const [bit, on] of bits) {
    if (on === undefined) continue;
    change |= bit;
    if (on) flags |= bit;
  }
  return { flags, change };
}

function upFlags(up: boolean | undefined): { flags?: number; change?: number } {
  return up === undefined ? {} : { flags: up ? IFF.UP : 0, change: IFF.UP };
}

function writeDetails(data: MessageWriter, spec: NetlinkLinkSpec): void {
  switch (spec.kind) {
    case "veth":
      data.nest(VETH_INFO_PEER, (peer) => {
        peer.raw(linkHeader()); // IFF_UP would be refused (ENOTCONN): the peer is registered before the two are tied
        writeCommon(peer, spec.peer);
      });
      return;
    case "bridge":
      writeBridge(data, spec);
      return;
    case "vxlan":
      writeVxlan(data, spec);
      return;
    case "macvlan":
      data.u32(MACVLAN_MODE, MACVLAN_MODES[spec.mode]);
      return;
    case "ipip":
    case "ip6tnl":
      writeTunnel(data, spec);
      return;
    case "dummy":
      return;
  }
}

function writeBridge(data: MessageWriter, options: BridgeOptions): void {
  if (options.ageingSeconds !== undefined) data.u32(BRIDGE.AGEING_TIME, options.ageingSeconds * 100); // USER_HZ
  if (options.stp !== undefined) data.u32(BRIDGE.STP_STATE, Number(options.stp));
  if (options.vlanFiltering !== undefined) data.u8(BRIDGE.VLAN_FILTERING, Number(options.vlanFiltering));
  if (options.multicastSnooping !== undefined) data.u8(BRIDGE.MCAST_SNOOPING, Number(options.multicastSnooping));
}

function writeVxlan(data: MessageWriter, options: VxlanOptions): void {
  const flag = (type: number, value: boolean | undefined): void => {
    if (value !== undefined) data.u8(type, Number(value));
  };
  if (options.vni !== undefined) data.u32(VXLAN.ID, options.vni);
  if (options.local !== undefined) data.address(options.local.family === 4 ? VXLAN.LOCAL : VXLAN.LOCAL6, options.local);
  if (options.remote !== undefined)
    data.address(options.remote.family === 4 ? VXLAN.GROUP : VXLAN.GROUP6, options.remote);
  if (options.port !== undefined) data.be16(VXLAN.PORT, options.port);
  if (options.underlayIndex !== undefined) data.u32(VXLAN.LINK, options.underlayIndex);
  if (options.ttl !== undefined) data.u8(VXLAN.TTL, options.ttl);
  flag(VXLAN.LEARNING, options.learning);
  flag(VXLAN.UDP_CSUM, options.udpCsum);
  flag(VXLAN.UDP_ZERO_CSUM6_TX, options.udp6ZeroCsumTx);
  flag(VXLAN.UDP_ZERO_CSUM6_RX, options.udp6ZeroCsumRx);
  // The attribute is written only if wanted: kernels refuse to change COLLECT_METADATA, even to the same value.
  if (options.external === true) data.u8(VXLAN.COLLECT_METADATA, 1);
  if (options.gbp === true) data.flag(VXLAN.GBP);
}

function writeTunnel(data: MessageWriter, spec: TunnelOptions & { readonly kind: "ipip" | "ip6tnl" }): void {
  if (spec.local !== undefined) data.address(IPTUN.LOCAL, spec.local);
  if (spec.remote !== undefined) data.address(IPTUN.REMOTE, spec.remote);
  if (spec.underlayIndex !== undefined) data.u32(IPTUN.LINK, spec.underlayIndex);
  if (spec.ttl !== undefined) data.u8(IPTUN.TTL, spec.ttl);
  if (spec.pmtuDiscovery !== undefined && spec.kind === "ipip") data.u8(IPTUN.PMTUDISC, Number(spec.pmtuDiscovery));
  data.u8(IPTUN.PROTO, payloadProtocol(spec.payload ?? (spec.kind === "ipip" ? "ipv4" : "ipv6")));
  if (spec.external === true) data.flag(IPTUN.COLLECT_METADATA);
  const { encap } = spec;
  if (encap === undefined) return;
  data.u16(IPTUN.ENCAP_TYPE, encap.type === "fou" ? 1 : 2);
  data.u16(
    IPTUN.ENCAP_FLAGS,
    (encap.csum === true ? ENCAP_FLAG.CSUM : 0) | (encap.csum6 === true ? ENCAP_FLAG.CSUM6 : 0),
  );
  data.be16(IPTUN.ENCAP_SPORT, encap.sourcePort);
  data.be16(IPTUN.ENCAP_DPORT, encap.destinationPort);
}

/** IPPROTO_IPIP and IPPROTO_IPV6. */
function payloadProtocol(payload: "ipv4" | "ipv6" | "any"): number {
  return payload === "ipv4" ? 4 : payload === "ipv6" ? 41 : 0;
}
