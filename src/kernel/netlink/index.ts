/**
 * Netlink: framing, attributes, acks with the kernel's own error text, and dumps that detect an interruption.
 *
 * Owns: sockets, sequence numbers, retries. Does not know: links, addresses and routes; the ports in
 * `#kernel/link` and its neighbours do.
 *
 * ```ts
 * using connection = NetlinkConnection.open(ns, NETLINK.ROUTE);
 * const body = new MessageWriter().raw(header).u32(RTA_OIF, 3).bytes;
 * connection.change({ type: RTM.DELROUTE, body, what: () => "delete route 10.0.0.0/24" });
 * ```
 */
export { Attributes, eachAttribute, MessageWriter, malformed } from "./attributes.ts";
export { NetlinkConnection, type NetlinkRequest } from "./connection.ts";
export { AF, familyNumber, NETLINK, NLM_F, NLMSG, RTM } from "./constants.ts";
export { GenericFamily } from "./generic.ts";
export { decodeAck, decodeMessages, type NetlinkMessage } from "./message.ts";
export { enlargeQueue } from "./queue.ts";
