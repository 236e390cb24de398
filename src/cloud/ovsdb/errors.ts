import { ExpectedError } from "#base/errors";

/**
 * - `unreachable`: no server answers on the socket. Nothing has happened.
 * - `closed`: the connection has ended before the answer. A transaction may or may not have happened.
 * - `timeout`: no answer within the time of the call. The same.
 * - `malformed`: bytes that are no JSON-RPC, or an answer that does not have the promised form.
 * - `refused`: the server has refused a transaction, which had no effect.
 * - `no-bridge`: there is no bridge of that name.
 * - `collision`: the switch has a port of that name which belongs to another port of a VPC.
 * - `not-plugged`: the port is in the database, and the switch does not serve it.
 */
export type OvsdbErrorCode =
  | "unreachable"
  | "closed"
  | "timeout"
  | "malformed"
  | "refused"
  | "no-bridge"
  | "collision"
  | "not-plugged";

/** A failed call of Open vSwitch's database. */
export class OvsdbError extends ExpectedError<OvsdbErrorCode> {
  override readonly name = "OvsdbError";
}

/** True for an {@link OvsdbError} with one of the given codes; without codes, for any. */
export function isOvsdbError(error: unknown, ...codes: readonly OvsdbErrorCode[]): error is OvsdbError {
  return error instanceof OvsdbError && (codes.length === 0 || codes.includes(error.code));
}
