import { decodeAddress } from "#kernel/address";
import { isKernelError, KernelError } from "#kernel/errors";
import { bind, C, close, recv, socket } from "#kernel/ffi";
import { decodeLink } from "#kernel/link";
import { AF, Attributes, decodeMessages, enlargeQueue, malformed, NETLINK, RTM } from "#kernel/netlink";
import { inNetNs, type NetNs } from "#kernel/netns";
import { DescriptorWatch } from "#kernel/reactor";
import { decodeRoute } from "#kernel/route";
import { decodeRule } from "#kernel/rule";
import type { MonitorEvent, MonitorTopics } from "./types.ts";

/** Bits of RTMGRP_*, and of RTNLGRP_IPV6_RULE, RTNLGRP_IPV4_NETCONF and RTNLGRP_IPV6_NETCONF, of include/uapi/linux/rtnetlink.h. */
const GROUPS = {
  links: 0x1,
  addresses: 0x10 | 0x100,
  routes: 0x40 | 0x400,
  rules: 0x80 | 0x4_0000,
  forwarding: 0x80_0000 | 0x100_0000,
} as const;
const TOPICS = ["links", "addresses", "routes", "rules", "forwarding"] as const;
/** Attributes of RTM_NEWNETCONF, and ifindexes that are no link's, of include/uapi/linux/netconf.h. */
const NETCONFA = { IFINDEX: 1, FORWARDING: 2 } as const;
const IFINDEX_ALL = 0xffff_ffff;
const IFINDEX_DEFAULT = 0xffff_fffe;
/** The size of `struct netconfmsg`, with padding, in bytes. */
const NETCONF_HEADER_BYTES = 4;
/** The size of the queue of events, in bytes: some 20,000 routes. The kernel drops further events. */
const RECEIVE_QUEUE_BYTES = 8 << 20;

/** The buffer size of one receive; the kernel's datagrams are at most a page or two. */
const BUFFER_BYTES = 64 << 10;
/** The maximum number of datagrams of a watch in one round of the event loop; further ones wait for the next round. */
const MAX_DATAGRAMS = 64;

const RESYNC: readonly MonitorEvent[] = [{ kind: "resync" }];
/** Errors after which events are missing and the next ones come: the kernel dropped some since its reader was slow, or had no memory for one. */
const LOSSES: ReadonlySet<string> = new Set(["ENOBUFS", "ENOMEM"]);

/**
 * Watches the links, addresses, routes, rules and forwarding of any number of namespaces from the event loop. While the thread is busy, the kernel
 * queues events, and reports if it had to drop some. The caller disposes this object. It does not keep the process alive.
 */
export class Monitors implements AsyncDisposable {
  readonly #buffer = Buffer.allocUnsafeSlow(BUFFER_BYTES);
  readonly #watches = new Set<DescriptorWatch>();
  /** Those whose queue was full and has not been empty since. */
  readonly #lossy = new Set<DescriptorWatch>();
  readonly #onFailure: (error: KernelError) => void;
  #stopped = false;

  /** `onFailure` is called when a watch fails; after that the watch reports no events. */
  constructor(options: { readonly onFailure: (error: KernelError) => void }) {
    this.#onFailure = options.onFailure;
  }

