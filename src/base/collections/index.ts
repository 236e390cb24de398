/**
 * Collections whose members are added and removed in thousands, such as connections, a queue of bytes, the bound of a map whose oldest members go, and the
 * equality of data ({@link isEqual}).
 *
 * Owns: order and membership. Does not know: the members. Why not `Set` and `Map`: decision 0007.
 *
 * ```ts
 * const entry = connections.add(connection);
 * entry.remove();
 * ```
 */
export { ByteQueue } from "./byte-queue.ts";
export { DrainedMap } from "./drained-map.ts";
export { isEqual } from "./is-equal.ts";
export { keepNewest } from "./keep-newest.ts";
export { type Entry, LinkedSet } from "./linked-set.ts";
