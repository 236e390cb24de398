/** Numbers of include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h. */
const SUBSYSTEM = 10;

export const NFNL_BATCH = { BEGIN: 0x10, END: 0x11, SUBSYSTEM } as const;

export const NFT_MSG = {
  GETTABLE: (SUBSYSTEM << 8) | 1,
  NEWCHAIN: (SUBSYSTEM << 8) | 3,
  GETCHAIN: (SUBSYSTEM << 8) | 4,
  NEWRULE: (SUBSYSTEM << 8) | 6,
  GETRULE: (SUBSYSTEM << 8) | 7,
  DELRULE: (SUBSYSTEM << 8) | 8,
  NEWSET: (SUBSYSTEM << 8) | 9,
  GETSET: (SUBSYSTEM << 8) | 10,
  NEWSETELEM: (SUBSYSTEM << 8) | 12,
  GETSETELEM: (SUBSYSTEM << 8) | 13,
  DELSETELEM: (SUBSYSTEM << 8) | 14,
  NEWGEN: (SUBSYSTEM << 8) | 15,
  GETGEN: (SUBSYSTEM << 8) | 16,
} as const;

export const NFTA_TABLE_NAME = 1;
export const NFTA_TABLE_FLAGS = 2;
export const NFTA_CHAIN = { TABLE: 1, HANDLE: 2, NAME: 3, HOOK: 4, POLICY: 5 } as const;
export const NFTA_SET = {
  TABLE: 1,
  NAME: 2,
  FLAGS: 3,
  KEY_TYPE: 4,
  KEY_LEN: 5,
  DATA_TYPE: 6,
  DATA_LEN: 7,
  ID: 10,
  HANDLE: 16,
} as const;
export const NFT_SET_MAP = 8;
export const NFTA_RULE = { TABLE: 1, CHAIN: 2, HANDLE: 3, EXPRESSIONS: 4, USERDATA: 7 } as const;
export const NFTA_EXPR = { NAME: 1, DATA: 2 } as const;
export const NFTA_COUNTER = { BYTES: 1, PACKETS: 2 } as const;
/** Types: nftables' numbers (its datatype.h; the kernel only stores them) and lengths in bytes. */
export const TYPES = {
  ipv4_addr: { id: 7, bytes: 4 },
  ipv6_addr: { id: 8, bytes: 16 },
  inet_proto: { id: 12, bytes: 4 },
  inet_service: { id: 13, bytes: 4 },
  mark: { id: 19, bytes: 4 },
} as const;
/** Bits of one type's number in that of a concatenation. */
export const TYPE_BITS = 6;
export const NFTA_LIST_ELEM = 1;
export const NFTA_LIST = { TABLE: 1, SET: 2, ELEMENTS: 3 } as const;
export const NFTA_ELEM = { KEY: 1, DATA: 2, FLAGS: 3, TIMEOUT: 4, EXPIRATION: 5, USERDATA: 6, KEY_END: 10 } as const;
/** Flag of an element that ends an interval and is not in it. */
export const NFT_SET_ELEM_INTERVAL_END = 1;
export const NFTA_DATA = { VALUE: 1, VERDICT: 2 } as const;
export const NFTA_VERDICT = { CODE: 1, CHAIN: 2 } as const;
export const NFTA_GEN = { ID: 1, PROC_PID: 2, PROC_NAME: 3 } as const;
/** Type of the comment in the user data of an element and of a rule (nftables' libnftnl udata.h). */
export const UDATA_COMMENT = 0;

/** NF_DROP, NF_ACCEPT, NFT_JUMP and NFT_GOTO. */
export const CODES = { drop: 0, accept: 1, jump: -3, goto: -4 } as const;

export const NESTED = 0x8000;
/** NFPROTO_* of a table's family. */
export const FAMILIES = { inet: 1, ip: 2, arp: 3, ip6: 10 } as const;
/** Length of `struct nlmsghdr` and of `struct nfgenmsg`. */
export const HEADER_BYTES = 16;
export const GENMSG_BYTES = 4;
