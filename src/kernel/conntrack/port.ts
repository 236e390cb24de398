import type { AbortOptions } from "#base/async";
import { TimeSlice } from "#base/async";
import { isKernelError } from "#kernel/errors";
import { NETLINK, NetlinkConnection, type NetlinkMessage, type NetlinkRequest } from "#kernel/netlink";
import { CT, decodeConntrack, encodeListing, identityOf, withoutMark } from "./codec.ts";
import { matchesConntrack } from "./filter.ts";
import type { ConntrackEntry, ConntrackFilter, ConntrackPort } from "./types.ts";

/** A connection, with the words by which the kernel knows it. */
interface Found {
  readonly entry: ConntrackEntry;
  readonly identity: Uint8Array;
}

/** Opens the connection tracking of a namespace, whose handle may be closed afterwards. Needs CAP_NET_ADMIN there. */
export function openConntrack(ns: { readonly fd: number }): ConntrackPort {
  const connection = NetlinkConnection.open(ns, NETLINK.NETFILTER);
  return {
    list: (filter) => connection.dump(listing(filter), matching(filter)),
    listInSlices: (filter, options = {}) =>
      connection.dumpInSlices(listing(filter), matching(filter), { ...options, isSparse: isFiltered(filter) }),
    delete: (filter, when = () => true, options = {}) => changeAll(connection, filter, when, forget, options),
    clearMarks: (filter, options = {}) => changeAll(connection, filter, ({ mark }) => mark !== 0, unmark, options),
    [Symbol.dispose]: () => connection[Symbol.dispose](),
  };
}

/** Changes each connection that matches, and still does after the listing. Resolves to the number of those that had not ended meanwhile. */
async function changeAll(
  connection: NetlinkConnection,
  filter: ConntrackFilter,
  when: (entry: ConntrackEntry) => boolean,
  change: (connection: NetlinkConnection, found: Found) => boolean,
  { signal }: AbortOptions,
): Promise<number> {
  const match = matching(filter);
  // The identity takes longer than the rest, so it is made for matches alone.
  const decode = (message: NetlinkMessage): Found | undefined => {
    const entry = match(message);
    return entry !== undefined && when(entry) ? { entry, identity: identityOf(message.payload) } : undefined;
  };
  const found = await connection.dumpInSlices(listing(filter), decode, { signal, isSparse: isFiltered(filter) });
  let count = 0;
  const slice = new TimeSlice();
  for (const one of found) {
    if (slice.isOver) await slice.yield();
    signal?.throwIfAborted();
    if (when(one.entry) && change(connection, one)) count += 1;
  }
  return count;
}

function listing(filter: ConntrackFilter): NetlinkRequest {
  return { type: CT.GET, body: encodeListing(filter), what: () => `list IPv${filter.family} connections` };
}

/** Returns true if the kernel leaves out what the filter excludes. Then it may look through the whole table for one answer. */
const isFiltered = ({ protocol }: ConntrackFilter): boolean => protocol !== undefined;

function matching(filter: ConntrackFilter): (message: NetlinkMessage) => ConntrackEntry | undefined {
  return ({ type, payload }) => {
    const entry = type === CT.NEW ? decodeConntrack(payload, filter) : undefined;
    return entry !== undefined && matchesConntrack(entry, filter) ? entry : undefined;
  };
}

/** Deletes a connection. Returns false if it has ended meanwhile. */
function forget(connection: NetlinkConnection, { entry, identity }: Found): boolean {
  return changeOne(connection, { type: CT.DELETE, body: identity, what: () => `delete ${textOf(entry)}` });
}

/** Sets the mark of a connection to 0. Returns false if it has ended meanwhile. */
function unmark(connection: NetlinkConnection, { entry, identity }: Found): boolean {
  // Without NLM_F_CREATE the kernel changes a connection that exists.
  const what = (): string => `clear the mark of ${textOf(entry)}`;
  return changeOne(connection, { type: CT.NEW, body: withoutMark(identity), what });
}

function changeOne(connection: NetlinkConnection, request: NetlinkRequest): boolean {
  try {
    connection.change(request);
    return true;
  } catch (error) {
    if (isKernelError(error, "not-found")) return false;
    throw error;
  }
}

function textOf({ original, protocol }: ConntrackEntry): string {
  return `connection ${original.src} to ${original.dst} (protocol ${protocol})`;
}
