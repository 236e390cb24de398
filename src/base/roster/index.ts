/**
 * Who is here: collections for members that come and go by the thousand.
 *
 * Owns: order and membership. Refuses to know: what the members are.
 *
 * ```ts
 * const seat = roster.add(connection);
 * seat.leave();
 * ```
 */
export { Register } from "./register.ts";
export { Roster, type Seat } from "./roster.ts";
