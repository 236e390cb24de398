import { bind, C, close, duplicate, recv, setsockopt, socket } from "#kernel/ffi";
import { Attributes, decodeMessages, NETLINK } from "#kernel/netlink";
import { inNetNs } from "#kernel/netns";
import { GENMSG_BYTES, NFT_MSG, NFTA_GEN } from "./constants.ts";
import { ownPorts } from "./own-ports.ts";
import type { NftWriter, NftWriters } from "./types.ts";

const SOL_NETLINK = 270;
const NETLINK_ADD_MEMBERSHIP = 1;
const NETLINK_NO_ENOBUFS = 5;
/** NFNLGRP_NFTABLES. */
const GROUP = 7;
const BUFFER_BYTES = 64 << 10;
/** Maximum of datagrams that one call reads; the socket's buffer bounds the queue. */
const MAX_DATAGRAMS = 4096;

/** Follows which threads change nftables in a namespace, whose handle may be closed afterwards. Throws `KernelError`. */
export function openNftWriters(ns: { readonly fd: number }): NftWriters {
  const fd = inNetNs(ns, () => socket(C.AF_NETLINK, C.SOCK_RAW, NETLINK.NETFILTER));
  let isOpen = true;
  let namespace: number;
  try {
    const address = new Uint8Array(12); // struct sockaddr_nl with port id 0: the kernel picks one
    address[0] = C.AF_NETLINK;
    bind(fd, address, "bind a netlink socket");
    setsockopt(fd, SOL_NETLINK, NETLINK_NO_ENOBUFS, 1);
    setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, GROUP);
    namespace = duplicate(ns.fd);
  } catch (error) {
    close(fd);
    throw error;
  }
  const buffer = Buffer.allocUnsafeSlow(BUFFER_BYTES);
  return {
    take: () => {
      const found = isOpen ? read(fd, buffer) : [];
      // Most often nobody has written.
      const own = found.length === 0 ? new Set() : ownPorts({ fd: namespace });
      const others = found.filter(({ port }) => !own.has(port));
      return [...new Map(others.map(({ writer }) => [writer.pid, writer])).values()];
    },
    [Symbol.dispose]: () => {
      if (isOpen) for (const one of [fd, namespace]) close(one);
      isOpen = false;
    },
  };
}

/** The transactions since the last call: who made them, and the port id of the socket by which. */
function read(fd: number, buffer: Buffer): { readonly port: number; readonly writer: NftWriter }[] {
  const found: ReturnType<typeof read> = [];
  for (let count = 0; count < MAX_DATAGRAMS; count += 1) {
    const length = recv(fd, buffer, C.MSG_DONTWAIT, "receive from netlink");
    if (length === undefined) break;
    for (const { type, port, payload } of decodeMessages(buffer.subarray(0, Math.min(length, buffer.length)))) {
      if (type !== NFT_MSG.NEWGEN) continue;
      const attributes = Attributes.parse(payload.subarray(GENMSG_BYTES));
      const pid = attributes.be32(NFTA_GEN.PROC_PID);
      if (pid !== undefined) found.push({ port, writer: { pid, name: attributes.string(NFTA_GEN.PROC_NAME) ?? "" } });
    }
  }
  return found;
}
