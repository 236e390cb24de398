import { isKernelError } from "#kernel/errors";
import { NETLINK, NetlinkConnection } from "#kernel/netlink";
import { CT, conntrackHeader, decodeConntrack, type RawEntry } from "./codec.ts";
import { matchesConntrack } from "./filter.ts";
import type { ConntrackFilter, ConntrackPort } from "./types.ts";

/** Opens the connection tracking of a namespace, whose handle may be closed afterwards. Needs CAP_NET_ADMIN there. */
export function openConntrack(ns: { readonly fd: number }): ConntrackPort {
  const connection = NetlinkConnection.open(ns, NETLINK.NETFILTER);
  return {
    list: (filter) => matching(connection, filter).map(({ entry }) => entry),
    delete: (filter, when = () => true) =>
      matching(connection, filter).filter((found) => when(found.entry) && forget(connection, found)).length,
    [Symbol.dispose]: () => connection[Symbol.dispose](),
  };
}

/** The whole table is read and filtered here: the kernel's own filters know marks and zones, but no addresses. */
function matching(connection: NetlinkConnection, filter: ConntrackFilter): RawEntry[] {
  const request = {
    type: CT.GET,
    body: conntrackHeader(filter.family),
    what: () => `list IPv${filter.family} connections`,
  };
  return connection.dump(request, ({ type, payload }) => {
    const found = type === CT.NEW ? decodeConntrack(payload) : undefined;
    return found !== undefined && matchesConntrack(found.entry, filter) ? found : undefined;
  });
}

/** False when the connection ended by itself meanwhile. */
function forget(connection: NetlinkConnection, { entry, deletion }: RawEntry): boolean {
  const what = (): string =>
    `delete connection ${entry.original.src} to ${entry.original.dst} (protocol ${entry.protocol})`;
  try {
    connection.change({ type: CT.DELETE, body: deletion, what });
    return true;
  } catch (error) {
    if (isKernelError(error, "not-found")) return false;
    throw error;
  }
}
