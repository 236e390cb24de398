import { Cidr, type IpAddress } from "#base/ip";
import type { ConntrackEntry, ConntrackFilter, ConntrackTuple, TupleFilter } from "./types.ts";

/** True if the connection has all values that the filter requires. */
export function matchesConntrack(entry: ConntrackEntry, filter: ConntrackFilter): boolean {
  const { mark } = filter;
  const mask = mark?.mask ?? 0xffff_ffff;
  return (
    entry.family === filter.family &&
    (filter.protocol === undefined || entry.protocol === filter.protocol) &&
    matchesTuple(entry.original, filter.original) &&
    matchesTuple(entry.reply, filter.reply) &&
    (mark === undefined || (entry.mark & mask) >>> 0 === (mark.value & mask) >>> 0)
  );
}

function matchesTuple(tuple: ConntrackTuple, filter: TupleFilter | undefined): boolean {
  return (
    filter === undefined ||
    (matchesAddress(tuple.src, filter.src) &&
      matchesAddress(tuple.dst, filter.dst) &&
      (filter.srcPort === undefined || tuple.srcPort === filter.srcPort) &&
      (filter.dstPort === undefined || tuple.dstPort === filter.dstPort))
  );
}

function matchesAddress(address: IpAddress, filter: IpAddress | Cidr | undefined): boolean {
  if (filter === undefined) return true;
  return filter instanceof Cidr ? filter.contains(address) : filter.equals(address);
}