  /**
   * Calls `listener` for every event from now on. Events are level hints: after `resync`, and at the start, list the
   * state. A listener that throws ends the process, as any uncaught error does. Disposing ends the watch. Throws
   * {@link KernelError}.
   */
  watch(ns: Pick<NetNs, "fd">, topics: MonitorTopics, listener: (event: MonitorEvent) => void): AsyncDisposable {
    if (this.#stopped) throw new KernelError("failed", "Cannot watch: the monitors were already disposed");
    const watch: DescriptorWatch = new DescriptorWatch(openMulticast(ns, topics), () => this.#receive(watch, listener));
    this.#watches.add(watch);
    return { [Symbol.asyncDispose]: async () => this.#end(watch) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopped = true;
    for (const watch of [...this.#watches]) this.#end(watch);
  }

  #end(watch: DescriptorWatch): void {
    this.#watches.delete(watch);
    this.#lossy.delete(watch);
    watch[Symbol.dispose]();
  }

  #receive(watch: DescriptorWatch, listener: (event: MonitorEvent) => void): void {
    for (let count = 0; count < MAX_DATAGRAMS && this.#watches.has(watch); count += 1) {
      const events = this.#next(watch);
      if (events === undefined) return;
      for (const event of events) {
        if (this.#watches.has(watch)) listener(event);
      }
    }
  }

  /**
   * The events of one datagram; `undefined` if none is queued. After a loss the kernel drops every event until the queue is empty, and does not
   * report that again (af_netlink.c, NETLINK_S_CONGESTED): a listing made before that may lack a change.
   */
  #next(watch: DescriptorWatch): readonly MonitorEvent[] | undefined {
    try {
      const length = recv(watch.fd, this.#buffer, C.MSG_DONTWAIT, "receive kernel events", { isLossReported: true });
      if (length === undefined) return this.#lossy.delete(watch) ? RESYNC : undefined;
      // Listeners may keep the events.
      return length > this.#buffer.length ? RESYNC : eventsOf(Buffer.from(this.#buffer.subarray(0, length)));
    } catch (error) {
      if (!isKernelError(error)) throw error;
      if (LOSSES.has(error.errno ?? "")) {
        this.#lossy.add(watch);
        return RESYNC;
      }
      this.#end(watch);
      this.#onFailure(new KernelError("failed", `Cannot watch: ${error.message}`, { cause: error }));
      return undefined;
    }
  }
}

/** The events of a datagram; a request for a listing if it is not understood, as one of a later kernel may be. */
export function eventsOf(datagram: Buffer): readonly MonitorEvent[] {
  try {
    return [...decodeEvents(datagram)];
  } catch (error) {
    if (!isKernelError(error, "invalid")) throw error;
    return RESYNC;
  }
}

/** The events in one datagram. Throws {@link KernelError} `invalid` for malformed bytes. */
export function* decodeEvents(datagram: Buffer): Generator<MonitorEvent> {
  for (const { type, payload } of decodeMessages(datagram)) {
    // These are messages of bridges about their ports: RTM_DELLINK means that the link has left the bridge.
    if ((type === RTM.NEWLINK || type === RTM.DELLINK) && payload[0] === AF.BRIDGE) continue;
    if (type === RTM.NEWLINK || type === RTM.DELLINK) {
      yield { kind: "link", op: type === RTM.NEWLINK ? "new" : "delete", link: decodeLink(payload) };
    } else if (type === RTM.NEWADDR || type === RTM.DELADDR) {
      const address = decodeAddress(payload);
      if (address !== undefined) yield { kind: "address", op: type === RTM.NEWADDR ? "new" : "delete", address };
    } else if (type === RTM.NEWROUTE || type === RTM.DELROUTE) {
      const route = decodeRoute(payload);
      if (route !== undefined) yield { kind: "route", op: type === RTM.NEWROUTE ? "new" : "delete", route };
    } else if (type === RTM.NEWRULE || type === RTM.DELRULE) {
      const rule = decodeRule(payload);
      if (rule !== undefined) yield { kind: "rule", op: type === RTM.NEWRULE ? "new" : "delete", rule };
    } else if (type === RTM.NEWNETCONF) {
      const event = decodeForwarding(payload);
      if (event !== undefined) yield event;
    }
  }
}

/** Decodes RTM_NEWNETCONF; `undefined` for other families and settings, and for the value of links that are created later. */
function decodeForwarding(payload: Buffer): MonitorEvent | undefined {
  if (payload.length < NETCONF_HEADER_BYTES) throw malformed(`a netconf message has only ${payload.length} bytes`);
  const familyByte = payload.readUInt8(0);
  if (familyByte !== AF.INET && familyByte !== AF.INET6) return undefined;
  const attributes = Attributes.parse(payload.subarray(NETCONF_HEADER_BYTES));
  const [ifindex, forwarding] = [attributes.u32(NETCONFA.IFINDEX), attributes.u32(NETCONFA.FORWARDING)];
  if (ifindex === undefined || ifindex === IFINDEX_DEFAULT || forwarding === undefined) return undefined;
  return {
    kind: "forwarding",
    family: familyByte === AF.INET ? 4 : 6,
    linkIndex: ifindex === IFINDEX_ALL ? undefined : ifindex,
    isOn: forwarding !== 0,
  };
}

function openMulticast(ns: Pick<NetNs, "fd">, topics: MonitorTopics): number {
  let groups = 0;
  for (const topic of TOPICS) if (topics[topic] === true) groups |= GROUPS[topic];
  const fd = inNetNs(ns, () => socket(C.AF_NETLINK, C.SOCK_RAW | C.SOCK_NONBLOCK, NETLINK.ROUTE));
  try {
    enlargeQueue(fd, "receive", RECEIVE_QUEUE_BYTES);
    const address = new DataView(new ArrayBuffer(12)); // struct sockaddr_nl
    address.setUint16(0, C.AF_NETLINK, true);
    address.setUint32(8, groups, true);
    bind(fd, new Uint8Array(address.buffer), "join the kernel's event groups");
    return fd;
  } catch (error) {
    close(fd);
    throw error;
  }
}
