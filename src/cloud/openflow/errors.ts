import { ExpectedError } from "#base/errors";

/**
 * - `unreachable`: no switch answers on the socket.
 * - `closed`: the connection has ended before the answer.
 * - `timeout`: no answer within the time of the call.
 * - `malformed`: bytes that are no OpenFlow, or an answer that does not have the promised form.
 * - `refused`: the switch answers with an error, such as for a version that its bridge does not have.
 */
export type OpenFlowErrorCode = "unreachable" | "closed" | "timeout" | "malformed" | "refused";

/** A failed question to a bridge. */
export class OpenFlowError extends ExpectedError<OpenFlowErrorCode> {
  override readonly name = "OpenFlowError";
}
