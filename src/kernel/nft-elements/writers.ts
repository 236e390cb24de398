import { existsSync } from "node:fs";
import { bind, C, close, recv, setsockopt, socket } from "#kernel/ffi";
import { Attributes, decodeMessages, NETLINK } from "#kernel/netlink";
import { inNetNs } from "#kernel/netns";
import { GENMSG_BYTES, NFT_MSG, NFTA_GEN } from "./constants.ts";
import type { NftWriter, NftWriters } from "./types.ts";

const SOL_NETLINK = 270;
const NETLINK_ADD_MEMBERSHIP = 1;
const NETLINK_NO_ENOBUFS = 5;
/** NFNLGRP_NFTABLES. */
const GROUP = 7;
const BUFFER_BYTES = 64 << 10;
/** Maximum of datagrams that one call reads; the socket's buffer bounds the queue. */
const MAX_DATAGRAMS = 4096;

/** Follows which threads change nftables in a namespace. Throws `KernelError`. */
export function openNftWriters(ns: { readonly fd: number }): NftWriters {
  const fd = inNetNs(ns, () => socket(C.AF_NETLINK, C.SOCK_RAW, NETLINK.NETFILTER));
  let isOpen = true;
  try {
    const address = new Uint8Array(12); // struct sockaddr_nl with port id 0: the kernel picks one
    address[0] = C.AF_NETLINK;
    bind(fd, address, "bind a netlink socket");
    setsockopt(fd, SOL_NETLINK, NETLINK_NO_ENOBUFS, 1);
    setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, GROUP);
  } catch (error) {
    close(fd);
    throw error;
  }
  const buffer = Buffer.allocUnsafeSlow(BUFFER_BYTES);
  return {
    take: () => (isOpen ? read(fd, buffer) : []),
    [Symbol.dispose]: () => {
      if (isOpen) close(fd);
      isOpen = false;
    },
  };
}

function read(fd: number, buffer: Buffer): NftWriter[] {
  const found = new Map<number, NftWriter>();
  for (let count = 0; count < MAX_DATAGRAMS; count += 1) {
    const length = recv(fd, buffer, C.MSG_DONTWAIT, "receive from netlink");
    if (length === undefined) break;
    for (const { type, payload } of decodeMessages(buffer.subarray(0, Math.min(length, buffer.length)))) {
      if (type !== NFT_MSG.NEWGEN) continue;
      const attributes = Attributes.parse(payload.subarray(GENMSG_BYTES));
      const pid = attributes.be32(NFTA_GEN.PROC_PID);
      // The id of a thread; `undefined` for threads of this process.
      if (pid === undefined || existsSync(`/proc/self/task/${pid}`)) continue;
      found.set(pid, { pid, name: attributes.string(NFTA_GEN.PROC_NAME) ?? "" });
    }
  }
  return [...found.values()];
}
