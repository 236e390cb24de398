import type { RouteScope, RouteType } from "./types.ts";

/** Numbers of include/uapi/linux/rtnetlink.h and lwtunnel.h. */
export const RTA = {
  DST: 1,
  SRC: 2,
  OIF: 4,
  GATEWAY: 5,
  PRIORITY: 6,
  PREFSRC: 7,
  METRICS: 8,
  MULTIPATH: 9,
  TABLE: 15,
  MARK: 16,
  VIA: 18,
  ENCAP_TYPE: 21,
  ENCAP: 22,
} as const;

export const RTAX_MTU = 2;
export const RTM_F_CLONED = 0x200;
/** Flags of a query: the answer has the table, and is the entry of the table. */
export const RTM_F_LOOKUP_TABLE = 0x1000;
export const RTM_F_FIB_MATCH = 0x2000;
export const RTNH_F = { ONLINK: 4, LINKDOWN: 16 } as const;
export const LWTUNNEL = { IP: 2, IP6: 4 } as const;
export const LWT_IP = { ID: 1, DST: 2, SRC: 3, TTL: 4, FLAGS: 6 } as const;

/** RT_SCOPE_*. */
export const SCOPES: ReadonlyMap<number, RouteScope> = new Map([
  [0, "global"],
  [200, "site"],
  [253, "link"],
  [254, "host"],
  [255, "nowhere"],
]);

/** RTN_*, by number. */
export const TYPES: readonly (RouteType | undefined)[] = [
  undefined,
  "unicast",
  "local",
  "broadcast",
  "anycast",
  "multicast",
  "blackhole",
  "unreachable",
  "prohibit",
  "throw",
];

/** RT_TABLE_MAIN. */
export const TABLE_MAIN = 254;
/** RTPROT_BOOT. */
export const PROTOCOL_BOOT = 3;
