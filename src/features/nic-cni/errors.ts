import { ExpectedError } from "#base/errors";

/**
 * - `no-bridge`: the integration bridge does not exist.
 * - `collision`: a device or a port with the name of a NIC belongs to something else.
 * - `device-wait`: the device of Alcor's agent has not appeared in time.
 * - `no-sandbox`: the network namespace of the sandbox does not exist.
 * - `journal`: a record cannot be read or written.
 */
export type NicCniErrorCode = "no-bridge" | "collision" | "device-wait" | "no-sandbox" | "journal";

/** A NIC cannot be made, removed or checked. */
export class NicCniError extends ExpectedError<NicCniErrorCode> {
  override readonly name = "NicCniError";
}

/** The error of a NIC whose device or port has a name that something else has. */
export function taken({ name, portId }: { readonly name: string; readonly portId: string }, by: string): NicCniError {
  return new NicCniError("collision", `NIC ${name} of port ${portId} cannot be made: ${by}`);
}
