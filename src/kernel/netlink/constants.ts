/** Numbers of include/uapi/linux/netlink.h, rtnetlink.h and genetlink.h. */

export const NLM_F = {
  REQUEST: 0x1,
  MULTI: 0x2,
  ACK: 0x4,
  DUMP_INTR: 0x10,
  /** Get: NLM_F_ROOT | NLM_F_MATCH. */
  DUMP: 0x300,
  REPLACE: 0x100,
  EXCL: 0x200,
  CREATE: 0x400,
  APPEND: 0x800,
  /** A flag of acks: the original request is not echoed. */
  CAPPED: 0x100,
  /** A flag of acks: attributes follow. */
  ACK_TLVS: 0x200,
} as const;

export const NLMSG = { NOOP: 1, ERROR: 2, DONE: 3, OVERRUN: 4 } as const;

/** Protocols of AF_NETLINK sockets. */
export const NETLINK = { ROUTE: 0, SOCK_DIAG: 4, NETFILTER: 12, GENERIC: 16 } as const;

/** Message types of NETLINK_ROUTE. */
export const RTM = {
  NEWLINK: 16,
  DELLINK: 17,
  GETLINK: 18,
  SETLINK: 19,
  NEWADDR: 20,
  DELADDR: 21,
  GETADDR: 22,
  NEWROUTE: 24,
  DELROUTE: 25,
  GETROUTE: 26,
  NEWNEIGH: 28,
  DELNEIGH: 29,
  GETNEIGH: 30,
  NEWRULE: 32,
  DELRULE: 33,
  GETRULE: 34,
  NEWNETCONF: 80,
  NEWNSID: 88,
  GETNSID: 90,
} as const;

export const AF = { UNSPEC: 0, INET: 2, BRIDGE: 7, INET6: 10 } as const;

/** Address family number of an IP version. */
export function familyNumber(family: 4 | 6): number {
  return family === 4 ? AF.INET : AF.INET6;
}
