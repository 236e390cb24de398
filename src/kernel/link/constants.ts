import type { MacvlanOptions, OperState } from "./types.ts";

/** Numbers of include/uapi/linux/if_link.h, if.h and if_tunnel.h. */

export const IFLA = {
  ADDRESS: 1,
  IFNAME: 3,
  MTU: 4,
  LINK: 5,
  MASTER: 10,
  OPERSTATE: 16,
  LINKINFO: 18,
  IFALIAS: 20,
  GROUP: 27,
  NET_NS_FD: 28,
  EXT_MASK: 29,
  LINK_NETNSID: 37,
} as const;

export const INFO = { KIND: 1, DATA: 2 } as const;
export const VETH_INFO_PEER = 1;
export const BRIDGE = { AGEING_TIME: 4, STP_STATE: 5, VLAN_FILTERING: 7, MCAST_SNOOPING: 23 } as const;
export const MACVLAN_MODE = 1;
export const TUN = { OWNER: 1, TYPE: 3, VNET_HDR: 5, MULTI_QUEUE: 7 } as const;

export const VXLAN = {
  ID: 1,
  GROUP: 2,
  LINK: 3,
  LOCAL: 4,
  TTL: 5,
  LEARNING: 7,
  PORT: 15,
  GROUP6: 16,
  LOCAL6: 17,
  UDP_CSUM: 18,
  UDP_ZERO_CSUM6_TX: 19,
  UDP_ZERO_CSUM6_RX: 20,
  GBP: 23,
  COLLECT_METADATA: 25,
} as const;

export const IPTUN = {
  LINK: 1,
  LOCAL: 2,
  REMOTE: 3,
  TTL: 4,
  PROTO: 9,
  PMTUDISC: 10,
  ENCAP_TYPE: 15,
  ENCAP_FLAGS: 16,
  ENCAP_SPORT: 17,
  ENCAP_DPORT: 18,
  COLLECT_METADATA: 19,
} as const;

export const ENCAP_FLAG = { CSUM: 1, CSUM6: 2 } as const;
export const IFF = { UP: 1, NOARP: 0x80, PROMISC: 0x100 } as const;

/**
 * Group numbers (IFLA_GROUP) that are ours: 0x49000000 to 0x49ffffff. A link gets such a group only to be deleted, so a link in one of them
 * is being deleted, or its deletion was interrupted. The numbers are positive as an int of the kernel, and far from the small numbers in
 * /etc/iproute2/group.
 */
export const DELETION_GROUPS = { first: 0x4900_0000, count: 0x100_0000 } as const;

/** The index is the number IF_OPER_*. */
export const OPER_STATES: readonly OperState[] = [
  "unknown",
  "notpresent",
  "down",
  "lowerlayerdown",
  "testing",
  "dormant",
  "up",
];

export const MACVLAN_MODES: Readonly<Record<MacvlanOptions["mode"], number>> = {
  private: 1,
  vepa: 2,
  bridge: 4,
  passthru: 8,
  source: 16,
};
