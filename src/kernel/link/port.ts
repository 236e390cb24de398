import type { AbortOptions } from "#base/async";
import { isKernelError, KernelError } from "#kernel/errors";
import { MessageWriter, NETLINK, NetlinkConnection, NLM_F, RTM } from "#kernel/netlink";
import type { NetNs } from "#kernel/netns";
import { checkChange, checkLinkName, checkSpec } from "./check.ts";
import { IFF, IFLA } from "./constants.ts";
import { decodeLink } from "./decode.ts";
import { deleteTogether } from "./delete-many.ts";
import { deletion, encodeChange, encodeCreate, linkHeader } from "./encode.ts";
import { createTun } from "./tun.ts";
import type { DeletableLink, Link, LinkChange, LinkPort, LinkRef, LinkSpec } from "./types.ts";

/** The links of the namespace that `connection` is in. The connection stays the caller's. */
export function openLinkPort(connection: NetlinkConnection): LinkPort {
  return new KernelLinkPort(connection);
}

/** RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h: counters of packets are left out. */
const SKIP_STATS = 8;

class KernelLinkPort implements LinkPort {
  readonly #connection: NetlinkConnection;

  constructor(connection: NetlinkConnection) {
    this.#connection = connection;
  }

  list(): Link[] {
    // With a filter mask the kernel makes room for the largest link. Without one it ends the list silently at a link of more than 8 KiB, as alternative names make it.
    const body = new MessageWriter().raw(linkHeader()).u32(IFLA.EXT_MASK, SKIP_STATS).bytes;
    const request = { type: RTM.GETLINK, body, what: () => "list links" };
    return this.#connection.dump(request, (message) =>
      message.type === RTM.NEWLINK ? decodeLink(message.payload) : undefined,
    );
  }

  get(ref: LinkRef): Link | undefined {
    return readLink(this.#connection, ref);
  }

  create(spec: LinkSpec): Link {
    checkSpec(spec);
    const what = (): string => `create ${spec.kind} link ${spec.name}`;
    if (spec.kind === "tun") createTun({ fd: this.#connection.namespaceFd }, spec);
    else {
      const body = encodeCreate(spec);
      this.#connection.change({ type: RTM.NEWLINK, flags: NLM_F.CREATE | NLM_F.EXCL, body, what });
    }
    return this.#in(spec.netns, (connection) => this.#finish(connection, spec, what));
  }

  /** Uses a connection in `ns`; without one, the port's own. */
  #in<T>(ns: NetNs | undefined, use: (connection: NetlinkConnection) => T): T {
    if (ns === undefined) return use(this.#connection);
    using there = NetlinkConnection.open(ns, NETLINK.ROUTE);
    return use(there);
  }

  /** Sets the fields that a creation cannot set, and reads the link back; after a failure the link is removed. */
  #finish(connection: NetlinkConnection, spec: LinkSpec, what: () => string): Link {
    const made = readLink(connection, { name: spec.name });
    if (made === undefined) throw new KernelError("failed", `Cannot ${what()}: the new link was deleted at once`);
    const late = lateChange(spec);
    const peer = spec.kind === "veth" && spec.peer.up === true ? spec.peer : undefined;
    if (late === undefined && peer === undefined) return made;
    try {
      if (late !== undefined) changeLink(connection, made.index, late);
      if (peer !== undefined) this.#in(peer.netns ?? spec.netns, (there) => raiseLink(there, peer.name));
      return readLink(connection, { index: made.index }) ?? made;
    } catch (error) {
      removeLink(connection, made.index);
      throw error;
    }
  }

  set(index: number, change: LinkChange): void {
    checkChange(change);
    changeLink(this.#connection, index, change);
  }

  delete(index: number): void {
    removeLink(this.#connection, index);
  }

  deleteAsync(index: number, options: AbortOptions = {}): Promise<void> {
    return this.#connection.changeAsync(deletion(index), options);
  }

  deleteMany(links: readonly DeletableLink[], options: AbortOptions = {}): Promise<ReadonlyMap<number, KernelError>> {
    return deleteTogether(this.#connection, links, options);
  }
}

function raiseLink(connection: NetlinkConnection, name: string): void {
  const body = new MessageWriter().raw(linkHeader({ flags: IFF.UP, change: IFF.UP })).string(IFLA.IFNAME, name).bytes;
  connection.change({ type: RTM.SETLINK, body, what: () => `bring link ${name} up` });
}

/** The fields that RTM_NEWLINK does not set: the alias, and for tun all fields except the name. */
function lateChange(spec: LinkSpec): LinkChange | undefined {
  if (spec.kind === "tun") {
    const { mtu, mac, alias, up, masterIndex } = spec;
    return { mtu, mac, alias, up, masterIndex };
  }
  return spec.alias === undefined ? undefined : { alias: spec.alias };
}

function readLink(connection: NetlinkConnection, ref: LinkRef): Link | undefined {
  const writer = new MessageWriter();
  if ("name" in ref) {
    checkLinkName(ref.name);
    writer.raw(linkHeader()).string(IFLA.IFNAME, ref.name);
  } else {
    writer.raw(linkHeader({ index: ref.index }));
  }
  const what = (): string => `get link ${"name" in ref ? ref.name : ref.index}`;
  try {
    return connection.get({ type: RTM.GETLINK, body: writer.bytes, what }, (message) => decodeLink(message.payload));
  } catch (error) {
    if (isKernelError(error, "no-device")) return undefined;
    throw error;
  }
}

function changeLink(connection: NetlinkConnection, index: number, change: LinkChange): void {
  const what = (): string => `change link ${index} (${Object.keys(change).join(", ")})`;
  connection.change({ type: RTM.SETLINK, body: encodeChange(index, change), what });
}

function removeLink(connection: NetlinkConnection, index: number): void {
  connection.change(deletion(index));
}
