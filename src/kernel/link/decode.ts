import { type IpAddress, MacAddress } from "#base/ip";
import { Attributes, malformed } from "#kernel/netlink";
import {
  BRIDGE,
  ENCAP_FLAG,
  IFF,
  IFLA,
  INFO,
  IPTUN,
  MACVLAN_MODE,
  MACVLAN_MODES,
  OPER_STATES,
  TUN,
  VXLAN,
} from "./constants.ts";
import type {
  BridgeOptions,
  Link,
  LinkDetails,
  MacvlanOptions,
  TunnelEncap,
  TunnelOptions,
  VxlanOptions,
} from "./types.ts";

/** Decodes RTM_NEWLINK or RTM_DELLINK. Throws {@link KernelError} `invalid` for malformed bytes. */
export function decodeLink(payload: Buffer): Link {
  if (payload.length < 16) throw malformed(`a link message has only ${payload.length} bytes`);
  const attributes = Attributes.parse(payload.subarray(16));
  const flags = payload.readUInt32LE(8);
  const info = attributes.nested(IFLA.LINKINFO);
  const kind = info.string(INFO.KIND);
  const mac = attributes.bytes(IFLA.ADDRESS);
  const alias = attributes.string(IFLA.IFALIAS);
  return {
    index: payload.readInt32LE(4),
    name: attributes.string(IFLA.IFNAME) ?? "",
    ...present("kind", kind),
    ...present("mac", mac?.length === 6 ? MacAddress.fromBytes(mac) : undefined),
    mtu: attributes.u32(IFLA.MTU) ?? 0,
    up: (flags & IFF.UP) !== 0,
    operState: OPER_STATES[attributes.u8(IFLA.OPERSTATE) ?? 0] ?? "unknown",
    ...present("alias", alias === "" ? undefined : alias),
    ...present("peerIndex", attributes.u32(IFLA.LINK)),
    ...present("peerNetNsId", attributes.i32(IFLA.LINK_NETNSID)),
    ...present("masterIndex", attributes.u32(IFLA.MASTER)),
    flags,
    group: attributes.u32(IFLA.GROUP) ?? 0,
    ...present("details", kind === undefined ? undefined : decodeDetails(kind, info.nested(INFO.DATA))),
  };
}

/** A property that is left out when it has no value. */
function present<K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } {
  return value === undefined ? {} : ({ [key]: value } as { [P in K]?: V });
}

function decodeDetails(kind: string, data: Attributes): LinkDetails | undefined {
  switch (kind) {
    case "bridge":
      return { kind, ...decodeBridge(data) };
    case "vxlan":
      return { kind, ...decodeVxlan(data) };
    case "tun":
      return {
        kind,
        mode: data.u8(TUN.TYPE) === 2 ? "tap" : "tun", // IFF_TUN 1, IFF_TAP 2
        multiQueue: data.u8(TUN.MULTI_QUEUE) === 1,
        vnetHeader: data.u8(TUN.VNET_HDR) === 1,
        ...present("ownerUid", data.u32(TUN.OWNER)),
      };
    case "macvlan":
      return { kind, mode: macvlanMode(data.u32(MACVLAN_MODE)) };
    case "ipip":
    case "ip6tnl":
      return { kind, ...decodeTunnel(data) };
    default:
      return undefined;
  }
}

function macvlanMode(number: number | undefined): MacvlanOptions["mode"] {
  for (const [mode, value] of Object.entries(MACVLAN_MODES)) {
    if (value === number) return mode as MacvlanOptions["mode"];
  }
  return "vepa"; // the kernel's own default
}

function decodeBridge(data: Attributes): BridgeOptions {
  return {
    stp: (data.u32(BRIDGE.STP_STATE) ?? 0) !== 0,
    vlanFiltering: data.u8(BRIDGE.VLAN_FILTERING) === 1,
    multicastSnooping: data.u8(BRIDGE.MCAST_SNOOPING) === 1,
    ageingSeconds: (data.u32(BRIDGE.AGEING_TIME) ?? 0) / 100,
  };
}

function decodeVxlan(data: Attributes): VxlanOptions {
  const external = data.u8(VXLAN.COLLECT_METADATA) === 1;
  const vni = data.u32(VXLAN.ID);
  return {
    ...present("vni", external ? undefined : vni),
    ...present("local", specified(data.address(VXLAN.LOCAL) ?? data.address(VXLAN.LOCAL6))),
    ...present("remote", specified(data.address(VXLAN.GROUP) ?? data.address(VXLAN.GROUP6))),
    ...present("port", data.be16(VXLAN.PORT)),
    ...present("underlayIndex", positive(data.u32(VXLAN.LINK))),
    learning: data.u8(VXLAN.LEARNING) === 1,
    external,
    ttl: data.u8(VXLAN.TTL) ?? 0,
    udpCsum: data.u8(VXLAN.UDP_CSUM) === 1,
    udp6ZeroCsumTx: data.u8(VXLAN.UDP_ZERO_CSUM6_TX) === 1,
    udp6ZeroCsumRx: data.u8(VXLAN.UDP_ZERO_CSUM6_RX) === 1,
    gbp: data.has(VXLAN.GBP),
  };
}

function decodeTunnel(data: Attributes): TunnelOptions {
  const protocol = data.u8(IPTUN.PROTO);
  return {
    ...present("local", specified(data.address(IPTUN.LOCAL))),
    ...present("remote", specified(data.address(IPTUN.REMOTE))),
    ...present("underlayIndex", positive(data.u32(IPTUN.LINK))),
    ttl: data.u8(IPTUN.TTL) ?? 0,
    ...present("pmtuDiscovery", data.has(IPTUN.PMTUDISC) ? data.u8(IPTUN.PMTUDISC) !== 0 : undefined),
    payload: protocol === 4 ? "ipv4" : protocol === 41 ? "ipv6" : "any",
    external: data.has(IPTUN.COLLECT_METADATA),
    ...present("encap", decodeEncap(data)),
  };
}

function decodeEncap(data: Attributes): TunnelEncap | undefined {
  const type = data.u16(IPTUN.ENCAP_TYPE) ?? 0;
  if (type !== 1 && type !== 2) return undefined;
  const flags = data.u16(IPTUN.ENCAP_FLAGS) ?? 0;
  return {
    type: type === 1 ? "fou" : "gue",
    sourcePort: data.be16(IPTUN.ENCAP_SPORT) ?? 0,
    destinationPort: data.be16(IPTUN.ENCAP_DPORT) ?? 0,
    csum: (flags & ENCAP_FLAG.CSUM) !== 0,
    csum6: (flags & ENCAP_FLAG.CSUM6) !== 0,
  };
}

function specified(address: IpAddress | undefined): IpAddress | undefined {
  return address?.isUnspecified === true ? undefined : address;
}

function positive(value: number | undefined): number | undefined {
  return value === 0 ? undefined : value;
}
