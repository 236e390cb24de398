import type { Assignment, Attachment, RestoredAttachment, UnownedLink } from "./attachments.ts";
import type { OwnedBlock } from "./block-source.ts";
import type { Entry } from "./entry.ts";

/** The slot of an attachment. */
export interface Holding {
  readonly attachment: Attachment;
  readonly entry: Entry;
  readonly offset: number;
}

/** The memory as plain data, for audits and metrics. */
export type TableSnapshot = ReturnType<typeof snapshotOf>;

/** Copies memory; addresses and prefixes become text. */
export function snapshotOf(table: {
  readonly entries: Iterable<Entry>;
  readonly holdings: Iterable<Holding>;
  readonly unknown: readonly RestoredAttachment[];
  readonly unowned: Iterable<UnownedLink>;
  /** The number of attachments that have addresses that are in no block of this node. */
  readonly stranded: number;
}) {
  return {
    blocks: Array.from(table.entries, ({ block, slots, releasing, missing }) => ({
      name: block.name,
      uid: block.uid,
      pool: block.pool,
      index: block.index,
      ipv4: block.ipv4?.toString(),
      ipv6: block.ipv6?.toString(),
      reserved: block.reserved,
      deleting: block.deleting,
      releasing,
      missing,
      used: slots.used,
      free: slots.free,
    })),
    attachments: Array.from(table.holdings, ({ attachment, entry, offset }) => {
      const { pool, block, ipv4, ipv6 } = assignmentOf(entry.block, offset);
      return { ...attachment, pool, block, ipv4: ipv4?.toString(), ipv6: ipv6?.toString() };
    }),
    unknown: table.unknown.map(({ containerId, ifname, pool, addresses }) => ({
      containerId,
      ifname,
      pool,
      addresses: addresses.map(String),
    })),
    strays: Array.from(table.unowned, ({ ifindex, hostName, addresses }) => ({
      ifindex,
      hostName,
      addresses: addresses.map(String),
    })),
    stranded: table.stranded,
  };
}

/** The addresses of a slot. */
export function assignmentOf(block: OwnedBlock, offset: number): Assignment {
  return { pool: block.pool, block: block.name, ipv4: block.ipv4?.at(offset), ipv6: block.ipv6?.at(offset) };
}
