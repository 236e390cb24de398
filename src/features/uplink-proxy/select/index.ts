/**
 * Chooses the uplink of a connection and makes the connection (docs/spec/uplink-proxy.md#6).
 *
 * Owns: eligibility, order, rotation, penalties, staggered dialling, happy eyeballs, the meaning of an errno for an uplink. Refuses to
 * know: HTTP, what is sent over the connection, where snapshots come from.
 *
 * ```ts
 * const dialler = new Dialler<ByteStream>(deps);
 * const { connection, uplink, failures } = await dialler.dial({ destination, snapshot, judge, signal });
 * ```
 */
export { connectUpstream } from "./connect.ts";
export type { DialRequest, DialResult } from "./dial-request.ts";
export { Dialler } from "./dialler.ts";
export { type AttemptFailure, SelectError, type SelectErrorCode } from "./errors.ts";
export type { Closable } from "./happy-eyeballs.ts";
export { Penalties, type Penalty, type PenaltyEvent } from "./penalties.ts";
export { Rotation } from "./rotation.ts";
export { SegmentSizes } from "./segment-sizes.ts";
