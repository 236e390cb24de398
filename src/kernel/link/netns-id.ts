import { Attributes, MessageWriter, type NetlinkConnection, RTM } from "#kernel/netlink";
import type { NetNs } from "#kernel/netns";
import type { NetnsIdPort } from "./types.ts";

/** include/uapi/linux/net_namespace.h. */
const NETNSA = { NSID: 1, FD: 3 } as const;
/** `struct rtgenmsg`, padded. */
const HEADER = Buffer.alloc(4);

/** The namespace ids that the namespace of `connection` keeps. */
export function openNetnsIdPort(connection: NetlinkConnection): NetnsIdPort {
  return {
    get(ns: NetNs): number | undefined {
      const body = new MessageWriter().raw(HEADER).u32(NETNSA.FD, ns.fd).bytes;
      const what = (): string => `get the id of network namespace ${ns.path ?? ns.inode}`;
      const id = connection.get({ type: RTM.GETNSID, body, what }, ({ payload }) =>
        Attributes.parse(payload.subarray(HEADER.length)).i32(NETNSA.NSID),
      );
      return id === undefined || id < 0 ? undefined : id;
    },
    set(ns: NetNs, id: number): void {
      const body = new MessageWriter().raw(HEADER).u32(NETNSA.FD, ns.fd).i32(NETNSA.NSID, id).bytes;
      connection.change({
        type: RTM.NEWNSID,
        body,
        what: () => `give network namespace ${ns.path ?? ns.inode} id ${id}`,
      });
    },
  };
}
