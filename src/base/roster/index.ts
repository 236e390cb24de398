/**
 * Who is here: an ordered collection for members that come and go by the thousand.
 *
 * Owns: order and membership. Refuses to know: what the members are.
 *
 * ```ts
 * const seat = roster.add(connection);
 * seat.leave();
 * ```
 */
export { Roster, type Seat } from "./roster.ts";
